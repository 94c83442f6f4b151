// A payload as JSON, as text or as hexadecimal bytes, whichever it can be; large ones in parts.
import { html, useMemo, useState } from "../html.js";
import { bytes as size } from "../format.js";
import { base64Of, hexByte, jsonIn, textIn } from "../payload.js";
import { Text } from "../text.js";
import { Segments } from "./fields.js";
import { CopyButton } from "./copying.js";
import { JSONView } from "./json-view.js";

const LARGEST_JSON = 1 << 20;
const TEXT_PART = 50_000;
const ROW = 16;
const HEX_ROWS = 128;

/** `bytes`: an Uint8Array. */
export function PayloadView({ bytes, compact = false }) {
  const [chosen, setChosen] = useState(null);
  const [most, setMost] = useState(1);
  const text = useMemo(() => textIn(bytes), [bytes]);
  const json = useMemo(() => (bytes.length <= LARGEST_JSON && text !== null ? jsonIn(text) : null), [bytes, text]);
  const isObject = json !== null && json.value !== null && typeof json.value === "object";
  const views = [...(json ? [["json", "JSON"]] : []), ...(text !== null ? [["text", "Text"]] : []), ["hex", "Hex"]];
  const view = views.some(([each]) => each === chosen) ? chosen : isObject ? "json" : text !== null ? "text" : "hex";
  if (!bytes.length) return html`<p class="quiet">The payload is empty.</p>`;
  return html`<div class="payload">
    <div class="bar">${views.length > 1 && html`<${Segments} label="Show the payload as" value=${view} onValue=${setChosen} options=${views} />`}
      <span class="quiet">${size(bytes.length)}${text === null ? ", not UTF-8 text" : ""}</span>
      <span class="spring"></span><${CopyButton} text=${text ?? base64Of(bytes)} what=${text === null ? "the payload in base64" : "the payload"} /></div>
    ${view === "json" && html`<${JSONView} value=${json.value} />`}
    ${view === "text" && html`<pre class=${`content ${compact ? "compact" : ""}`} tabindex="0" aria-label="The payload as text"><${Text} text=${text.slice(0, most * TEXT_PART)} keepLines /></pre>
      ${text.length > most * TEXT_PART && html`<button onClick=${() => setMost(most + 1)}>Show more</button>`}`}
    ${view === "hex" && html`<pre class=${`content hex ${compact ? "compact" : ""}`} tabindex="0" aria-label="The payload as hexadecimal bytes">${hexRows(bytes, most * HEX_ROWS)}</pre>
      ${bytes.length > most * HEX_ROWS * ROW && html`<button onClick=${() => setMost(most + 4)}>Show more</button>`}`}
  </div>`;
}

function hexRows(bytes, most) {
  const rows = [];
  for (let start = 0; start < bytes.length && rows.length < most; start += ROW) {
    const part = [...bytes.subarray(start, start + ROW)];
    const digits = part.map(hexByte).join(" ").padEnd(ROW * 3 - 1);
    const letters = part.map((byte) => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : "·")).join("");
    rows.push(`${start.toString(16).padStart(6, "0")}  ${digits}  ${letters}`);
  }
  return rows.join("\n");
}
