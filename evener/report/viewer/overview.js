// The strip above the lanes: how many workers are busy over the whole step, and which part of it
// the lanes show.

const OVERVIEW_HEIGHT = 44;
const COLUMN_WIDTH = 2;

class Overview {
  constructor(canvas, model, setView) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.model = model;
    this.setView = setView;
    this.grabbed = null;
    canvas.addEventListener("pointerdown", (event) => this.grab(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    for (const name of ["pointerup", "pointercancel"]) {
      canvas.addEventListener(name, () => { this.grabbed = null; });
    }
  }

  resize(layout) {
    if (this.layout?.plotWidth !== layout.plotWidth) {
      const numColumns = Math.max(1, Math.floor(layout.plotWidth / COLUMN_WIDTH));
      this.shares = this.model.timelines.map((timeline) => this.busyShares(timeline, numColumns));
    }
    this.layout = layout;
    this.ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(layout.width * this.ratio);
    this.canvas.height = Math.round(OVERVIEW_HEIGHT * this.ratio);
    this.canvas.style.width = `${layout.width}px`;
    this.canvas.style.height = `${OVERVIEW_HEIGHT}px`;
  }

  // The busy time of all workers within each column, as a share of what was possible.
  busyShares(timeline, numColumns) {
    const busy = new Float64Array(numColumns);
    const columnTime = this.model.step / numColumns;
    for (const { compute } of timeline.workers) {
      for (const index of compute.order) {
        const start = timeline.start[index] / columnTime;
        const end = timeline.end[index] / columnTime;
        for (let c = Math.floor(start); c < Math.min(numColumns, end); c++) {
          busy[c] += (Math.min(end, c + 1) - Math.max(start, c)) / this.model.numWorkers;
        }
      }
    }
    return busy;
  }

  x(time) {
    return this.layout.gutter + (time * this.layout.plotWidth) / this.model.step;
  }

  timeAt(event) {
    const x = event.clientX - this.canvas.getBoundingClientRect().left;
    return ((x - this.layout.gutter) * this.model.step) / this.layout.plotWidth;
  }

  paint(view) {
    const { context, layout } = this;
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    this.view = view;
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.clearRect(0, 0, layout.width, OVERVIEW_HEIGHT);
    context.fillStyle = colour("--idle");
    context.fillRect(layout.gutter, 2, layout.plotWidth, OVERVIEW_HEIGHT - 4);
    this.shares.forEach((busy, place) => this.paintShares(busy, place, colour));
    context.fillStyle = colour("--muted");
    context.font = fontOf(11);
    context.textBaseline = "middle";
    context.fillText("workers busy", 10, OVERVIEW_HEIGHT / 2);
    if (view.to - view.from < this.model.step) this.paintWindow(view, colour);
  }

  paintShares(busy, place, colour) {
    const { context, layout } = this;
    const bottom = OVERVIEW_HEIGHT - 2;
    context.beginPath();
    busy.forEach((share, c) => {
      const y = bottom - Math.min(1, share) * (OVERVIEW_HEIGHT - 4);
      context.lineTo(layout.gutter + c * COLUMN_WIDTH, y);
      context.lineTo(layout.gutter + (c + 1) * COLUMN_WIDTH, y);
    });
    if (place > 0) {
      context.strokeStyle = colour("--accent");
      context.lineWidth = 1;
      context.stroke();
      return;
    }
    context.lineTo(layout.gutter + layout.plotWidth, bottom);
    context.lineTo(layout.gutter, bottom);
    context.fillStyle = colour("--busy");
    context.fill();
  }

  paintWindow(view, colour) {
    const { context, layout } = this;
    const [left, right, end] = [this.x(view.from), this.x(view.to), layout.gutter + layout.plotWidth];
    context.fillStyle = colour("--paper");
    context.globalAlpha = 0.7;
    context.fillRect(layout.gutter, 0, left - layout.gutter, OVERVIEW_HEIGHT);
    context.fillRect(right, 0, end - right, OVERVIEW_HEIGHT);
    context.globalAlpha = 1;
    context.strokeStyle = colour("--ink");
    context.lineWidth = 1.5;
    context.strokeRect(left, 1, Math.max(2, right - left), OVERVIEW_HEIGHT - 2);
  }

  // With the whole step in view a new window is dragged out; else the window is moved, after it
  // has come to the pointer.
  grab(event) {
    const { from, to } = this.view;
    const time = this.timeAt(event);
    const isInside = time >= from && time <= to;
    this.grabbed = to - from >= this.model.step
      ? { anchor: time } : { offset: isInside ? time - from : (to - from) / 2 };
    this.canvas.setPointerCapture(event.pointerId);
    this.move(event);
  }

  move(event) {
    if (!this.grabbed) return;
    const { anchor, offset } = this.grabbed;
    const time = this.timeAt(event);
    if (offset !== undefined) {
      this.setView(time - offset, time - offset + this.view.to - this.view.from);
    } else if (Math.abs(this.x(time) - this.x(anchor)) > 4) {
      this.setView(Math.max(0, Math.min(time, anchor)), Math.min(this.model.step, Math.max(time, anchor)));
    }
  }
}
