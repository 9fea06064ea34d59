// Draws lanes. All lengths are CSS pixels; times are nanoseconds since the step began.

const AXIS_HEIGHT = 26;
// From far to near: what a worker's row is made of at each row size.
const ROW_SIZES = [
  { lane: 5, strip: 0, memory: 0, gap: 0, margin: 2, font: 0 },
  { lane: 9, strip: 0, memory: 0, gap: 1, margin: 4, font: 0 },
  { lane: 12, strip: 3, memory: 10, gap: 1, margin: 4, font: 9 },
  { lane: 16, strip: 4, memory: 20, gap: 2, margin: 8, font: 10 },
  { lane: 22, strip: 6, memory: 30, gap: 3, margin: 14, font: 11 },
  { lane: 34, strip: 8, memory: 56, gap: 4, margin: 18, font: 13 },
];

function makeLayout(model, shown, size, width) {
  const row = ROW_SIZES[size];
  const lanes = [];
  let height = row.margin;
  for (const timeline of model.timelines) {
    if (timeline.place > 0 && !shown.measured) continue;
    const strip = shown.messages ? row.strip : 0;
    lanes.push({ timeline, top: height, height: row.lane, strip });
    height += row.lane + strip + row.gap;
  }
  const hasMemory = shown.memory && row.memory > 0 && lanes.some((lane) => lane.timeline.curves);
  const memory = hasMemory ? { top: height + 1, height: row.memory } : null;
  if (memory) height += row.memory + 2;
  const gutter = width < 900 ? 112 : 148;
  return { row, lanes, memory, rowHeight: height, gutter, width,
    plotWidth: Math.max(50, width - gutter - 8), total: height * model.numWorkers };
}

function makePainter(canvas, model, report) {
  const context = canvas.getContext("2d");
  const font = (size, weight = "") => `${weight} ${size}px system-ui, -apple-system, "Segoe UI", sans-serif`;
  const scratch = new OffscreenCanvas(1, 1);
  let theme = null;
  let ratio = 1;

  function readTheme(dark) {
    const style = getComputedStyle(document.documentElement);
    const read = (name) => style.getPropertyValue(name).trim();
    theme = { paper: read("--paper"), ink: read("--ink"), muted: read("--muted"),
      line: read("--line"), idle: read("--idle"), accent: read("--accent"), warn: read("--warn") };
    // In the order of schedule.ink: the shades of the first kind, of the second, ...
    theme.inks = model.kinds.flatMap(({ name }) => report.palette[name][dark ? "dark" : "light"])
      .map(([fill, text]) => {
        const [red, green, blue] = [1, 3, 5].map((place) => parseInt(fill.slice(place, place + 2), 16));
        return { fill, text, red, green, blue };
      });
  }

  function resize(width, height) {
    ratio = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }

  const snap = (x) => Math.round(x * ratio) / ratio;

  function paint(scene) {
    const { layout, view } = scene;
    const height = canvas.height / ratio;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.globalAlpha = 1;
    context.fillStyle = theme.paper;
    context.fillRect(0, 0, layout.width, height);
    const x = (time) => layout.gutter + ((time - view.from) * layout.plotWidth) / (view.to - view.from);
    const first = Math.max(0, Math.floor(scene.scroll / layout.rowHeight));
    const last = Math.min(model.numWorkers,
      Math.ceil((scene.scroll + height - AXIS_HEIGHT) / layout.rowHeight));
    context.save();
    context.beginPath();
    context.rect(layout.gutter, AXIS_HEIGHT, layout.plotWidth, height - AXIS_HEIGHT);
    context.clip();
    const ticks = axisTicks(view, layout.plotWidth);
    const isDense = meanWidth(scene, first, last) < 2.5;
    for (let worker = first; worker < last; worker++) paintRow(scene, worker, x, ticks, isDense);
    paintPath(scene, x);
    paintFocus(scene, x);
    context.restore();
    for (let worker = first; worker < last; worker++) paintName(scene, worker);
    paintAxis(layout, view, ticks, x);
  }

  const rowTop = (scene, worker) => AXIS_HEIGHT + worker * scene.layout.rowHeight - scene.scroll;

  function paintRow(scene, worker, x, ticks, isDense) {
    const { layout } = scene;
    const top = rowTop(scene, worker);
    for (const lane of layout.lanes) {
      context.fillStyle = theme.idle;
      context.fillRect(layout.gutter, top + lane.top, layout.plotWidth, lane.height);
    }
    context.fillStyle = theme.line;
    for (const tick of ticks.at) {
      context.fillRect(snap(x(tick)), top, 1 / ratio, layout.rowHeight);
    }
    if (layout.row.margin >= 8) context.fillRect(layout.gutter, top, layout.plotWidth, 1 / ratio);
    for (const lane of layout.lanes) paintLane(scene, lane, worker, top + lane.top, x, isDense);
    if (layout.memory) paintMemory(scene, worker, top + layout.memory.top, x);
  }

  // Of all visible compute actions, in pixels. Where they are too narrow to be told apart, lanes show
  // what share of the time each kind takes.
  function meanWidth({ view, layout }, first, last) {
    let busy = 0;
    let count = 0;
    for (const { timeline } of layout.lanes) {
      for (let worker = first; worker < last; worker++) {
        const { compute } = timeline.workers[worker];
        const [low, high] = visibleRange(timeline, compute, view.from, view.to);
        for (let k = low; k < high; k++) busy += timeline.end[compute.order[k]] - timeline.start[compute.order[k]];
        count += high - low;
      }
    }
    return count ? (busy * layout.plotWidth) / (view.to - view.from) / count : Infinity;
  }

  function paintLane(scene, lane, worker, top, x, isDense) {
    const { timeline } = lane;
    const { compute, beside } = timeline.workers[worker];
    const { view, layout } = scene;
    const [low, high] = visibleRange(timeline, compute, view.from, view.to);
    if (isDense) {
      if (lane.height < 8) paintBlend(scene, timeline, compute, low, high, top, lane.height);
      else paintShares(scene, timeline, compute, low, high, top, lane.height);
    } else {
      paintBars(scene, timeline, compute, low, high, top, lane.height, x, layout.row.font);
    }
    if (!lane.strip) return;
    const [from, to] = visibleRange(timeline, beside, view.from, view.to);
    paintBeside(scene, timeline, beside, from, to, top + lane.height + 1, lane.strip - 1, x);
  }

  function paintBars(scene, timeline, lane, low, high, top, height, x, fontSize) {
    const { schedule } = timeline;
    const { path } = scene;
    if (fontSize) {
      context.font = font(fontSize);
      context.textAlign = "center";
      context.textBaseline = "middle";
    }
    for (let k = low; k < high; k++) {
      const index = lane.order[k];
      const left = snap(x(timeline.start[index]));
      const right = snap(x(timeline.end[index]));
      const width = Math.max(right - left, 1 / ratio);
      const colours = theme.inks[schedule.ink[index]];
      context.globalAlpha = path && !(path.timeline === timeline && path.members.has(index)) ? 0.3 : 1;
      context.fillStyle = colours.fill;
      // A hair of paper keeps neighbours apart.
      context.fillRect(left, top, width > 3 ? width - 1 / ratio : width, height);
      if (fontSize && width > fontSize) {
        paintLabel(scene, schedule, index, Math.max(left, scene.layout.gutter),
          Math.min(right, scene.layout.width - 8), top + height / 2 + 0.5, colours.text, fontSize);
      }
    }
    context.globalAlpha = 1;
  }

  function paintLabel(scene, schedule, index, left, right, middle, colour, fontSize) {
    const room = (right - left - 3) / (fontSize * 0.62);
    const full = schedule.text(index);
    const withoutStage = full.replace(/^\d+/, "");
    const microbatch = schedule.microbatch[index];
    const texts = [full, withoutStage, microbatch === NOTHING ? "" : String(microbatch)];
    // Where a worker holds one stage, its name in the margin already tells it.
    if (schedule.stages[schedule.workerOf[index]].length === 1) texts.shift();
    const text = texts.find((candidate) => candidate.length <= room);
    if (!text) return;
    context.fillStyle = colour;
    context.fillText(text, (left + right) / 2, middle);
  }

  // Columns of some pixels, stacked by kind; what is left empty is idle time.
  function paintShares(scene, timeline, lane, low, high, top, height) {
    const { layout, view } = scene;
    const density = (layout.plotWidth / (high - low)) * 3;
    const columnWidth = Math.min(10, Math.max(2, Math.round(density)));
    const numColumns = Math.ceil(layout.plotWidth / columnWidth);
    const columnTime = ((view.to - view.from) * columnWidth) / layout.plotWidth;
    const shares = [];
    for (let k = low; k < high; k++) {
      const index = lane.order[k];
      const column = (shares[timeline.schedule.ink[index]] ??= new Float64Array(numColumns));
      const start = (timeline.start[index] - view.from) / columnTime;
      const end = (timeline.end[index] - view.from) / columnTime;
      for (let c = Math.max(0, Math.floor(start)); c < Math.min(numColumns, end); c++) {
        column[c] += Math.min(end, c + 1) - Math.max(start, c);
      }
    }
    context.globalAlpha = scene.path ? 0.4 : 1;
    const stacked = new Float64Array(numColumns);
    shares.forEach((column, ink) => {
      context.fillStyle = theme.inks[ink].fill;
      for (let c = 0; c < numColumns; c++) {
        if (column[c] === 0) continue;
        const lower = snap(top + height * (1 - stacked[c]));
        stacked[c] += column[c];
        const upper = snap(top + height * (1 - stacked[c]));
        if (upper < lower) context.fillRect(layout.gutter + c * columnWidth, upper, columnWidth, lower - upper);
      }
    });
    context.globalAlpha = 1;
  }

  function paintBlend(scene, timeline, lane, low, high, top, height) {
    const { layout, view } = scene;
    const numColumns = Math.ceil(layout.plotWidth);
    const columnTime = (view.to - view.from) / numColumns;
    const sums = new Float32Array(4 * numColumns);
    for (let k = low; k < high; k++) {
      const index = lane.order[k];
      const { red, green, blue } = theme.inks[timeline.schedule.ink[index]];
      const start = (timeline.start[index] - view.from) / columnTime;
      const end = (timeline.end[index] - view.from) / columnTime;
      for (let c = Math.max(0, Math.floor(start)); c < Math.min(numColumns, end); c++) {
        const share = Math.min(end, c + 1) - Math.max(start, c);
        sums[4 * c] += share * red;
        sums[4 * c + 1] += share * green;
        sums[4 * c + 2] += share * blue;
        sums[4 * c + 3] += share;
      }
    }
    const image = new ImageData(numColumns, 1);
    for (let c = 0; c < numColumns; c++) {
      const share = sums[4 * c + 3];
      if (share === 0) continue;
      image.data[4 * c] = sums[4 * c] / share;
      image.data[4 * c + 1] = sums[4 * c + 1] / share;
      image.data[4 * c + 2] = sums[4 * c + 2] / share;
      image.data[4 * c + 3] = 255 * Math.min(1, share);
    }
    if (scratch.width !== numColumns) scratch.width = numColumns;
    scratch.getContext("2d").putImageData(image, 0, 0);
    context.globalAlpha = scene.path ? 0.4 : 1;
    context.imageSmoothingEnabled = false;
    context.drawImage(scratch, layout.gutter, top, numColumns, height);
    context.globalAlpha = 1;
  }

  // Messages and collectives: sends in the upper half of the strip, receives in the lower.
  function paintBeside(scene, timeline, lane, low, high, top, height, x) {
    const { schedule } = timeline;
    const drawnTo = [-1, -1];
    for (let k = low; k < high; k++) {
      const index = lane.order[k];
      const { half } = model.kinds[schedule.kind[index]];
      const left = snap(x(timeline.start[index]));
      const right = Math.max(snap(x(timeline.end[index])), left + 1 / ratio);
      const row = Math.max(half, 0);
      if (right <= drawnTo[row]) continue; // hidden by what is already there
      drawnTo[row] = right;
      context.fillStyle = theme.inks[schedule.ink[index]].fill;
      if (half < 0) context.fillRect(left, top, right - left, height);
      else context.fillRect(left, top + (half * height) / 2, right - left, height / 2 - 0.25);
    }
  }

  function paintMemory(scene, worker, top, x) {
    const { layout } = scene;
    const { height } = layout.memory;
    const y = (value) => top + height - (value / report.memory.top) * (height - 2);
    const cap = report.memory.caps[worker];
    layout.lanes.forEach((lane, place) => {
      const { curves, peaks } = lane.timeline;
      if (!curves) return;
      curvePath(scene, curves[worker], x, y);
      context.strokeStyle = place ? theme.accent : theme.muted;
      context.lineWidth = 1;
      context.stroke();
      if (place === 0) {
        context.lineTo(layout.gutter + layout.plotWidth, top + height);
        context.lineTo(layout.gutter, top + height);
        context.fillStyle = theme.muted;
        context.globalAlpha = 0.18;
        context.fill();
        context.globalAlpha = 1;
        if (peaks.length) dashedLine(layout, y(peaks[worker]), theme.muted, [2, 3]);
      }
    });
    if (cap && cap <= report.memory.top) dashedLine(layout, y(cap), theme.warn, [6, 3]);
  }

  // Where many steps share a pixel, the highest one is drawn: peaks never disappear.
  function curvePath(scene, curve, x, y) {
    const { view, layout } = scene;
    const { times, values } = curve;
    let k = Math.max(0, firstWhere(times.length, (i) => times[i] > view.from) - 1);
    context.beginPath();
    context.moveTo(layout.gutter, y(values[k]));
    let pixel = layout.gutter;
    let highest = values[k];
    let latest = values[k];
    for (k += 1; k < times.length && times[k] <= view.to; k++) {
      const at = snap(x(times[k]));
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

  function dashedLine(layout, y, colour, dashes) {
    context.beginPath();
    context.setLineDash(dashes);
    context.strokeStyle = colour;
    context.lineWidth = 1;
    context.moveTo(layout.gutter, snap(y) + 0.5 / ratio);
    context.lineTo(layout.gutter + layout.plotWidth, snap(y) + 0.5 / ratio);
    context.stroke();
    context.setLineDash([]);
  }

  function laneOf(scene, timeline) {
    return scene.layout.lanes.find((lane) => lane.timeline === timeline);
  }

  function barOf(scene, timeline, index, x) {
    const lane = laneOf(scene, timeline);
    if (!lane) return null;
    const { schedule } = timeline;
    const top = rowTop(scene, schedule.workerOf[index]) + lane.top;
    const left = snap(x(timeline.start[index]));
    const width = Math.max(snap(x(timeline.end[index])) - left, 1);
    if (model.kinds[schedule.kind[index]].computes) {
      return { left, width, top, height: lane.height };
    }
    return { left, width, top: top + lane.height, height: Math.max(lane.strip, 1) };
  }

  // The chain of waits: its actions again on top of the faded ones, joined by lines.
  function paintPath(scene, x) {
    if (!scene.path) return;
    const { timeline, list } = scene.path;
    const { view } = scene;
    context.strokeStyle = theme.ink;
    context.lineWidth = 1.5;
    let before = null;
    for (const index of list) {
      if (!model.kinds[timeline.schedule.kind[index]].computes) continue;
      if (before !== null && timeline.end[before] <= view.to && timeline.start[index] >= view.from) {
        paintArrow(scene, timeline, before, index, x);
      }
      before = index;
      const bar = barOf(scene, timeline, index, x);
      if (!bar || bar.left > scene.layout.width || bar.left + bar.width < scene.layout.gutter) continue;
      if (bar.width < 3) {
        context.fillStyle = theme.inks[timeline.schedule.ink[index]].fill;
        context.fillRect(bar.left, bar.top, bar.width, bar.height);
      }
    }
  }

  function paintArrow(scene, timeline, from, to, x) {
    const one = barOf(scene, timeline, from, x);
    const other = barOf(scene, timeline, to, x);
    if (!one || !other || one.top === other.top) return;
    const startX = one.left + one.width;
    const down = other.top > one.top;
    const startY = down ? one.top + one.height : one.top;
    const endY = down ? other.top : other.top + other.height;
    const bend = Math.max(3, Math.abs(other.left - startX) / 2);
    context.beginPath();
    context.moveTo(startX, startY);
    context.bezierCurveTo(startX + bend, startY, other.left - bend, endY, other.left, endY);
    context.stroke();
    context.beginPath();
    context.arc(other.left, endY, 2.5, 0, 7);
    context.fillStyle = theme.ink;
    context.fill();
  }

  function paintFocus(scene, x) {
    for (const [focus, width] of [[scene.hover, 1.5], [scene.selected, 2.5]]) {
      if (!focus) continue;
      const { timeline, index } = focus;
      context.strokeStyle = theme.ink;
      context.lineWidth = width;
      if (!scene.path) {
        const from = producerOf(model, timeline, timeline.waited[index]);
        if (from !== NOTHING) paintArrow(scene, timeline, from, index, x);
      }
      const bar = barOf(scene, timeline, index, x);
      if (bar) context.strokeRect(bar.left - 0.5, bar.top - 0.5, bar.width + 1, bar.height + 1);
    }
  }

  function paintName(scene, worker) {
    const { layout } = scene;
    const top = rowTop(scene, worker);
    context.save();
    context.beginPath();
    context.rect(0, AXIS_HEIGHT, layout.gutter - 6, canvas.height);
    context.clip();
    context.textAlign = "left";
    context.textBaseline = "top";
    context.fillStyle = theme.ink;
    const isTall = layout.rowHeight >= 40;
    const size = Math.min(12, Math.max(10, layout.rowHeight - 2));
    // Where rows are lower than a line of text, only some of them are named.
    const every = Math.max(1, Math.ceil(11 / layout.rowHeight));
    context.font = font(size, isTall ? "600" : "");
    const y = isTall ? top + layout.lanes[0].top + 2 : top + (layout.rowHeight + layout.row.margin - size) / 2;
    if (worker % every === 0) context.fillText(`worker ${worker}`, 10, y);
    if (isTall) {
      context.font = font(11);
      context.fillStyle = theme.muted;
      report.workers[worker].slice(0, Math.floor((layout.rowHeight - layout.lanes[0].top - 16) / 14)).forEach((line, place) =>
        context.fillText(shorten(line, layout.gutter - 18), 10, y + 16 + 14 * place));
    }
    context.restore();
  }

  function shorten(text, room) {
    let kept = text;
    while (kept.length > 1 && context.measureText(kept).width > room) {
      kept = `${kept.replace(/\u2026$/, "").slice(0, -1)}\u2026`;
    }
    return kept;
  }

  function paintAxis(layout, view, ticks, x) {
    context.fillStyle = theme.paper;
    context.fillRect(0, 0, layout.width, AXIS_HEIGHT);
    context.fillStyle = theme.line;
    context.fillRect(0, AXIS_HEIGHT - 1, layout.width, 1);
    context.font = font(11);
    context.fillStyle = theme.muted;
    context.textBaseline = "middle";
    context.textAlign = "center";
    for (const tick of ticks.at) {
      const at = x(tick);
      if (at < layout.gutter - 1 || at > layout.width - 4) continue;
      const text = `${ticks.format(tick)}`;
      const half = context.measureText(text).width / 2;
      context.fillText(text, Math.min(Math.max(at, layout.gutter + half), layout.width - half - 4), AXIS_HEIGHT / 2);
    }
    context.textAlign = "left";
    context.fillText(`time in ${ticks.unit}`, 10, AXIS_HEIGHT / 2);
  }

  return { paint, resize, readTheme };
}

function axisTicks(view, width) {
  const raw = ((view.to - view.from) * 90) / width;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = Math.max(1, [1, 2, 5, 10].map((factor) => factor * power).find((value) => value >= raw));
  const at = [];
  for (let k = Math.ceil(view.from / step); k * step <= view.to; k++) at.push(k * step);
  const [unit, size] = unitOf(Math.max(view.to, 1));
  const decimals = Math.max(0, Math.ceil(-Math.log10(step / size) - 1e-9));
  return { at, unit, format: (time) => (time / size).toFixed(decimals) };
}

const TIME_UNITS = [["s", 1e9], ["ms", 1e6], ["us", 1e3], ["ns", 1]];
const SIZE_UNITS = [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10], ["B", 1]];

function unitOf(value, units = TIME_UNITS) {
  return units.find(([, size]) => Math.abs(value) >= size) ?? units[units.length - 1];
}

function formatQuantity(value, units = TIME_UNITS, like = value) {
  const [unit, size] = unitOf(like, units);
  if (size === 1) return `${Math.round(value)} ${unit}`;
  const digits = Math.max(0, 4 - Math.floor(Math.log10(Math.max(1, Math.abs(value / size)))) - 1);
  return `${(value / size).toFixed(digits)} ${unit}`;
}
