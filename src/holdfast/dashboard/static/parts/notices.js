// What the user is told: toasts, errors in place of data, and that there is nothing.
import { html, useEffect, useState } from "../html.js";
import { Icon } from "./icons.js";

const SHOWN_FOR = 6000;
const MOST = 4;
let toasts = [];
let number = 0;
let draw = () => {};

function change(next) {
  toasts = next;
  draw(toasts);
}

/** Tell the user something in passing. Errors stay until they are closed. `text` must be plain: see `visible`. */
export function toast(text, kind = "done", detail = "") {
  const id = (number += 1);
  change([...toasts, { id, text, kind, detail }].slice(-MOST));
  if (kind !== "error") setTimeout(() => change(toasts.filter((one) => one.id !== id)), SHOWN_FOR);
}

/** Tell of a failed call. */
export function toastError(error) {
  if (error?.name === "AbortError") return;
  toast(error.title ?? "Something failed in this page", "error", error.title ? error.detail : String(error.message));
}

export function Toasts() {
  const [shown, setShown] = useState(toasts);
  useEffect(() => { draw = setShown; return () => { draw = () => {}; }; }, []);
  return html`<div class="toasts" role="region" aria-label="Messages"><div aria-live="polite">
    ${shown.map((one) => html`<div class=${`toast ${one.kind}`} key=${one.id} role=${one.kind === "error" ? "alert" : undefined}>
      <${Icon} name=${one.kind === "error" ? "error" : "done"} />
      <div><strong>${one.text}</strong>${one.detail && html`<p>${one.detail}</p>`}</div>
      <button class="plain" aria-label="Close this message" onClick=${() => change(toasts.filter((each) => each.id !== one.id))}><${Icon} name="close" /></button>
    </div>`)}
  </div></div>`;
}

/** Why data is missing, or old (`stale`), and a way to try again. */
export function ErrorBox({ error, again, stale = false }) {
  return html`<div class="notice error" role="alert"><${Icon} name="error" /><div>
    <strong>${error.title ?? "Something failed in this page"}</strong>
    <p>${error.detail || error.message}${stale ? " What you see is from before." : ""}</p>
    ${error.fields?.length > 0 && html`<ul>${error.fields.map((each) => html`<li><code>${each.field}</code> ${each.detail}</li>`)}</ul>`}
    </div>${again && html`<button onClick=${again}>Try again</button>`}</div>`;
}

export const Note = ({ kind = "info", children }) => html`<div class=${`notice ${kind}`}><${Icon} name=${kind === "warning" ? "alarms" : kind === "error" ? "error" : "done"} /><div>${children}</div></div>`;

export const Empty = ({ title, children }) => html`<div class="empty"><p class="lead">${title}</p>${children && html`<p>${children}</p>`}</div>`;

/** What is missing in a list of all members of a cluster: the entries of those that did not answer. */
export function Missing({ meta, what }) {
  if (!meta?.silent?.length) return null;
  const one = meta.silent.length === 1;
  return html`<div class="notice warning" role="status"><div><strong>The list is not complete</strong>
    <p>${one ? "Node" : "Nodes"} ${meta.silent.join(", ")} ${one ? "does" : "do"} not answer: ${one ? "its" : "their"} ${what} are missing.</p></div></div>`;
}
