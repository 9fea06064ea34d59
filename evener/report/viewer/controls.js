// Pointer, wheel, keys and buttons.

const KEYS = `Arrows pan and scroll, + and - zoom, 0 shows all, Home and End go to the ends,
n and p select the next and previous action, c shows the critical path, / searches, Escape clears.`;

async function startViewer(report, block) {
  const viewer = new Viewer(report, await readModel(report, block));
  element("keys").textContent = KEYS;
  watchPointer(viewer);
  watchKeys(viewer);
  watchButtons(viewer);
  watchPage(viewer);
  viewer.relayout();
  viewer.fit();
  document.body.dataset.ready = "true";
  return viewer;
}

function placeOn(canvas, event) {
  const box = canvas.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
}

function watchPointer(viewer) {
  const { canvas, scroller, scene } = viewer;
  let drag = null;
  const hover = (focus, event) => {
    scene.hover = focus;
    showTip(viewer, event);
    viewer.redraw();
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    drag = { x: event.clientX, y: event.clientY, view: scene.view, scroll: scroller.scrollTop, isMoved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (drag) {
      dragTo(viewer, drag, event);
      if (drag.isMoved) hover(null, event);
    } else {
      hover(viewer.hit(...placeOn(canvas, event)), event);
    }
    canvas.classList.toggle("dragging", Boolean(drag?.isMoved));
  });
  canvas.addEventListener("pointerup", (event) => {
    if (drag && !drag.isMoved) viewer.select(viewer.hit(...placeOn(canvas, event)));
    drag = null;
    canvas.classList.remove("dragging");
  });
  canvas.addEventListener("pointercancel", () => { drag = null; });
  canvas.addEventListener("pointerleave", (event) => hover(null, event));
  scroller.addEventListener("wheel", (event) => turnWheel(viewer, event), { passive: false });
  scroller.addEventListener("scroll", () => viewer.redraw());
}

function dragTo(viewer, drag, event) {
  const dx = event.clientX - drag.x;
  const dy = event.clientY - drag.y;
  drag.isMoved ||= Math.hypot(dx, dy) > 4;
  if (!drag.isMoved) return;
  const { from, to } = drag.view;
  const by = (-dx * (to - from)) / viewer.scene.layout.plotWidth;
  viewer.setView(from + by, to + by);
  viewer.scroller.scrollTop = drag.scroll - dy;
}

// Over the names the wheel scrolls the workers; over the lanes it zooms, and with shift it pans.
function turnWheel(viewer, event) {
  const [x] = placeOn(viewer.scroller, event);
  if (x < viewer.scene.layout.gutter) return;
  const isSideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
  // Nothing to pan, or to zoom out of: let the page scroll.
  if (viewer.isFitted && (isSideways || event.deltaY > 0)) return;
  event.preventDefault();
  if (isSideways) viewer.pan((event.deltaX || event.deltaY) / viewer.scene.layout.plotWidth);
  else viewer.zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0016)), viewer.timeAt(x));
}

function showTip(viewer, event) {
  const tip = element("tip");
  const { hover } = viewer.scene;
  tip.hidden = !hover;
  if (!hover) return;
  writeWords(tip, viewer.describe(hover));
  const { width, height } = tip.getBoundingClientRect();
  const isRoomRight = event.clientX + 16 + width <= window.innerWidth;
  const left = isRoomRight ? event.clientX + 16 : event.clientX - width - 12;
  const top = Math.min(event.clientY + 16, window.innerHeight - height - 8);
  tip.style.transform = `translate(${Math.max(4, left)}px, ${Math.max(4, top)}px)`;
}

function watchKeys(viewer) {
  const { scroller, scene, model } = viewer;
  const length = () => scene.view.to - scene.view.from;
  const commands = {
    ArrowLeft: () => viewer.pan(-0.15),
    ArrowRight: () => viewer.pan(0.15),
    ArrowUp: () => scroller.scrollBy(0, -scene.layout.rowHeight),
    ArrowDown: () => scroller.scrollBy(0, scene.layout.rowHeight),
    "+": () => viewer.zoom(1.6),
    "=": () => viewer.zoom(1.6),
    "-": () => viewer.zoom(1 / 1.6),
    0: () => viewer.fit(),
    Home: () => viewer.setView(0, length()),
    End: () => viewer.setView(model.step - length(), model.step),
    n: () => viewer.selectNeighbour(1),
    p: () => viewer.selectNeighbour(-1),
    c: () => viewer.togglePath(),
    "/": () => element("search").focus(),
    Escape: () => viewer.select(null),
    "]": () => viewer.changeSize(1),
    "[": () => viewer.changeSize(-1),
  };
  scroller.addEventListener("keydown", (event) => {
    const command = commands[event.key];
    if (!command || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    command();
  });
}

function watchButtons(viewer) {
  const commands = {
    "zoom-in": () => viewer.zoom(1.6),
    "zoom-out": () => viewer.zoom(1 / 1.6),
    fit: () => viewer.fit(),
    taller: () => viewer.changeSize(1),
    shorter: () => viewer.changeSize(-1),
    path: () => viewer.togglePath(),
  };
  for (const [id, command] of Object.entries(commands)) element(id).addEventListener("click", command);
  for (const name of Object.keys(viewer.shown)) {
    // A report without measurement or memory has no such box.
    element(`show-${name}`)?.addEventListener("change", (event) => {
      viewer.shown[name] = event.target.checked;
      viewer.relayout();
    });
  }
  const search = element("search");
  search.addEventListener("input", () => viewer.search(search.value));
  search.addEventListener("keydown", (event) => {
    if (event.key === "Enter") viewer.stepFound(event.shiftKey ? -1 : 1);
    if (event.key === "Escape") viewer.scroller.focus();
  });
}

function watchPage(viewer) {
  const relayout = () => viewer.relayout();
  new ResizeObserver(relayout).observe(viewer.scroller.parentElement);
  window.addEventListener("resize", relayout);
  viewer.dark.addEventListener("change", relayout);
  for (const [name, isPrinting] of [["beforeprint", true], ["afterprint", false]]) {
    window.addEventListener(name, () => {
      viewer.isPrinting = isPrinting;
      document.documentElement.classList.toggle("printing", isPrinting);
      viewer.relayout();
    });
  }
}
