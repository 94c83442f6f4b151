// Dialogs: the browser's own, which keep the focus inside, and close with Escape.
import { html, useEffect, useId, useRef, useState } from "../html.js";
import { ErrorBox } from "./notices.js";
import { Icon } from "./icons.js";

/** A dialog that is open as long as it is drawn. `onClose` is called when the user leaves it. */
export function Dialog({ title, onClose, children, wide = false }) {
  const element = useRef(null);
  const name = useId();
  useEffect(() => {
    const before = document.activeElement;
    element.current.showModal();
    return () => { before?.isConnected && before.focus?.(); };
  }, []);
  return html`<dialog ref=${element} class=${wide ? "wide" : ""} aria-labelledby=${name} onCancel=${(event) => { event.preventDefault(); onClose(); }}
      onMouseDown=${(event) => { if (event.target === element.current) onClose(); }}>
    <div class="inside">
      <header><h2 id=${name}>${title}</h2><button class="plain" aria-label="Close" onClick=${onClose}><${Icon} name="close" /></button></header>
      ${children}
    </div>
  </dialog>`;
}

/**
 * A question before an action that cannot be taken back. `work` returns a promise; while it runs, the dialog stays and
 * says so; if it fails, the dialog tells why.
 */
export function Confirm({ title, children, action, work, onClose, disabled = false, danger = true }) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState(null);
  const run = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      await work();
      onClose(true);
    } catch (failure) {
      setError(failure);
      setBusy(false);
    }
  };
  return html`<${Dialog} title=${title} onClose=${() => onClose(false)}>
    <form onSubmit=${run}>
      <div class="body">${children}${error && html`<${ErrorBox} error=${error} />`}</div>
      <footer><button type="button" onClick=${() => onClose(false)}>Cancel</button>
        <button class=${danger ? "danger" : "primary"} disabled=${busy || disabled}>${busy ? "Working…" : action}</button></footer>
    </form>
  <//>`;
}
