// The strip above the lanes: how many workers are busy over the whole step, and which part of it
// the lanes show.

function makeOverview(canvas, model, setView) {
  const context = canvas.getContext("2d");
  let shares = [];
  let layout = null;
  let ratio = 1;
  let current = { from: 0, to: model.step };
  const height = 44;

  // Exact: the busy time of all workers within each column, as a share of what was possible.
  function busyShares(timeline, numColumns) {
    const busy = new Float64Array(numColumns);
    const columnTime = model.step / numColumns;
    for (const { compute } of timeline.workers) {
      for (const index of compute.order) {
        const start = timeline.start[index] / columnTime;
        const end = timeline.end[index] / columnTime;
        for (let c = Math.floor(start); c < Math.min(numColumns, end); c++) {
          busy[c] += (Math.min(end, c + 1) - Math.max(start, c)) / model.numWorkers;
        }
      }
    }
    return busy;
  }

  function resize(newLayout) {
    if (layout?.plotWidth !== newLayout.plotWidth) {
      shares = model.timelines.map((timeline) =>
        busyShares(timeline, Math.max(1, Math.floor(newLayout.plotWidth / 2))));
    }
    layout = newLayout;
    ratio = window.devicePixelRatio || 1;
    canvas.width = Math.round(layout.width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = `${layout.width}px`;
    canvas.style.height = `${height}px`;
  }

  const x = (time) => layout.gutter + (time * layout.plotWidth) / model.step;
  const timeAt = (position) => ((position - layout.gutter) * model.step) / layout.plotWidth;

  function paint(view) {
    current = view;
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, layout.width, height);
    context.fillStyle = colour("--idle");
    context.fillRect(layout.gutter, 2, layout.plotWidth, height - 4);
    shares.forEach((busy, place) => {
      const y = (share) => height - 2 - Math.min(1, share) * (height - 4);
      context.beginPath();
      busy.forEach((share, c) => {
        context.lineTo(layout.gutter + c * 2, y(share));
        context.lineTo(layout.gutter + c * 2 + 2, y(share));
      });
      if (place === 0) {
        context.lineTo(layout.gutter + layout.plotWidth, height - 2);
        context.lineTo(layout.gutter, height - 2);
        context.fillStyle = colour("--busy");
        context.fill();
      } else {
        context.strokeStyle = colour("--accent");
        context.lineWidth = 1;
        context.stroke();
      }
    });
    context.fillStyle = colour("--muted");
    context.font = '11px system-ui, -apple-system, "Segoe UI", sans-serif';
    context.textBaseline = "middle";
    context.fillText("workers busy", 10, height / 2);
    if (view.to - view.from < model.step) {
      context.fillStyle = colour("--paper");
      context.globalAlpha = 0.7;
      context.fillRect(layout.gutter, 0, x(view.from) - layout.gutter, height);
      context.fillRect(x(view.to), 0, layout.gutter + layout.plotWidth - x(view.to), height);
      context.globalAlpha = 1;
      context.strokeStyle = colour("--ink");
      context.lineWidth = 1.5;
      context.strokeRect(x(view.from), 1, Math.max(2, x(view.to) - x(view.from)), height - 2);
    }
  }

  let grabbed = null;
  canvas.addEventListener("pointerdown", (event) => {
    const time = timeAt(event.clientX - canvas.getBoundingClientRect().left);
    const length = current.to - current.from;
    const isInside = time >= current.from && time <= current.to && length < model.step;
    // Outside the window: bring it here. Over the whole step: drag out a new window.
    grabbed = length >= model.step ? { anchor: time } : { offset: isInside ? time - current.from : length / 2 };
    canvas.setPointerCapture(event.pointerId);
    move(event);
  });
  function move(event) {
    if (!grabbed) return;
    const time = timeAt(event.clientX - canvas.getBoundingClientRect().left);
    const length = current.to - current.from;
    if (grabbed.anchor === undefined) setView(time - grabbed.offset, time - grabbed.offset + length);
    else if (Math.abs(x(time) - x(grabbed.anchor)) > 4) {
      setView(Math.max(0, Math.min(time, grabbed.anchor)), Math.min(model.step, Math.max(time, grabbed.anchor)));
    }
  }
  canvas.addEventListener("pointermove", move);
  for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => { grabbed = null; });

  return { paint, resize };
}
