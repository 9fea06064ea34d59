// How high everything is. All lengths are CSS pixels.

const AXIS_HEIGHT = 26;
const RIGHT_MARGIN = 8;
// From far to near: what a worker's row is made of at each row size.
const ROW_SIZES = [
  { lane: 5, strip: 0, memory: 0, gap: 0, margin: 2, font: 0 },
  { lane: 9, strip: 0, memory: 0, gap: 1, margin: 4, font: 0 },
  { lane: 12, strip: 3, memory: 10, gap: 1, margin: 4, font: 9 },
  { lane: 16, strip: 4, memory: 20, gap: 2, margin: 8, font: 10 },
  { lane: 22, strip: 6, memory: 30, gap: 3, margin: 14, font: 11 },
  { lane: 34, strip: 8, memory: 56, gap: 4, margin: 18, font: 13 },
];
const LARGEST_BY_ITSELF = ROW_SIZES.length - 2;

// shown: which of measured, messages and memory are wanted. Tops count from the top of a row.
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
    plotWidth: Math.max(50, width - gutter - RIGHT_MARGIN), total: height * model.numWorkers };
}

// The largest rows with which all workers are seen at once.
function bestSize(model, shown, width, room) {
  for (let size = LARGEST_BY_ITSELF; size > 0; size--) {
    if (makeLayout(model, shown, size, width).total + AXIS_HEIGHT <= room) return size;
  }
  return 0;
}
