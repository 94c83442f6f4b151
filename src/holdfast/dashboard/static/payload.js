// Payloads: bytes that may be text, and text that may be JSON. Numbers in JSON keep all their digits.
const PREVIEW = 200;
const UTF8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Return the bytes in base64. */
export function bytesIn(base64) {
  const binary = atob(base64);
  const bytes = new Uint8Array(binary.length);
  for (let at = 0; at < binary.length; at += 1) bytes[at] = binary.charCodeAt(at);
  return bytes;
}

/** Return bytes as base64. */
export function base64Of(bytes) {
  let binary = "";
  for (let at = 0; at < bytes.length; at += 0x8000) binary += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  return btoa(binary);
}

/** Return the text of bytes, or null if they are not UTF-8. */
export function textIn(bytes) {
  try {
    return UTF8.decode(bytes);
  } catch {
    return null;
  }
}

/** A number of JSON whose digits a JavaScript number cannot hold. */
export class LongNumber {
  constructor(source) { this.source = source; }
}

/** Return {value} of JSON text, or null if it is none. */
export function jsonIn(text) {
  if (text === null || !/^\s*[[{"\d\-tfn]/.test(text)) return null;
  try {
    return { value: JSON.parse(text, exactNumber) };
  } catch {
    return null;
  }
}

/** Newer browsers tell the source of a number; others show what they can hold. */
function exactNumber(_key, value, context) {
  if (typeof value !== "number" || context?.source === undefined) return value;
  const digits = context.source.replace(/[eE].*$|[-.]|^0+/g, "");
  return digits.length > 15 && String(value) !== context.source ? new LongNumber(context.source) : value;
}

/** Return a value of JSON as text, with all digits. `indent`: spaces per level. */
export function jsonText(value, indent = 0) {
  const longs = [];
  const mark = crypto.randomUUID?.() ?? `${Math.random()}`;
  const text = JSON.stringify(value, (_key, each) => (each instanceof LongNumber ? `${mark}${longs.push(each.source) - 1}` : each), indent);
  return longs.length ? text.replace(new RegExp(`"${mark}(\\d+)"`, "g"), (_whole, at) => longs[at]) : text;
}

/** Return the beginning of a payload as one line: text, or hexadecimal digits. `size`: that of the whole payload. */
export function preview(bytes, size = bytes.length) {
  const head = bytes.subarray(0, PREVIEW);
  let text = textIn(head);
  for (let cut = 1; text === null && cut < 4 && size > head.length; cut += 1) text = textIn(head.subarray(0, -cut));  // within a character
  if (text === null) return { text: [...head.subarray(0, 32)].map(hexByte).join(" "), kind: "hex", cut: size > 32 };
  return { text, kind: "text", cut: size > head.length };
}

export const hexByte = (byte) => byte.toString(16).padStart(2, "0");

/** Return the path of a value, as JSONPath writes it [RFC 9535]. */
export function pathText(path) {
  return path.reduce((text, step) => text + (typeof step === "number" ? `[${step}]` : /^[A-Za-z_]\w*$/.test(step) ? `.${step}` : `[${quoted(step)}]`), "$");
}

const quoted = (name) => `'${JSON.stringify(name).slice(1, -1).replaceAll('\\"', '"').replaceAll("'", "\\'")}'`;

/** Return the value at a path, or undefined. */
export function at(value, path) {
  let here = value;
  for (const step of path) {
    if (here === null || typeof here !== "object" || here instanceof LongNumber || !Object.hasOwn(here, step)) return undefined;
    here = here[step];
  }
  return here;
}

/** Return the paths of the numbers in a value of JSON, at most `most`. */
export function numberPaths(value, most = 40) {
  const found = [];
  const walk = (here, path) => {
    if (found.length >= most || path.length > 6) return;
    if (typeof here === "number" || typeof here === "boolean") found.push(path);
    else if (here && typeof here === "object" && !(here instanceof LongNumber)) {
      for (const [key, each] of Object.entries(here).slice(0, most)) walk(each, [...path, Array.isArray(here) ? Number(key) : key]);
    }
  };
  walk(value, []);
  return found;
}

/** Return a payload as a number: itself, or the number at a path of its JSON. Else null. */
export function numberIn(text, path) {
  const json = jsonIn(text?.trim() ?? null);
  if (json === null) return null;
  const value = at(json.value, path);
  if (typeof value === "boolean") return value ? 1 : 0;
  if (value instanceof LongNumber) return Number(value.source);
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}
