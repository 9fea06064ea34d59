// What the tooltip and the line under the lanes say: a title, a sentence and rows of [name, value].

function describeAction(model, palette, timeline, index) {
  const { schedule, start, end } = timeline;
  let what = `${palette[model.kinds[schedule.kind[index]].name].words}, stage ${schedule.stage[index]}`;
  if (schedule.microbatch[index] !== NOTHING) what += `, microbatch ${schedule.microbatch[index]}`;
  if (schedule.slice && schedule.slice[index] !== NOTHING) what += `, slice ${schedule.slice[index]}`;
  const rows = [
    ["worker", `${schedule.workerOf[index]}, ${timeline.source}`],
    ["start", exactTime(start[index])],
    ["end", exactTime(end[index])],
    ["duration", exactTime(end[index] - start[index])],
    ["waited for", describeWait(model, timeline, index)],
  ];
  const idle = idleBefore(timeline, index);
  if (idle > 0) rows.push(["idle before", exactTime(idle)]);
  const other = model.timelines[1 - timeline.place];
  const partner = other ? partnerOf(timeline, index) : NOTHING;
  if (partner !== NOTHING) rows.push(describeDifference([timeline, index], [other, partner]));
  return { title: schedule.text(index), what, rows };
}

function describeWait(model, timeline, index) {
  const { schedule } = timeline;
  const cause = timeline.waited[index];
  if (cause === NOTHING) return "nothing";
  const named = (action) => schedule.text(action) + (schedule.workerOf[action] === schedule.workerOf[index]
    ? "" : ` on worker ${schedule.workerOf[action]}`);
  const producer = producerOf(model, timeline, cause);
  const after = producer === cause || producer === NOTHING ? "" : ` after ${named(producer)}`;
  return `${named(cause)}${after}, until ${exactTime(timeline.end[cause])}`;
}

// How the second timeline's action differs from the first one's, whichever was asked for.
function describeDifference(asked, partner) {
  const [one, two] = asked[0].place === 0 ? [asked, partner] : [partner, asked];
  const length = ([timeline, index]) => timeline.end[index] - timeline.start[index];
  const later = two[0].start[two[1]] - one[0].start[one[1]];
  const longer = length(two) - length(one);
  if (later === 0 && longer === 0) return [two[0].source, `exactly as ${one[0].source}`];
  const share = length(one) > 0 ? ` (${longer < 0 ? "" : "+"}${percent(longer / length(one))})` : "";
  const start = later === 0 ? "on time" : `${exactTime(Math.abs(later))} ${later > 0 ? "later" : "earlier"}`;
  const takes = longer === 0 ? "as long as" : `${exactTime(Math.abs(longer))} ${longer > 0 ? "longer" : "less"}${share} than`;
  return [two[0].source, `starts ${start}, takes ${takes} ${one[0].source}`];
}

function describePath(model, palette, timeline, list, target) {
  const spent = new Map();
  let last = 0;
  let waiting = 0;
  for (const index of list) {
    const start = Math.max(timeline.start[index], last);
    const { words } = palette[model.kinds[timeline.schedule.kind[index]].name];
    waiting += start - last;
    spent.set(words, (spent.get(words) ?? 0) + Math.max(0, timeline.end[index] - start));
    last = Math.max(last, timeline.end[index]);
  }
  const rows = [...spent].filter(([, time]) => time > 0).sort((a, b) => b[1] - a[1]);
  if (waiting > 0) rows.push(["latency and idle", waiting]);
  const end = target === null ? "of the step" : `to ${timeline.schedule.text(target)}`;
  return {
    title: "Critical path",
    what: `${end}, ${timeline.source}: ${list.length.toLocaleString("en")} actions, ${roundedTime(last)}`,
    rows: rows.map(([words, time]) => [words, `${roundedTime(time)} (${percent(time / last)})`]),
  };
}

function writeWords(target, words) {
  target.replaceChildren();
  if (!words) return;
  const head = document.createElement("p");
  const title = document.createElement("strong");
  title.textContent = words.title;
  head.append(title, ` ${words.what}`);
  const list = document.createElement("dl");
  for (const row of words.rows) {
    const pair = document.createElement("div");
    ["dt", "dd"].forEach((tag, place) => {
      const part = document.createElement(tag);
      part.textContent = row[place];
      pair.append(part);
    });
    list.append(pair);
  }
  target.append(head, list);
}
