// Text from outside: characters that hide, or that change the direction of their neighbours, become visible.
import { html } from "./html.js";

const HIDDEN = "\\u0000-\\u001f\\u007f-\\u00a0\\u00ad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f\\u2000-\\u200f" +
  "\\u2028-\\u202f\\u205f-\\u206f\\u3000\\u3164\\ud800-\\udfff\\ufe00-\\ufe0f\\ufeff\\uffa0\\ufff0-\\ufffc\\ufffe\\uffff\\u{e0000}-\\u{e0fff}";
const MARKS = new RegExp(`[${HIDDEN}]`, "gu");
const MARKS_BUT_LINES = new RegExp(`(?![\\n\\t])[${HIDDEN}]`, "gu");

const shown = (character) => {
  const code = character.codePointAt(0);
  if (code < 0x100) return `\\x${code.toString(16).padStart(2, "0")}`;
  return code < 0x10000 ? `\\u${code.toString(16).padStart(4, "0")}` : `\\u{${code.toString(16)}}`;
};

/** Return text as plain characters: for attributes, titles of dialogs, and toasts. */
export const visible = (text) => String(text).replace(MARKS, shown);

/** Return text as nodes, in which each hidden character is an element of its own. */
export function marked(text, keepLines = false) {
  const given = String(text);
  const marks = keepLines ? MARKS_BUT_LINES : MARKS;
  const nodes = [];
  let start = 0;
  for (const found of given.matchAll(marks)) {
    if (found.index > start) nodes.push(given.slice(start, found.index));
    nodes.push(html`<span class="mark">${shown(found[0])}</span>`);
    start = found.index + found[0].length;
  }
  if (start < given.length) nodes.push(given.slice(start));
  return nodes;
}

/** Text from outside, apart from the text around it. `mono`: in a font with fixed widths. */
export function Text({ text, mono = false, empty = "–", keepLines = false, title }) {
  if (text === null || text === undefined || text === "") return html`<span class="quiet">${empty}</span>`;
  return html`<bdi class=${mono ? "mono" : ""} title=${title}>${marked(text, keepLines)}</bdi>`;
}

/** Cut long text in the middle, so that both ends stay readable. */
export function shortened(text, most = 80) {
  const characters = [...String(text)];
  if (characters.length <= most) return characters.join("");
  const half = Math.floor((most - 1) / 2);
  return `${characters.slice(0, half).join("")}…${characters.slice(-half).join("")}`;
}
