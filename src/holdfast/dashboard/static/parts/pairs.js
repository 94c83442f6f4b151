// User Properties: pairs of texts in an order, of which names may repeat.
import { html } from "../html.js";
import { Icon } from "./icons.js";

export function PairFields({ pairs, onPairs }) {
  const change = (at, place, text) => onPairs(pairs.map((pair, each) => (each === at ? (place ? [pair[0], text] : [text, pair[1]]) : pair)));
  return html`<fieldset class="pairs"><legend>User Properties</legend>
    ${pairs.map(([name, value], at) => html`<div class="pair" key=${at}><input aria-label=${`Name ${at + 1}`} value=${name} onInput=${(event) => change(at, 0, event.target.value)} /><input aria-label=${`Value ${at + 1}`} value=${value} onInput=${(event) => change(at, 1, event.target.value)} />
      <button type="button" class="plain" aria-label=${`Remove property ${at + 1}`} onClick=${() => onPairs(pairs.filter((_pair, each) => each !== at))}><${Icon} name="close" /></button></div>`)}
    <button type="button" class="small" onClick=${() => onPairs([...pairs, ["", ""]])}>Add a property</button></fieldset>`;
}
