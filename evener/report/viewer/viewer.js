// What is visible, selected and found. `controls.js` ties it to pointer, keys and buttons.

const element = (id) => document.getElementById(id);
const CLOSEST = 20; // nanoseconds that fill the width at the highest zoom

class Viewer {
  constructor(report, model) {
    this.report = report;
    this.model = model;
    this.canvas = element("lanes");
    this.scroller = element("scroller");
    this.painter = new Painter(this.canvas, model, report);
    this.overview = new Overview(element("overview"), model, (from, to) => this.setView(from, to));
    this.shown = { measured: true, messages: true, memory: true };
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.isPrinting = false;
    this.frame = 0;
    this.size = null; // chosen by the reader, else by the room there is
    this.found = [];
    this.scene = { view: { from: 0, to: model.step }, scroll: 0, layout: null,
      hover: null, selected: null, path: null };
  }

  // ---- drawing, at most once per frame -------------------------------------------------------

  redraw() {
    this.frame ||= requestAnimationFrame(() => this.drawNow());
  }

  drawNow() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    this.scene.scroll = this.scroller.scrollTop;
    this.painter.paint(this.scene);
    this.overview.paint(this.scene.view);
  }

  relayout() {
    const width = this.scroller.clientWidth;
    const room = Math.max(220, Math.round(window.innerHeight * 0.8));
    this.sizeNow = this.size ?? bestSize(this.model, this.shown, width, room);
    const layout = makeLayout(this.model, this.shown, this.sizeNow, width);
    const total = layout.total + AXIS_HEIGHT + 4;
    const height = Math.min(total, room);
    this.scene.layout = layout;
    this.scroller.style.height = `${height}px`;
    element("spacer").style.height = `${total - height}px`;
    this.painter.readTheme(this.dark.matches && !this.isPrinting);
    this.painter.resize(width, height);
    this.overview.resize(layout);
    element("shorter").disabled = this.sizeNow === 0;
    element("taller").disabled = this.sizeNow === ROW_SIZES.length - 1;
    this.drawNow();
  }

  changeSize(by) {
    const { scroller } = this;
    const middle = (scroller.scrollTop + scroller.clientHeight / 2) / this.scene.layout.total;
    this.size = Math.min(ROW_SIZES.length - 1, Math.max(0, this.sizeNow + by));
    this.relayout();
    scroller.scrollTop = middle * this.scene.layout.total - scroller.clientHeight / 2;
    this.redraw();
  }

  // ---- the visible time ----------------------------------------------------------------------

  get isFitted() {
    return this.scene.view.to - this.scene.view.from >= this.model.step;
  }

  // Not closer than the closest zoom, and never beyond the step.
  setView(from, to) {
    const { step } = this.model;
    const length = Math.min(step, Math.max(to - from, CLOSEST));
    const start = Math.min(Math.max(0, (from + to - length) / 2), step - length);
    this.scene.view = { from: start, to: start + length };
    element("zoom-out").disabled = element("fit").disabled = this.isFitted;
    this.redraw();
  }

  fit() {
    this.setView(0, this.model.step);
  }

  timeAt(x) {
    const { layout, view } = this.scene;
    return view.from + ((x - layout.gutter) * (view.to - view.from)) / layout.plotWidth;
  }

  zoom(factor, around = (this.scene.view.from + this.scene.view.to) / 2) {
    const { from, to } = this.scene.view;
    this.setView(around - (around - from) / factor, around + (to - around) / factor);
  }

  pan(share) {
    const { from, to } = this.scene.view;
    this.setView(from + (to - from) * share, to + (to - from) * share);
  }

  // Brings an action into view, wide enough to read its label, else without changing more than
  // it takes.
  reveal({ timeline, index }) {
    const { scroller } = this;
    const { layout, view } = this.scene;
    const duration = Math.max(1, timeline.end[index] - timeline.start[index]);
    const middle = (timeline.start[index] + timeline.end[index]) / 2;
    const length = Math.min(view.to - view.from, duration * (layout.plotWidth / 48));
    const isVisible = middle >= view.from && middle <= view.to;
    if (!isVisible || length < view.to - view.from) this.setView(middle - length / 2, middle + length / 2);
    const top = timeline.schedule.workerOf[index] * layout.rowHeight;
    const seen = scroller.clientHeight - AXIS_HEIGHT - layout.rowHeight;
    if (top < scroller.scrollTop || top > scroller.scrollTop + seen) scroller.scrollTop = top - seen / 2;
    this.redraw();
  }

  // ---- what lies where -----------------------------------------------------------------------

  // The action at a place of the canvas, null if there is none.
  hit(x, y) {
    const { layout } = this.scene;
    const down = y - AXIS_HEIGHT + this.scroller.scrollTop;
    const worker = Math.floor(down / layout.rowHeight);
    if (x < layout.gutter || y < AXIS_HEIGHT || worker < 0 || worker >= this.model.numWorkers) return null;
    for (const { timeline, top, height, strip } of layout.lanes) {
      const inside = down - worker * layout.rowHeight - top;
      if (inside < 0 || inside >= height + strip) continue;
      const { compute, beside } = timeline.workers[worker];
      if (inside < height) return this.nearest(timeline, compute, this.timeAt(x), inside > height / 2 ? 1 : 0);
      return this.nearest(timeline, beside, this.timeAt(x), inside - height > strip / 2 ? 1 : 0);
    }
    return null;
  }

  // Narrow actions can be hit from two pixels away; where several are hit, the nearest wins.
  // half: the half of the lane or strip whose actions are preferred.
  nearest(timeline, lane, time, half) {
    const { view, layout } = this.scene;
    const reach = (2 * (view.to - view.from)) / layout.plotWidth;
    const [low, high] = visibleRange(timeline, lane, time - reach, time + reach);
    let best = null;
    let bestDistance = Infinity;
    for (let k = low; k < high; k++) {
      const index = lane.order[k];
      const own = timeline.half[index];
      const miss = Math.max(timeline.start[index] - time, time - timeline.end[index], 0);
      const distance = miss + (own !== NOTHING && own !== half ? reach : 0);
      if (miss <= reach && distance < bestDistance) {
        best = { timeline, index };
        bestDistance = distance;
      }
    }
    return best;
  }

  // ---- selection, path and search ------------------------------------------------------------

  describe({ timeline, index }) {
    return describeAction(this.model, this.report.palette, timeline, index);
  }

  select(focus) {
    this.scene.selected = focus;
    this.scene.path = null;
    element("path").setAttribute("aria-pressed", "false");
    writeWords(element("details"), focus && this.describe(focus));
    this.redraw();
  }

  // The critical path to the selected action, or of the whole step.
  togglePath() {
    const wasShown = this.scene.path !== null;
    const focus = this.scene.selected;
    this.select(focus);
    if (wasShown) return;
    const timeline = focus ? focus.timeline : this.model.timelines[0];
    const target = focus ? focus.index : null;
    const list = pathTo(timeline, target ?? lastToEnd(timeline));
    this.scene.path = { timeline, list, members: new Set(list) };
    element("path").setAttribute("aria-pressed", "true");
    const { palette } = this.report;
    writeWords(element("details"), describePath(this.model, palette, timeline, list, target));
  }

  search(query) {
    this.found = findActions(this.model.timelines[0], query);
    this.foundAt = -1;
    if (this.found.length) {
      this.stepFound(1);
      return;
    }
    this.select(null);
    element("found").textContent = query.trim() ? "0 found" : "";
  }

  stepFound(by) {
    const { found } = this;
    if (!found.length) return;
    this.foundAt = (this.foundAt + by + found.length) % found.length;
    this.selectAndReveal({ timeline: this.model.timelines[0], index: found[this.foundAt] });
    element("found").textContent = `${this.foundAt + 1} of ${found.length}`;
  }

  // The next or previous action of the selected one's lane; without one, the first visible.
  selectNeighbour(by) {
    const { selected, layout, view } = this.scene;
    if (!selected) {
      const timeline = this.model.timelines[0];
      const lane = timeline.workers[Math.floor(this.scroller.scrollTop / layout.rowHeight)].compute;
      const index = lane.order[visibleRange(timeline, lane, view.from, view.to)[0]];
      if (index !== undefined) this.selectAndReveal({ timeline, index });
      return;
    }
    const { timeline, index } = selected;
    const { compute, beside } = timeline.workers[timeline.schedule.workerOf[index]];
    const { order } = this.model.kinds[timeline.schedule.kind[index]].computes ? compute : beside;
    const neighbour = order[order.indexOf(index) + by];
    if (neighbour !== undefined) this.selectAndReveal({ timeline, index: neighbour });
  }

  selectAndReveal(focus) {
    this.select(focus);
    this.reveal(focus);
  }
}
