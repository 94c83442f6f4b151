// Fields of forms: each with its label, a hint, and what is wrong with it.
import { html, useEffect, useId, useRef, useState } from "../html.js";

const TYPING = 300;

/** A labelled field around one control, which `children(id, described)` returns. */
export function Field({ label, hint, error, children }) {
  const id = useId();
  const described = hint || error ? `${id}-more` : undefined;
  return html`<div class=${`field ${error ? "wrong" : ""}`}><label for=${id}>${label}</label>${children(id, described)}
    ${(hint || error) && html`<small id=${described}>${error || hint}</small>`}</div>`;
}

export function TextField({ label, hint, error, value, onValue, ...others }) {
  return html`<${Field} label=${label} hint=${hint} error=${error}>${(id, described) => html`<input id=${id} aria-describedby=${described} aria-invalid=${Boolean(error)}
    value=${value} onInput=${(event) => onValue(event.target.value)} spellcheck="false" autocomplete="off" autocapitalize="off" ...${others} />`}<//>`;
}

export function Choice({ label, hint, value, onValue, options }) {
  return html`<${Field} label=${label} hint=${hint}>${(id, described) => html`<select id=${id} aria-describedby=${described} value=${value} onChange=${(event) => onValue(event.target.value)}>
    ${options.map(([each, title]) => html`<option value=${each} selected=${String(each) === String(value)}>${title}</option>`)}</select>`}<//>`;
}

export function Check({ label, hint, value, onValue }) {
  const id = useId();
  return html`<div class="check"><input type="checkbox" id=${id} checked=${value} onChange=${(event) => onValue(event.target.checked)} /><label for=${id}>${label}${hint && html` <small>${hint}</small>`}</label></div>`;
}

/** A search field: it reports its text when the user pauses. "/" goes to it from anywhere on the page. */
export function Search({ label, value, onValue, placeholder, main = false }) {
  const [text, setText] = useState(value ?? "");
  const id = useId();
  const report = useRef(onValue);
  report.current = onValue;  // the newest one, which knows what else has changed while the user typed
  useEffect(() => setText(value ?? ""), [value]);
  useEffect(() => {
    if (text === (value ?? "")) return undefined;
    const timer = setTimeout(() => report.current(text), TYPING);
    return () => clearTimeout(timer);
  }, [text]);
  return html`<div class="search"><label class="unseen" for=${id}>${label}</label><input id=${id} type="search" data-search=${main || undefined} value=${text} placeholder=${placeholder ?? label}
    title=${main ? "Press / to search" : undefined} onInput=${(event) => setText(event.target.value)} onKeyDown=${(event) => {
      if (event.key === "Enter") onValue(text);
      if (event.key === "Escape" && text) { event.preventDefault(); setText(""); onValue(""); }
    }} spellcheck="false" autocomplete="off" autocapitalize="off" /></div>`;
}

/** A few choices of which one holds. */
export function Segments({ label, value, onValue, options }) {
  return html`<div class="segments" role="radiogroup" aria-label=${label}>${options.map(([each, title]) => html`<button role="radio" aria-checked=${each === value} tabindex=${each === value ? 0 : -1}
    onClick=${() => onValue(each)} onKeyDown=${(event) => turn(event, options, each, onValue)}>${title}</button>`)}</div>`;
}

/** Tabs of one panel, which the caller draws with role="tabpanel". */
export function Tabs({ label, value, onValue, options }) {
  return html`<div class="tabs" role="tablist" aria-label=${label}>${options.map(([each, title]) => html`<button role="tab" aria-selected=${each === value} tabindex=${each === value ? 0 : -1}
    onClick=${() => onValue(each)} onKeyDown=${(event) => turn(event, options, each, onValue)}>${title}</button>`)}</div>`;
}

/** The arrow keys choose the neighbour. */
function turn(event, options, value, onValue) {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (!step) return;
  event.preventDefault();
  const at = options.findIndex(([each]) => each === value);
  const next = (at + step + options.length) % options.length;
  onValue(options[next][0]);
  event.currentTarget.parentElement.children[next].focus();
}
