// Numbers as people read them, always of the same width per digit.
const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

/** 1234567 as 1,234,567. Numbers in texts stay exact. */
export function count(value) {
  if (typeof value === "string" && /^\d+$/.test(value)) return value.replace(/\B(?=(\d{3})+$)/g, ",");
  return isNumber(value) ? WHOLE.format(value) : "–";
}

/** 1234567 as 1.23 M, for charts and narrow places. */
export function compact(value) {
  if (!isNumber(value)) return "–";
  const size = Math.abs(value);
  for (const [limit, unit] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (size >= limit) return `${digits(value / (limit === 1e4 ? 1e3 : limit))} ${unit}`;
  }
  return digits(value);
}

/** Three digits that matter. */
function digits(value) {
  const size = Math.abs(value);
  if (Number.isInteger(value) || size >= 100) return WHOLE.format(value);
  return value.toFixed(size >= 10 ? 1 : 2);
}

export function bytes(value) {
  if (!isNumber(value)) return "–";
  let size = value;
  let unit = 0;
  while (Math.abs(size) >= 1024 && unit < UNITS.length - 1) { size /= 1024; unit += 1; }
  return `${unit === 0 ? WHOLE.format(size) : digits(size)} ${UNITS[unit]}`;
}

export const rate = (value) => (isNumber(value) ? `${compact(value)}/s` : "–");
export const byteRate = (value) => (isNumber(value) ? `${bytes(value)}/s` : "–");

export function milliseconds(value) {
  if (!isNumber(value)) return "–";
  return value >= 1000 ? `${digits(value / 1000)} s` : `${digits(value)} ms`;
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
