// Numbers as people read them. Times are nanoseconds, sizes bytes.

const TIME_UNITS = [["s", 1e9], ["ms", 1e6], ["us", 1e3], ["ns", 1]];

function unitOf(time) {
  return TIME_UNITS.find(([, size]) => Math.abs(time) >= size) ?? TIME_UNITS[TIME_UNITS.length - 1];
}

// Four significant digits.
function roundedTime(time) {
  const [unit, size] = unitOf(time);
  const whole = Math.floor(Math.log10(Math.max(1, Math.abs(time / size)))) + 1;
  return `${(time / size).toFixed(size === 1 ? 0 : Math.max(0, 4 - whole))} ${unit}`;
}

// To the nanosecond, without zeros at the end.
function exactTime(time) {
  const [unit, size] = unitOf(time);
  const text = (time / size).toFixed(Math.round(Math.log10(size)));
  return `${text.includes(".") ? text.replace(/\.?0+$/, "") : text} ${unit}`;
}

const percent = (share) => `${(100 * share).toFixed(1)} %`;

// Round times about 90 pixels apart, all in one unit.
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
