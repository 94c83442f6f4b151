// Answers of the API as the state of a component: what came last, whether more is coming, and what went wrong.
import { html, useCallback, useEffect, useRef, useState } from "./html.js";
import { BACK } from "./events.js";
import { ErrorBox } from "./parts/notices.js";

/**
 * Load with `load(signal)` whenever `inputs` change. While it loads again, the earlier data stays.
 * `load` may be null: then there is nothing to load.
 */
export function useLoaded(load, inputs) {
  const [state, setState] = useState({ data: null, error: null, loading: true });
  const [turn, setTurn] = useState(0);
  const latest = useRef(load);
  latest.current = load;
  useEffect(() => {
    if (!latest.current) {
      setState({ data: null, error: null, loading: false });
      return undefined;
    }
    const control = new AbortController();
    setState((before) => ({ ...before, loading: true }));
    latest.current(control.signal).then(
      (data) => control.signal.aborted || setState({ data, error: null, loading: false }),
      (error) => control.signal.aborted || setState((before) => ({ data: before.data, error, loading: false })),
    );
    return () => control.abort();
  }, [...inputs, turn]);
  const reload = useCallback(() => setTurn((before) => before + 1), []);
  const missed = state.error?.status === 0;
  useEffect(() => {  // what the network has kept away comes by itself when the network is back
    if (!missed) return undefined;
    addEventListener(BACK, reload);
    return () => removeEventListener(BACK, reload);
  }, [missed]);
  const change = useCallback((next) => setState((before) => ({ ...before, data: next(before.data) })), []);
  return { ...state, reload, change };
}

/** What was loaded, or why there is nothing yet. `children` is a function of the data. */
export function Loaded({ from, children, lines = 4 }) {
  if (from.data === null && from.error) return html`<${ErrorBox} error=${from.error} again=${from.reload} />`;
  if (from.data === null) return html`<${Placeholder} lines=${lines} />`;
  return html`${from.error && html`<${ErrorBox} error=${from.error} again=${from.reload} stale />`}
    <div class=${from.loading ? "refreshing" : ""}>${children(from.data)}</div>`;
}

/** Grey lines where data will be. */
export function Placeholder({ lines }) {
  return html`<div class="placeholder" role="status" aria-label="Loading">${Array.from({ length: lines }, () => html`<span></span>`)}</div>`;
}

/** Call `work` every `seconds` while the page is visible. */
export function useEvery(seconds, work) {
  const latest = useRef(work);
  latest.current = work;
  useEffect(() => {
    if (!seconds) return undefined;
    const timer = setInterval(() => document.hidden || latest.current(), seconds * 1000);
    return () => clearInterval(timer);
  }, [seconds]);
}
