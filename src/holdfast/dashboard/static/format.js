// Numbers as people read them, always of the same width per digit.
const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

/** 1234567 as 1,234,567. Numbers in texts stay exact. */
export function count(value) {
  if (typeof value === "string" && /^\d+$/.test(value)) return value.replace(/\B(?=(\d{3})+$)/g, ",");
  return isNumber(value) ? WHOLE.format(value) : "–";
}

/** 1234567 as 1.23 M, for charts and narrow places. `step`: the distance to the next value of a scale, which stays visible. */
export function compact(value, step) {
  if (!isNumber(value)) return "–";
  const size = Math.abs(value);
  for (const [limit, unit] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    const whole = limit === 1e4 ? 1e3 : limit;
    if (size >= limit) return `${digits(value / whole, step / whole)} ${unit}`;
  }
  return digits(value, step);
}

/** Three digits that matter, or as many as tell values apart that differ by `step`. */
function digits(value, step) {
  if (step > 0) {
    const places = Math.min(6, Math.max(0, Math.ceil(-Math.log10(step) - 1e-9)));
    return new Intl.NumberFormat("en", { minimumFractionDigits: places, maximumFractionDigits: places }).format(value);
  }
  const size = Math.abs(value);
  if (Number.isInteger(value) || size >= 100) return WHOLE.format(value);
  return value.toFixed(size >= 10 ? 1 : 2);
}

export function bytes(value, step) {
  if (!isNumber(value)) return "–";
  let size = value;
  let unit = 0;
  while (Math.abs(size) >= 1024 && unit < UNITS.length - 1) { size /= 1024; unit += 1; }
  return `${unit === 0 ? WHOLE.format(size) : digits(size, step / 1024 ** unit)} ${UNITS[unit]}`;
}

export const rate = (value, step) => (isNumber(value) ? `${compact(value, step)}/s` : "–");
export const byteRate = (value, step) => (isNumber(value) ? `${bytes(value, step)}/s` : "–");

export function milliseconds(value, step) {
  if (!isNumber(value)) return "–";
  return value >= 1000 ? `${digits(value / 1000, step / 1000)} s` : `${digits(value, step)} ms`;
}

/** Seconds as "3 d 4 h": the two largest units. */
export function duration(seconds) {
  if (!isNumber(seconds)) return "–";
  const parts = [];
  let rest = Math.floor(seconds);
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]]) {
    const whole = Math.floor(rest / size);
    rest -= whole * size;
    if (whole || (unit === "s" && !parts.length)) parts.push(`${whole} ${unit}`);
  }
  return parts.slice(0, 2).join(" ");
}

export const plural = (number, one, many = `${one}s`) => `${count(number)} ${Number(number) === 1 ? one : many}`;
