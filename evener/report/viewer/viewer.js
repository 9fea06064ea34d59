// Ties the page to the painter: what is visible, what is under the pointer, what the keys do.

const KEYS = `Arrows pan and scroll, + and - zoom, 0 shows all, Home and End go to the ends,
n and p select the next and previous action, c shows the critical path, / searches, Escape clears.`;

async function startViewer(report, base64) {
  const model = await readModel(report, base64);
  const element = (id) => document.getElementById(id);
  const canvas = element("lanes");
  const scroller = element("scroller");
  const painter = makePainter(canvas, model, report);
  const shown = { measured: true, messages: true, memory: true };
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const scene = { view: { from: 0, to: model.step }, scroll: 0, size: null, layout: null,
    hover: null, selected: null, path: null };
  let printing = false;

  // ---- drawing, at most once per frame -------------------------------------------------------

  let frame = 0;
  function redraw() {
    if (!frame) frame = requestAnimationFrame(drawNow);
  }

  function drawNow() {
    frame = 0;
    scene.scroll = scroller.scrollTop;
    painter.paint(scene);
    overview.paint(scene.view);
  }

  function viewportHeight() {
    return Math.max(220, Math.round(window.innerHeight * 0.8));
  }

  // The largest rows with which all workers are seen at once.
  function bestSize(width) {
    for (let size = ROW_SIZES.length - 2; size > 0; size--) {
      if (makeLayout(model, shown, size, width).total + AXIS_HEIGHT <= viewportHeight()) return size;
    }
    return 0;
  }

  function relayout() {
    const width = scroller.clientWidth;
    const size = scene.size ?? bestSize(width);
    scene.layout = makeLayout(model, shown, size, width);
    const height = Math.min(scene.layout.total + AXIS_HEIGHT + 4, viewportHeight());
    scroller.style.height = `${height}px`;
    element("spacer").style.height = `${scene.layout.total + AXIS_HEIGHT + 4 - height}px`;
    painter.readTheme(dark.matches && !printing);
    painter.resize(width, height);
    overview.resize(scene.layout);
    element("shorter").disabled = size === 0;
    element("taller").disabled = size === ROW_SIZES.length - 1;
    drawNow();
  }

  function changeSize(by) {
    const size = (scene.size ?? bestSize(scroller.clientWidth)) + by;
    const middle = (scroller.scrollTop + scroller.clientHeight / 2) / scene.layout.total;
    scene.size = Math.min(ROW_SIZES.length - 1, Math.max(0, size));
    relayout();
    scroller.scrollTop = middle * scene.layout.total - scroller.clientHeight / 2;
    redraw();
  }

  // ---- the visible time ----------------------------------------------------------------------

  function setView(from, to) {
    // Not closer than 20 ns, and never beyond the step.
    const length = Math.min(model.step, Math.max(to - from, Math.min(20, model.step)));
    const start = Math.min(Math.max(0, from + (to - from - length) / 2), model.step - length);
    scene.view = { from: start, to: start + length };
    element("zoom-out").disabled = element("fit").disabled = length >= model.step;
    redraw();
  }

  const timeAt = (x) => scene.view.from
    + ((x - scene.layout.gutter) * (scene.view.to - scene.view.from)) / scene.layout.plotWidth;

  function zoom(factor, around = (scene.view.from + scene.view.to) / 2) {
    const { from, to } = scene.view;
    setView(around - (around - from) / factor, around + (to - around) / factor);
  }

  function pan(share) {
    const by = (scene.view.to - scene.view.from) * share;
    setView(scene.view.from + by, scene.view.to + by);
  }

  const fit = () => setView(0, model.step);

  function reveal(timeline, index) {
    const { from, to } = scene.view;
    const duration = timeline.end[index] - timeline.start[index];
    const middle = (timeline.start[index] + timeline.end[index]) / 2;
    // Wide enough to read its label, but no wider than needed to see its neighbours.
    const length = Math.min(to - from, Math.max(duration, 1) * (scene.layout.plotWidth / 48));
    if (length < to - from || middle < from || middle > to) setView(middle - length / 2, middle + length / 2);
    const top = timeline.schedule.workerOf[index] * scene.layout.rowHeight;
    const seen = scroller.clientHeight - AXIS_HEIGHT - scene.layout.rowHeight;
    if (top < scroller.scrollTop || top > scroller.scrollTop + seen) scroller.scrollTop = top - seen / 2;
    redraw();
  }

  // ---- what is under the pointer -------------------------------------------------------------

  function hit(x, y) {
    const { layout } = scene;
    if (x < layout.gutter || y < AXIS_HEIGHT) return null;
    const worker = Math.floor((y - AXIS_HEIGHT + scroller.scrollTop) / layout.rowHeight);
    if (worker < 0 || worker >= model.numWorkers) return null;
    const inside = y - AXIS_HEIGHT + scroller.scrollTop - worker * layout.rowHeight;
    for (const lane of layout.lanes) {
      if (inside < lane.top || inside >= lane.top + lane.height + lane.strip) continue;
      const lanes = lane.timeline.workers[worker];
      const onStrip = inside >= lane.top + lane.height;
      return nearest(lane.timeline, onStrip ? lanes.beside : lanes.compute, timeAt(x), onStrip
        && inside - lane.top - lane.height > lane.strip / 2 ? 1 : 0);
    }
    return null;
  }

  // Narrow actions can be hit from two pixels away; where several are hit, the nearest wins.
  function nearest(timeline, lane, time, preferred) {
    const reach = (2 * (scene.view.to - scene.view.from)) / scene.layout.plotWidth;
    const [low, high] = visibleRange(timeline, lane, time - reach, time + reach);
    let best = null;
    let bestDistance = Infinity;
    for (let k = low; k < high; k++) {
      const index = lane.order[k];
      const { half } = model.kinds[timeline.schedule.kind[index]];
      const miss = Math.max(timeline.start[index] - time, time - timeline.end[index], 0);
      const distance = miss + (half !== NOTHING && half !== preferred ? reach : 0);
      if (miss <= reach && distance < bestDistance) {
        best = index;
        bestDistance = distance;
      }
    }
    return best === null ? null : { timeline, index: best };
  }

  // ---- words ---------------------------------------------------------------------------------

  function describe(timeline, index) {
    const { schedule, start, end } = timeline;
    const kind = model.kinds[schedule.kind[index]].name;
    let what = `${report.palette[kind].words}, stage ${schedule.stage[index]}`;
    if (schedule.microbatch[index] !== NOTHING) what += `, microbatch ${schedule.microbatch[index]}`;
    if (schedule.slice && schedule.slice[index] !== NOTHING) what += `, slice ${schedule.slice[index]}`;
    const rows = [["worker", `${schedule.workerOf[index]}, ${timeline.source}`],
      ["start", exactTime(start[index])], ["end", exactTime(end[index])],
      ["duration", exactTime(end[index] - start[index])], ["waited for", describeWait(timeline, index)]];
    const other = model.timelines[1 - timeline.place];
    const partner = other ? partnerOf(timeline, index) : NOTHING;
    if (partner !== NOTHING) rows.push(describeDifference(timeline, index, other, partner));
    return { title: schedule.text(index), what, rows };
  }

  function describeWait(timeline, index) {
    const { schedule } = timeline;
    const cause = timeline.waited[index];
    if (cause === NOTHING) return "nothing";
    const named = (action) => schedule.text(action) + (schedule.workerOf[action] === schedule.workerOf[index]
      ? "" : ` on worker ${schedule.workerOf[action]}`);
    const producer = producerOf(model, timeline, cause);
    const after = producer === cause || producer === NOTHING ? "" : ` after ${named(producer)}`;
    return `${named(cause)}${after}, until ${exactTime(timeline.end[cause])}`;
  }

  // How the later timeline's action differs from the first one's, whichever was asked for.
  function describeDifference(timeline, index, other, partner) {
    const [one, two] = timeline.place === 0 ? [[timeline, index], [other, partner]] : [[other, partner], [timeline, index]];
    const length = ([t, i]) => t.end[i] - t.start[i];
    const later = two[0].start[two[1]] - one[0].start[one[1]];
    const longer = length(two) - length(one);
    const share = length(one) > 0 ? ` (${longer < 0 ? "" : "+"}${((100 * longer) / length(one)).toFixed(1)} %)` : "";
    return [two[0].source, `starts ${compared(later, "later", "earlier")}, `
      + `takes ${compared(longer, "longer", "less")}${longer === 0 ? "" : share} than ${one[0].source}`];
  }

  function fill(target, { title, what, rows }) {
    target.replaceChildren();
    const head = document.createElement("p");
    const name = document.createElement("strong");
    name.textContent = title;
    head.append(name, ` ${what}`);
    const list = document.createElement("dl");
    for (const [term, text] of rows) {
      const dt = document.createElement("dt");
      const dd = document.createElement("dd");
      dt.textContent = term;
      dd.textContent = text;
      const pair = document.createElement("div");
      pair.append(dt, dd);
      list.append(pair);
    }
    target.append(head, list);
  }

  function showTip(pointer) {
    const tip = element("tip");
    if (!scene.hover) {
      tip.hidden = true;
      return;
    }
    fill(tip, describe(scene.hover.timeline, scene.hover.index));
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    const left = pointer.clientX + 16 + width > window.innerWidth ? pointer.clientX - width - 12 : pointer.clientX + 16;
    const top = Math.min(pointer.clientY + 16, window.innerHeight - height - 8);
    tip.style.transform = `translate(${Math.max(4, left)}px, ${Math.max(4, top)}px)`;
  }

  function select(focus) {
    scene.selected = focus;
    scene.path = null;
    element("path").setAttribute("aria-pressed", "false");
    if (focus) fill(element("details"), describe(focus.timeline, focus.index));
    else element("details").replaceChildren();
    redraw();
  }

  function togglePath() {
    const wasShown = scene.path !== null;
    const focus = scene.selected;
    select(focus);
    if (wasShown) return;
    const timeline = focus ? focus.timeline : model.timelines[0];
    const list = pathTo(timeline, focus ? focus.index : lastToEnd(timeline));
    scene.path = { timeline, list, members: new Set(list) };
    element("path").setAttribute("aria-pressed", "true");
    fill(element("details"), describePath(timeline, list, focus));
    redraw();
  }

  function describePath(timeline, list, focus) {
    const spent = new Map();
    let last = 0;
    let waiting = 0;
    for (const index of list) {
      const start = Math.max(timeline.start[index], last);
      waiting += start - last;
      const kind = model.kinds[timeline.schedule.kind[index]].name;
      const words = report.palette[kind].words;
      spent.set(words, (spent.get(words) ?? 0) + Math.max(0, timeline.end[index] - start));
      last = Math.max(last, timeline.end[index]);
    }
    const rows = [...spent].filter(([, time]) => time > 0).sort((a, b) => b[1] - a[1])
      .map(([words, time]) => [words, `${formatQuantity(time)} (${((100 * time) / last).toFixed(1)} %)`]);
    if (waiting > 0) rows.push(["latency and idle", `${formatQuantity(waiting)} (${((100 * waiting) / last).toFixed(1)} %)`]);
    const end = focus ? `to ${timeline.schedule.text(focus.index)}` : "of the step";
    return { title: "Critical path", what: `${end}, ${timeline.source}: ${list.length} actions, ${formatQuantity(last)}`, rows };
  }

  // ---- search and keyboard -------------------------------------------------------------------

  let found = [];
  let foundAt = -1;
  function search() {
    const timeline = model.timelines[0];
    found = findActions(timeline, element("search").value);
    foundAt = -1;
    const asked = element("search").value.trim() !== "";
    element("found").textContent = asked ? `${found.length} found` : "";
    if (found.length) stepFound(1);
    else select(null);
  }

  function stepFound(by) {
    if (!found.length) return;
    foundAt = (foundAt + by + found.length) % found.length;
    const focus = { timeline: model.timelines[0], index: found[foundAt] };
    select(focus);
    reveal(focus.timeline, focus.index);
    element("found").textContent = `${foundAt + 1} of ${found.length}`;
  }

  // The neighbour of the selected action in its lane; without one, the first that is visible.
  function selectNeighbour(by) {
    const focus = scene.selected ?? { timeline: model.timelines[0], index: NOTHING };
    const { timeline } = focus;
    const worker = focus.index === NOTHING
      ? Math.floor(scroller.scrollTop / scene.layout.rowHeight) : timeline.schedule.workerOf[focus.index];
    const lanes = timeline.workers[worker];
    const lane = lanes.beside.order.includes(focus.index) ? lanes.beside : lanes.compute;
    const at = focus.index === NOTHING
      ? visibleRange(timeline, lane, scene.view.from, scene.view.to)[0] : lane.order.indexOf(focus.index) + by;
    if (at < 0 || at >= lane.order.length) return;
    select({ timeline, index: lane.order[at] });
    reveal(timeline, lane.order[at]);
  }

  const commands = {
    ArrowLeft: () => pan(-0.15), ArrowRight: () => pan(0.15),
    ArrowUp: () => scroller.scrollBy(0, -scene.layout.rowHeight),
    ArrowDown: () => scroller.scrollBy(0, scene.layout.rowHeight),
    "+": () => zoom(1.6), "=": () => zoom(1.6), "-": () => zoom(1 / 1.6), 0: fit,
    Home: () => setView(0, scene.view.to - scene.view.from),
    End: () => setView(model.step - (scene.view.to - scene.view.from), model.step),
    n: () => selectNeighbour(1), p: () => selectNeighbour(-1), c: togglePath,
    "/": () => element("search").focus(), Escape: () => select(null),
    "]": () => changeSize(1), "[": () => changeSize(-1),
  };

  function onKey(event) {
    const command = commands[event.key];
    if (!command || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    command();
  }

  // ---- pointer -------------------------------------------------------------------------------

  function onWheel(event) {
    const x = event.clientX - scroller.getBoundingClientRect().left;
    if (x < scene.layout.gutter) return; // over the names: scroll the workers
    const sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
    const isFitted = scene.view.to - scene.view.from >= model.step;
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey) {
      if (!isFitted) event.preventDefault();
      pan(sideways / scene.layout.plotWidth);
      return;
    }
    if (isFitted && event.deltaY > 0) return; // nothing to zoom out of: scroll the page
    event.preventDefault();
    zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0016)), timeAt(x));
    showTip(event);
  }

  function watchPointer() {
    let drag = null;
    const place = (event) => {
      const box = canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      drag = { x: event.clientX, y: event.clientY, view: scene.view, scroll: scroller.scrollTop, moved: false };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (drag) {
        const dx = event.clientX - drag.x;
        const dy = event.clientY - drag.y;
        drag.moved ||= Math.hypot(dx, dy) > 4;
        if (!drag.moved) return;
        const by = (-dx * (drag.view.to - drag.view.from)) / scene.layout.plotWidth;
        setView(drag.view.from + by, drag.view.to + by);
        scroller.scrollTop = drag.scroll - dy;
        scene.hover = null;
      } else {
        scene.hover = hit(...place(event));
        redraw();
      }
      canvas.classList.toggle("dragging", Boolean(drag?.moved));
      showTip(event);
    });
    canvas.addEventListener("pointerup", (event) => {
      if (drag && !drag.moved) select(hit(...place(event)));
      drag = null;
      canvas.classList.remove("dragging");
    });
    for (const name of ["pointerleave", "pointercancel"]) {
      canvas.addEventListener(name, (event) => {
        if (name === "pointercancel") drag = null;
        scene.hover = null;
        showTip(event);
        redraw();
      });
    }
  }

  function watchPage() {
    const onClick = { "zoom-in": () => zoom(1.6), "zoom-out": () => zoom(1 / 1.6), fit,
      taller: () => changeSize(1), shorter: () => changeSize(-1), path: togglePath };
    for (const [id, command] of Object.entries(onClick)) element(id).addEventListener("click", command);
    for (const name of Object.keys(shown)) {
      const box = element(`show-${name}`);
      box?.addEventListener("change", () => {
        shown[name] = box.checked;
        relayout();
      });
    }
    element("search").addEventListener("input", search);
    element("search").addEventListener("keydown", (event) => {
      if (event.key === "Enter") stepFound(event.shiftKey ? -1 : 1);
      if (event.key === "Escape") scroller.focus();
    });
    scroller.addEventListener("keydown", onKey);
    scroller.addEventListener("scroll", redraw);
    scroller.addEventListener("wheel", onWheel, { passive: false });
    new ResizeObserver(relayout).observe(scroller.parentElement);
    window.addEventListener("resize", relayout);
    dark.addEventListener("change", relayout);
    for (const [name, value] of [["beforeprint", true], ["afterprint", false]]) {
      window.addEventListener(name, () => {
        printing = value;
        document.documentElement.classList.toggle("printing", value);
        relayout();
      });
    }
  }

  const overview = makeOverview(element("overview"), model, setView);
  element("keys").textContent = KEYS;
  watchPointer();
  watchPage();
  relayout();
  fit();
  document.body.dataset.ready = "true";
  return { model, scene, drawNow, setView, select, reveal };
}

function exactTime(time) {
  const [unit, size] = unitOf(Math.max(Math.abs(time), 1));
  const text = (time / size).toFixed(Math.round(Math.log10(size)));
  return `${text.includes(".") ? text.replace(/\.?0+$/, "") : text} ${unit}`;
}

function compared(time, more, less) {
  if (time === 0) return `equally ${more === "later" ? "early" : "long"}`;
  return `${exactTime(Math.abs(time))} ${time > 0 ? more : less}`;
}
