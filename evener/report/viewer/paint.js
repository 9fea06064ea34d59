// Draws lanes. A scene says what is to be seen: layout, view (from and to in ns), scroll (pixels),
// and the hovered action, the selected one and the path, each null or with its timeline.

const TOO_NARROW = 2.5; // mean width in pixels below which actions cannot be told apart
const FADED = 0.3;

const fontOf = (size, weight = "") => `${weight} ${size}px system-ui, -apple-system, "Segoe UI", sans-serif`;

class Painter {
  constructor(canvas, model, report) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.scratch = new OffscreenCanvas(1, 1);
    this.model = model;
    this.report = report;
  }

  readTheme(isDark) {
    const style = getComputedStyle(document.documentElement);
    const read = (name) => style.getPropertyValue(name).trim();
    this.theme = { paper: read("--paper"), ink: read("--ink"), muted: read("--muted"),
      line: read("--line"), idle: read("--idle"), accent: read("--accent"), warn: read("--warn") };
    // In the order of schedule.ink: the shades of the first kind, of the second, ...
    this.inks = this.model.kinds.flatMap(({ name }) => this.report.palette[name][isDark ? "dark" : "light"])
      .map(([fill, text]) => {
        const [red, green, blue] = [1, 3, 5].map((place) => parseInt(fill.slice(place, place + 2), 16));
        return { fill, text, red, green, blue };
      });
  }

  resize(width, height) {
    this.ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(width * this.ratio);
    this.canvas.height = Math.round(height * this.ratio);
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
  }

  paint(scene) {
    const { context, theme } = this;
    const { layout, view } = scene;
    this.scene = scene;
    this.height = this.canvas.height / this.ratio;
    this.ticks = axisTicks(view, layout.plotWidth);
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.globalAlpha = 1;
    context.fillStyle = theme.paper;
    context.fillRect(0, 0, layout.width, this.height);
    const first = Math.max(0, Math.floor(scene.scroll / layout.rowHeight));
    const end = Math.min(this.model.numWorkers,
      Math.ceil((scene.scroll + this.height - AXIS_HEIGHT) / layout.rowHeight));
    this.isDense = this.meanWidth(first, end) < TOO_NARROW;
    context.save();
    context.beginPath();
    context.rect(layout.gutter, AXIS_HEIGHT, layout.plotWidth, this.height - AXIS_HEIGHT);
    context.clip();
    for (let worker = first; worker < end; worker++) this.paintRow(worker);
    this.paintPath();
    this.paintFocus(scene.hover, 1.5);
    this.paintFocus(scene.selected, 2.5);
    context.restore();
    for (let worker = first; worker < end; worker++) this.paintName(worker);
    this.paintAxis();
  }

  // ---- where things are ----------------------------------------------------------------------

  snap(x) {
    return Math.round(x * this.ratio) / this.ratio;
  }

  x(time) {
    const { layout, view } = this.scene;
    return layout.gutter + ((time - view.from) * layout.plotWidth) / (view.to - view.from);
  }

  rowTop(worker) {
    return AXIS_HEIGHT + worker * this.scene.layout.rowHeight - this.scene.scroll;
  }

  // Of all visible compute actions, in pixels.
  meanWidth(first, end) {
    const { layout, view } = this.scene;
    let busy = 0;
    let count = 0;
    for (const { timeline } of layout.lanes) {
      for (let worker = first; worker < end; worker++) {
        const { compute } = timeline.workers[worker];
        const [low, high] = visibleRange(timeline, compute, view.from, view.to);
        for (let k = low; k < high; k++) {
          busy += timeline.end[compute.order[k]] - timeline.start[compute.order[k]];
        }
        count += high - low;
      }
    }
    return count ? (busy * layout.plotWidth) / (view.to - view.from) / count : Infinity;
  }

  // The rectangle of one action, null if its lane is not shown.
  barOf(timeline, index) {
    const lane = this.scene.layout.lanes.find((shown) => shown.timeline === timeline);
    if (!lane) return null;
    const { schedule } = timeline;
    const top = this.rowTop(schedule.workerOf[index]) + lane.top;
    const left = this.snap(this.x(timeline.start[index]));
    const width = Math.max(this.snap(this.x(timeline.end[index])) - left, 1);
    return this.model.kinds[schedule.kind[index]].computes
      ? { left, width, ...placeIn(timeline.half[index], top, lane.height) }
      : { left, width, top: top + lane.height, height: Math.max(lane.strip, 1) };
  }

  // ---- rows ----------------------------------------------------------------------------------

  paintRow(worker) {
    const { context, theme } = this;
    const { layout, view } = this.scene;
    const top = this.rowTop(worker);
    context.fillStyle = theme.idle;
    for (const lane of layout.lanes) {
      context.fillRect(layout.gutter, top + lane.top, layout.plotWidth, lane.height);
    }
    context.fillStyle = theme.line;
    for (const tick of this.ticks.at) {
      context.fillRect(this.snap(this.x(tick)), top, 1 / this.ratio, layout.rowHeight);
    }
    if (layout.row.margin >= 8) context.fillRect(layout.gutter, top, layout.plotWidth, 1 / this.ratio);
    for (const lane of layout.lanes) {
      const { timeline } = lane;
      const { compute, beside } = timeline.workers[worker];
      const at = { top: top + lane.top, height: lane.height };
      const range = visibleRange(timeline, compute, view.from, view.to);
      if (!this.isDense) this.paintBars(timeline, compute, range, at);
      else if (lane.height < 8) this.paintBlend(timeline, compute, range, at);
      else this.paintShares(timeline, compute, range, at);
      if (lane.strip) this.paintBeside(timeline, beside, { top: at.top + lane.height + 1, height: lane.strip - 1 });
    }
    if (layout.memory) this.paintMemory(worker, top + layout.memory.top);
  }

  paintBars(timeline, { order }, [low, high], { top, height }) {
    const { context } = this;
    const { path, layout } = this.scene;
    const { font } = layout.row;
    context.font = fontOf(font);
    context.textAlign = "center";
    context.textBaseline = "middle";
    for (let k = low; k < high; k++) {
      const index = order[k];
      const left = this.snap(this.x(timeline.start[index]));
      const right = this.snap(this.x(timeline.end[index]));
      const width = Math.max(right - left, 1 / this.ratio);
      const ink = this.inks[timeline.schedule.ink[index]];
      context.globalAlpha = path && !(path.timeline === timeline && path.members.has(index)) ? FADED : 1;
      context.fillStyle = ink.fill;
      const place = placeIn(timeline.half[index], top, height);
      // A hair of paper keeps neighbours apart.
      context.fillRect(left, place.top, width > 3 ? width - 1 / this.ratio : width, place.height);
      if (font && width > font) {
        const middle = [Math.max(left, layout.gutter), Math.min(right, layout.gutter + layout.plotWidth)];
        context.fillStyle = ink.text;
        this.paintLabel(timeline.schedule, index, middle, place.top + place.height / 2 + 0.5);
      }
    }
    context.globalAlpha = 1;
  }

  paintLabel(schedule, index, [left, right], y) {
    const room = (right - left - 3) / (this.scene.layout.row.font * 0.62);
    const full = schedule.text(index);
    const microbatch = schedule.microbatch[index];
    const texts = [full, full.replace(/^\d+/, ""), microbatch === NOTHING ? "" : String(microbatch)];
    // Where a worker holds one stage, its name in the margin already tells it.
    if (schedule.stages[schedule.workerOf[index]].length === 1) texts.shift();
    const text = texts.find((candidate) => candidate.length <= room);
    if (text) this.context.fillText(text, (left + right) / 2, y);
  }

  // For low lanes with many actions per pixel: each pixel in the mean colour of what it covers, as
  // far from the paper as the worker is busy.
  paintBlend(timeline, { order }, [low, high], { top, height }) {
    const { context, scratch } = this;
    const { layout, path } = this.scene;
    const numColumns = Math.ceil(layout.plotWidth);
    const sums = new Float32Array(4 * numColumns);
    this.eachColumn(timeline, order, [low, high], numColumns, (ink, c, share) => {
      const { red, green, blue } = this.inks[ink];
      sums[4 * c] += share * red;
      sums[4 * c + 1] += share * green;
      sums[4 * c + 2] += share * blue;
      sums[4 * c + 3] += share;
    });
    const image = new ImageData(numColumns, 1);
    for (let c = 0; c < numColumns; c++) {
      const share = sums[4 * c + 3];
      for (let part = 0; part < 3; part++) image.data[4 * c + part] = sums[4 * c + part] / share;
      image.data[4 * c + 3] = 255 * Math.min(1, share);
    }
    if (scratch.width !== numColumns) scratch.width = numColumns;
    scratch.getContext("2d").putImageData(image, 0, 0);
    context.globalAlpha = path ? FADED : 1;
    context.imageSmoothingEnabled = false;
    context.drawImage(scratch, layout.gutter, top, numColumns, height);
    context.globalAlpha = 1;
  }

  // For high lanes with many actions per pixel: columns of some pixels, stacked by kind; what is
  // left empty is idle time.
  paintShares(timeline, { order }, [low, high], { top, height }) {
    const { context } = this;
    const { layout, path } = this.scene;
    const wanted = Math.round((3 * layout.plotWidth) / Math.max(1, high - low));
    const columnWidth = Math.min(10, Math.max(2, wanted));
    const numColumns = Math.ceil(layout.plotWidth / columnWidth);
    const shares = [];
    this.eachColumn(timeline, order, [low, high], layout.plotWidth / columnWidth, (ink, c, share) => {
      (shares[ink] ??= new Float64Array(numColumns))[c] += share;
    });
    const stacked = new Float64Array(numColumns);
    context.globalAlpha = path ? FADED : 1;
    shares.forEach((column, ink) => {
      context.fillStyle = this.inks[ink].fill;
      for (let c = 0; c < numColumns; c++) {
        const lower = this.snap(top + height * (1 - stacked[c]));
        stacked[c] += column[c];
        const upper = this.snap(top + height * (1 - stacked[c]));
        if (upper < lower) context.fillRect(layout.gutter + c * columnWidth, upper, columnWidth, lower - upper);
      }
    });
    context.globalAlpha = 1;
  }

  // Deals actions out to columns of equal time: visit(ink, column, share of the column).
  eachColumn(timeline, order, [low, high], numColumns, visit) {
    const { view } = this.scene;
    const columnTime = (view.to - view.from) / numColumns;
    for (let k = low; k < high; k++) {
      const index = order[k];
      const start = (timeline.start[index] - view.from) / columnTime;
      const end = (timeline.end[index] - view.from) / columnTime;
      const ink = timeline.schedule.ink[index];
      for (let c = Math.max(0, Math.floor(start)); c < Math.min(numColumns, end); c++) {
        visit(ink, c, Math.min(end, c + 1) - Math.max(start, c));
      }
    }
  }

  // Messages and collectives: sends in the upper half of the strip, receives in the lower.
  paintBeside(timeline, lane, { top, height }) {
    const { context } = this;
    const { schedule } = timeline;
    const { view } = this.scene;
    const [low, high] = visibleRange(timeline, lane, view.from, view.to);
    const drawnTo = [-1, -1];
    for (let k = low; k < high; k++) {
      const index = lane.order[k];
      const { half } = this.model.kinds[schedule.kind[index]];
      const left = this.snap(this.x(timeline.start[index]));
      const right = Math.max(this.snap(this.x(timeline.end[index])), left + 1 / this.ratio);
      const row = Math.max(half, 0);
      if (right <= drawnTo[row]) continue; // hidden by what is already there
      drawnTo[row] = right;
      context.fillStyle = this.inks[schedule.ink[index]].fill;
      if (half === NOTHING) context.fillRect(left, top, right - left, height);
      else context.fillRect(left, top + (half * height) / 2, right - left, height / 2 - 0.25);
    }
  }

  // ---- memory --------------------------------------------------------------------------------

  paintMemory(worker, top) {
    const { context, theme } = this;
    const { layout } = this.scene;
    const { memory } = this.report;
    const bottom = top + layout.memory.height;
    const y = (value) => bottom - (value / memory.top) * (layout.memory.height - 2);
    for (const { timeline } of layout.lanes) {
      if (!timeline.curves) continue;
      this.traceCurve(timeline.curves[worker], y);
      context.strokeStyle = timeline.place ? theme.accent : theme.muted;
      context.lineWidth = 1;
      context.stroke();
      if (timeline.place) continue;
      context.lineTo(layout.gutter + layout.plotWidth, bottom);
      context.lineTo(layout.gutter, bottom);
      context.fillStyle = theme.muted;
      context.globalAlpha = 0.18;
      context.fill();
      context.globalAlpha = 1;
      if (timeline.peaks.length) this.dashedLine(y(timeline.peaks[worker]), theme.muted, [2, 3]);
    }
    const cap = memory.caps[worker];
    if (cap && cap <= memory.top) this.dashedLine(y(cap), theme.warn, [6, 3]);
  }

  // Where many steps share a pixel, the highest one is drawn: peaks never disappear.
  traceCurve({ times, values }, y) {
    const { context } = this;
    const { view, layout } = this.scene;
    let k = Math.max(0, firstWhere(times.length, (i) => times[i] > view.from) - 1);
    let pixel = layout.gutter;
    let highest = values[k];
    let latest = values[k];
    context.beginPath();
    context.moveTo(pixel, y(latest));
    for (k += 1; k < times.length && times[k] <= view.to; k++) {
      const at = this.snap(this.x(times[k]));
      if (at > pixel) {
        context.lineTo(pixel, y(highest));
        context.lineTo(pixel, y(latest));
        context.lineTo(at, y(latest));
        pixel = at;
        highest = values[k];
      }
      highest = Math.max(highest, values[k]);
      latest = values[k];
    }
    context.lineTo(pixel, y(highest));
    context.lineTo(pixel, y(latest));
    context.lineTo(layout.gutter + layout.plotWidth, y(latest));
  }

  dashedLine(y, colour, dashes) {
    const { context } = this;
    const { layout } = this.scene;
    const middle = this.snap(y) + 0.5 / this.ratio;
    context.beginPath();
    context.setLineDash(dashes);
    context.strokeStyle = colour;
    context.lineWidth = 1;
    context.moveTo(layout.gutter, middle);
    context.lineTo(layout.gutter + layout.plotWidth, middle);
    context.stroke();
    context.setLineDash([]);
  }

  // ---- what is pointed out -------------------------------------------------------------------

  // The chain of waits: lines between workers, and bars that would be too narrow to be seen.
  paintPath() {
    const { context, theme } = this;
    const { path, view } = this.scene;
    if (!path) return;
    const { timeline } = path;
    const computing = path.list.filter((index) => this.model.kinds[timeline.schedule.kind[index]].computes);
    context.strokeStyle = theme.ink;
    context.lineWidth = 1.5;
    let last = { top: -1, right: -1 };
    computing.forEach((index, place) => {
      if (timeline.end[index] < view.from || timeline.start[index] > view.to) return;
      if (place > 0) this.paintArrow(timeline, computing[place - 1], index);
      const bar = this.barOf(timeline, index);
      if (!bar || !(this.isDense || bar.width < 3)) return;
      // Of thousands on one pixel, one is enough.
      if (bar.top === last.top && bar.left + bar.width <= last.right) return;
      last = { top: bar.top, right: bar.left + bar.width };
      context.fillStyle = this.inks[timeline.schedule.ink[index]].fill;
      context.fillRect(bar.left, bar.top, bar.width, bar.height);
    });
  }

  paintFocus(focus, width) {
    if (!focus) return;
    const { context } = this;
    const { timeline, index } = focus;
    context.strokeStyle = this.theme.ink;
    context.lineWidth = width;
    const cause = producerOf(this.model, timeline, timeline.waited[index]);
    if (cause !== NOTHING && !this.scene.path) this.paintArrow(timeline, cause, index);
    const bar = this.barOf(timeline, index);
    if (bar) context.strokeRect(bar.left - 0.5, bar.top - 0.5, bar.width + 1, bar.height + 1);
  }

  // From the end of one action to the start of another on a different row.
  paintArrow(timeline, from, to) {
    const { context } = this;
    const one = this.barOf(timeline, from);
    const other = this.barOf(timeline, to);
    if (!one || !other || one.top === other.top) return;
    const isDown = other.top > one.top;
    const startX = one.left + one.width;
    const startY = isDown ? one.top + one.height : one.top;
    const endY = isDown ? other.top : other.top + other.height;
    const bend = Math.max(3, Math.abs(other.left - startX) / 2);
    context.beginPath();
    context.moveTo(startX, startY);
    context.bezierCurveTo(startX + bend, startY, other.left - bend, endY, other.left, endY);
    context.stroke();
    context.beginPath();
    context.arc(other.left, endY, 2.5, 0, 7);
    context.fillStyle = this.theme.ink;
    context.fill();
  }

  // ---- margins -------------------------------------------------------------------------------

  paintName(worker) {
    const { context, theme } = this;
    const { layout } = this.scene;
    const { rowHeight, row, gutter } = layout;
    const isTall = rowHeight >= 40;
    const size = Math.min(12, Math.max(10, rowHeight - 2));
    // Where rows are lower than a line of text, only some of them are named.
    const isNamed = worker % Math.max(1, Math.ceil(11 / rowHeight)) === 0;
    const top = this.rowTop(worker);
    const y = isTall ? top + layout.lanes[0].top + 2 : top + (rowHeight + row.margin - size) / 2;
    context.save();
    context.beginPath();
    context.rect(0, AXIS_HEIGHT, gutter - 6, this.height);
    context.clip();
    context.textAlign = "left";
    context.textBaseline = "top";
    context.fillStyle = theme.ink;
    context.font = fontOf(size, isTall ? "600" : "");
    if (isNamed) context.fillText(`worker ${worker}`, 10, y);
    if (isTall) {
      const numLines = Math.floor((rowHeight - layout.lanes[0].top - 16) / 14);
      context.font = fontOf(11);
      context.fillStyle = theme.muted;
      this.report.workers[worker].slice(0, numLines).forEach((line, place) =>
        context.fillText(this.shorten(line, gutter - 18), 10, y + 16 + 14 * place));
    }
    context.restore();
  }

  shorten(text, room) {
    let kept = text;
    while (kept.length > 1 && this.context.measureText(kept).width > room) {
      kept = `${kept.replace(/\u2026$/, "").slice(0, -1)}\u2026`;
    }
    return kept;
  }

  paintAxis() {
    const { context, theme, ticks } = this;
    const { layout } = this.scene;
    context.fillStyle = theme.paper;
    context.fillRect(0, 0, layout.width, AXIS_HEIGHT);
    context.fillStyle = theme.line;
    context.fillRect(0, AXIS_HEIGHT - 1, layout.width, 1);
    context.font = fontOf(11);
    context.fillStyle = theme.muted;
    context.textBaseline = "middle";
    context.textAlign = "center";
    for (const tick of ticks.at) {
      const text = ticks.format(tick);
      const half = context.measureText(text).width / 2;
      const middle = Math.min(Math.max(this.x(tick), layout.gutter + half), layout.width - half - 4);
      context.fillText(text, middle, AXIS_HEIGHT / 2);
    }
    context.textAlign = "left";
    context.fillText(`time in ${ticks.unit}`, 10, AXIS_HEIGHT / 2);
  }
}

// Where an action lies in a lane of which it may have one half.
function placeIn(half, top, height) {
  return half === NOTHING ? { top, height } : { top: top + (half * height) / 2, height: height / 2 };
}
