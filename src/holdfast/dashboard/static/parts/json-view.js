// JSON as a tree that folds. A click on a name copies its path; a click on a value copies the value.
import { html, useState } from "../html.js";
import { plural } from "../format.js";
import { LongNumber, jsonText, pathText } from "../payload.js";
import { marked, shortened, visible } from "../text.js";
import { copy } from "./copying.js";
import { Icon } from "./icons.js";

const OPEN_LEVELS = 3;
const PART = 100;
const LONGEST = 2000;

/** A value of JSON. `changed`: paths, as text, that are marked. */
export function JSONView({ value }) {
  return html`<div class="json mono"><${Value} value=${value} path=${[]} /></div>`;
}

function Value({ value, path, name }) {
  const children = value !== null && typeof value === "object" && !(value instanceof LongNumber);
  return children ? html`<${Branch} value=${value} path=${path} name=${name} />` : html`<div class="leaf"><${Name} name=${name} path=${path} /><${Leaf} value=${value} /></div>`;
}

function Name({ name, path }) {
  if (name === undefined) return null;
  const text = pathText(path);
  return html`<button class="key" title=${`Copy the path ${visible(shortened(text))}`} onClick=${() => copy(text, `the path ${visible(shortened(text))}`)}>${typeof name === "number" ? name : marked(name)}</button><span class="quiet">: </span>`;
}

function Leaf({ value }) {
  const text = value instanceof LongNumber ? value.source : typeof value === "string" ? value : JSON.stringify(value);
  const kind = typeof value === "string" ? "string" : value === null ? "null" : typeof value === "boolean" ? "boolean" : "number";
  const long = text.length > LONGEST;
  return html`<button class=${`value ${kind}`} title="Copy this value" onClick=${() => copy(text, visible(shortened(text, 40)) || "an empty text")}>${kind === "string" ? html`"${marked(long ? text.slice(0, LONGEST) : text)}${long ? "…" : ""}"` : text}</button>`;
}

function Branch({ value, path, name }) {
  const list = Array.isArray(value);
  const entries = list ? value : Object.entries(value);
  const [open, setOpen] = useState(path.length < OPEN_LEVELS && entries.length <= PART);
  const [most, setMost] = useState(PART);
  const summary = plural(entries.length, list ? "item" : "member");
  return html`<div class="branch"><div class="line"><button class="fold" aria-expanded=${open} aria-label=${open ? "Close" : "Open"} onClick=${() => setOpen(!open)}><${Icon} name="chevron" /></button>
      <${Name} name=${name} path=${path} /><button class="summary" aria-hidden="true" tabindex="-1" onClick=${() => setOpen(!open)}>${list ? "[" : "{"} ${summary} ${list ? "]" : "}"}</button></div>
    ${open && html`<div class="children">
      ${entries.slice(0, most).map((each, at) => html`<${Value} key=${list ? at : each[0]} value=${list ? each : each[1]} name=${list ? at : each[0]} path=${[...path, list ? at : each[0]]} />`)}
      ${entries.length > most && html`<button onClick=${() => setMost(most + PART)}>Show ${Math.min(PART, entries.length - most)} more of ${entries.length - most}</button>`}
      ${path.length === 0 && html`<button class="plain small" onClick=${() => copy(jsonText(value, 2), "all of it")}>Copy all</button>`}
    </div>`}
  </div>`;
}
