// Reads what encode.py wrote: columns of numbers, and from them who lies where.

const NOTHING = -1;

async function inflate(base64) {
  const packed = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}

async function readModel(description, base64) {
  const block = await inflate(base64);
  const types = { u8: Uint8Array, i32: Int32Array, f64: Float64Array };
  const column = (number) => {
    if (number === undefined) return null;
    const [type, offset, length] = description.columns[number];
    return new types[type](block, offset, length);
  };
  const numShades = description.num_shades;
  const kinds = description.kinds.map(([name, stream]) => ({ name, computes: stream === "compute",
    half: name.startsWith("SEND") ? 0 : name.startsWith("RECV") ? 1 : NOTHING }));
  const schedules = description.schedules.map((raw) => makeSchedule(raw, kinds, numShades, column));
  const timelines = description.timelines.map((raw, place) =>
    makeTimeline(raw, place, schedules[raw.schedule], kinds, column));
  const step = Math.max(1, ...timelines.map((timeline) => timeline.step));
  return { kinds, timelines, step, numWorkers: schedules[0].first.length - 1 };
}

function makeSchedule(raw, kinds, numShades, column) {
  const kind = column(raw.kind);
  const stage = column(raw.stage);
  const microbatch = column(raw.microbatch);
  const slice = column(raw.slice);
  const peer = column(raw.peer);
  const nameOf = column(raw.name_of);
  const workerOf = new Int32Array(kind.length);
  for (let worker = 0; worker + 1 < raw.first.length; worker++) {
    workerOf.fill(worker, raw.first[worker], raw.first[worker + 1]);
  }
  // The same text as Python's str(action).
  const text = (index) => {
    let label = `${stage[index]}${kinds[kind[index]].name}`;
    if (nameOf && nameOf[index] !== NOTHING) label += `:${raw.names[nameOf[index]]}`;
    if (microbatch[index] !== NOTHING) label += microbatch[index];
    if (slice && slice[index] !== NOTHING) label += `.${slice[index]}`;
    if (peer && peer[index] !== NOTHING) label += `>${peer[index]}`;
    return label;
  };
  // Which ink an action has: its kind, in a shade for the place of its stage on its worker.
  const placeOf = raw.stages.map((stages) => new Map(stages.map((s, place) => [s, place])));
  const ink = Uint8Array.from(kind, (k, index) => {
    const place = kinds[k].computes ? placeOf[workerOf[index]].get(stage[index]) ?? 0 : 0;
    return k * numShades + Math.min(place, numShades - 1);
  });
  return { first: raw.first, stages: raw.stages, kind, stage, microbatch, slice, workerOf, text, ink };
}

function makeTimeline(raw, place, schedule, kinds, column) {
  const start = column(raw.start);
  const duration = column(raw.duration);
  const end = new Float64Array(start.length);
  for (let i = 0; i < end.length; i++) end[i] = start[i] + duration[i];
  const timeline = { place, source: raw.source, step: raw.step_ns, schedule, start, end,
    waited: column(raw.waited), partner: column(raw.partner), peaks: raw.peak_bytes };
  timeline.workers = schedule.first.slice(0, -1).map((from, worker) =>
    makeLanes(timeline, from, schedule.first[worker + 1], kinds));
  timeline.half = halvesOf(timeline, kinds);
  const memory = column(raw.memory);
  timeline.curves = memory && timeline.workers.map((lanes, worker) =>
    memoryCurve(timeline, memory, schedule.first[worker], schedule.first[worker + 1], kinds));
  return timeline;
}

// Which half of its lane an action has: messages by their direction, the two actions of a braid,
// which share their time, one above the other; all else fills the lane.
function halvesOf({ start, end, schedule, workers }, kinds) {
  const half = Int8Array.from(schedule.kind, (kind) => kinds[kind].half);
  for (const { compute: { order } } of workers) {
    for (let k = 1; k < order.length; k++) {
      const [above, below] = [order[k - 1], order[k]];
      if (start[above] === start[below] && end[above] === end[below] && end[above] > start[above]) {
        half[above] = 0;
        half[below] = 1;
      }
    }
  }
  return half;
}

function makeLanes(timeline, from, to, kinds) {
  const compute = [];
  const beside = [];
  for (let i = from; i < to; i++) {
    (kinds[timeline.schedule.kind[i]].computes ? compute : beside).push(i);
  }
  return { compute: makeLane(timeline, compute), beside: makeLane(timeline, beside) };
}

// A lane is searched by time: `latest[k]` is the last end among its first k + 1 actions.
function makeLane(timeline, indices) {
  const order = Int32Array.from(indices).sort((a, b) => timeline.start[a] - timeline.start[b]);
  const latest = new Float64Array(order.length);
  let last = -Infinity;
  for (let k = 0; k < order.length; k++) {
    last = Math.max(last, timeline.end[order[k]]);
    latest[k] = last;
  }
  return { order, latest };
}

// Positions [low, high) of a lane that hold everything between two times.
function visibleRange(timeline, lane, from, to) {
  const low = firstWhere(lane.order.length, (k) => lane.latest[k] >= from);
  const high = firstWhere(lane.order.length, (k) => timeline.start[lane.order[k]] > to);
  return [low, high];
}

function firstWhere(length, holds) {
  let low = 0;
  let high = length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (holds(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}

// Memory is known after each action. What an action adds counts from its start, what it gives back
// from its end; actions beside the compute stream count when they are issued.
function memoryCurve(timeline, memory, from, to, kinds) {
  const times = [0];
  // All is given back when the step has ended, so the last value is also the one before the first.
  const values = [from < to ? memory[to - 1] : 0];
  let now = 0;
  for (let i = from; i < to; i++) {
    const computes = kinds[timeline.schedule.kind[i]].computes;
    const rises = memory[i] >= values[values.length - 1];
    const at = computes ? (rises ? timeline.start[i] : timeline.end[i]) : now;
    if (memory[i] !== values[values.length - 1]) {
      times.push(Math.max(at, times[times.length - 1]));
      values.push(memory[i]);
    }
    if (computes) now = timeline.end[i];
  }
  return { times: Float64Array.from(times), values: Float64Array.from(values) };
}

// The same action in the other timeline, or NOTHING.
function partnerOf(timeline, index) {
  return timeline.partner ? timeline.partner[index] : index;
}

// From an action back along what it waited for, to the first compute action: of a RECV the forward
// or backward whose result it brings.
function producerOf(model, timeline, index) {
  let at = index;
  while (at !== NOTHING && !model.kinds[timeline.schedule.kind[at]].computes) at = timeline.waited[at];
  return at;
}

// How long the worker stood still before a compute action; 0 for actions beside the compute stream.
function idleBefore(timeline, index) {
  const { compute } = timeline.workers[timeline.schedule.workerOf[index]];
  const at = compute.order.indexOf(index);
  if (at < 0) return 0;
  return timeline.start[index] - (at > 0 ? timeline.end[compute.order[at - 1]] : 0);
}

function pathTo(timeline, index) {
  const path = [];
  for (let at = index; at !== NOTHING; at = timeline.waited[at]) path.push(at);
  return path.reverse();
}

function lastToEnd(timeline) {
  let last = NOTHING;
  for (let i = 0; i < timeline.end.length; i++) {
    if (last === NOTHING || timeline.end[i] > timeline.end[last]) last = i;
  }
  return last;
}

// Exact text first; without a stage ("F3") the actions of every stage.
function findActions(timeline, query) {
  const wanted = query.trim().toUpperCase();
  if (!wanted) return [];
  const found = [];
  const loose = /^\D/.test(wanted);
  for (let i = 0; i < timeline.start.length; i++) {
    const text = timeline.schedule.text(i).toUpperCase();
    if (text === wanted || (loose && text.replace(/^\d+/, "") === wanted)) found.push(i);
  }
  return found.sort((a, b) => timeline.start[a] - timeline.start[b]);
}
