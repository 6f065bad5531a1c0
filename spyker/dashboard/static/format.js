// Formatting of numbers.

const GROUPED = new Intl.NumberFormat("en-US");

/** A count: 12,345. */
export function countText(value) {
  return value == null ? "–" : GROUPED.format(Math.round(value));
}

/** A short count: 12.3k. */
export function shortCount(value) {
  if (value == null) return "–";
  for (const [size, unit] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (Math.abs(value) >= size) return trim(value / (unit === "k" ? 1e3 : size)) + unit;
  }
  return GROUPED.format(Math.round(value));
}

/** Bytes: 1.2 MB. */
export function bytesText(value) {
  if (value == null) return "–";
  for (const [size, unit] of [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) {
    if (value >= size) return `${trim(value / size)} ${unit}`;
  }
  return `${Math.round(value)} B`;
}

function trim(value) {
  return value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2);
}

/** A time in a run: 3.250 s, or 2:03:04.5 if it is long. */
export function timeText(seconds, digits = 3) {
  if (seconds < 600) return `${seconds.toFixed(digits)} s`;
  const hours = Math.floor(seconds / 3600);
  const minutes = Math.floor((seconds % 3600) / 60);
  const rest = (seconds % 60).toFixed(1).padStart(4, "0");
  return hours ? `${hours}:${String(minutes).padStart(2, "0")}:${rest}` : `${minutes}:${rest} min`;
}

/** A score or an age, with its significant digits. */
export function valueText(value) {
  if (value == null || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1000) return GROUPED.format(Math.round(value));
  if (size >= 100) return value.toFixed(0);
  if (size >= 10) return value.toFixed(1);
  return value.toFixed(size >= 2 ? 2 : 3);
}

/** Tick positions of an axis. */
export function ticks(low, high, wanted) {
  const rough = (high - low) / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((n) => n * power).find((n) => n >= rough) ?? 10 * power;
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) found.push(i * step);
  return found;
}

/** The label of a tick. */
export function tickText(value) {
  const size = Math.abs(value);
  if (size >= 1e4) return shortCount(value);
  return String(Number(value.toPrecision(6)));
}

/** A text with its first letter in upper case. */
export function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
