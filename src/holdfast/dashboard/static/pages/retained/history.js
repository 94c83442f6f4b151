// The history of a topic: its values over time, its changes, and the difference of two of them.
import { html, useEffect, useMemo, useRef, useState } from "../../html.js";
import { get } from "../../api.js";
import { bytes, count, plural } from "../../format.js";
import { Placeholder } from "../../loaded.js";
import { bytesIn, preview } from "../../payload.js";
import { Text } from "../../text.js";
import { Ago, Exact, moment } from "../../time.js";
import { Empty, ErrorBox } from "../../parts/notices.js";
import { allowed, useCaller } from "../../session.js";
import { By, Op } from "./changes.js";
import { Difference } from "./difference.js";
import { Restore } from "./restoring.js";
import { SaveShown } from "./saving.js";
import { Timeline, number, useNumbers } from "./timeline.js";
import { Payload } from "./topic.js";

const LIMIT = 100;

/** `turn` changes when the topic has got a new message; `onChanged` is called when the user has restored one. */
export function History({ topic, turn, onChanged }) {
  const caller = useCaller();
  const [pages, setPages] = useState({ rows: null, meta: null, error: null, loading: true });
  const [picked, setPicked] = useState({ from: null, to: null });
  const [restoring, setRestoring] = useState(null);
  const panel = useRef(null);
  const load = async (cursor, signal) => {
    setPages((before) => ({ ...before, loading: true, error: null }));
    try {
      const answer = await get("/mqtt/retainer/history", { topic, first: "newest", limit: LIMIT, cursor }, signal);
      setPages((before) => ({ rows: cursor ? [...before.rows, ...answer.data] : answer.data, meta: answer.meta, error: null, loading: false }));
    } catch (error) {
      if (!signal?.aborted) setPages((before) => ({ ...before, error, loading: false }));
    }
  };
  useEffect(() => {
    const control = new AbortController();
    load(undefined, control.signal);
    return () => control.abort();
  }, [topic, turn]);
  const { rows, meta, error, loading } = pages;
  const entries = useMemo(() => (rows ?? []).map((row) => ({ row, bytes: row.payload ? bytesIn(row.payload) : null })), [rows]);
  const numbers = useNumbers(entries);
  if (rows === null) return error ? (error.status === 404 || error.status === 409 ? html`<${Empty} title="No history is kept.">${error.detail}<//>` : html`<${ErrorBox} error=${error} again=${() => load()} />`) : html`<${Placeholder} lines=${6} />`;
  if (!rows.length) return html`<${Empty} title="The history has no change of this topic.">It may never have had a message, or its changes are older than the history.<//>`;
  const to = rows.find((row) => row.seq === picked.to) ?? rows[0];
  const from = rows.find((row) => row.seq === picked.from) ?? rows[rows.indexOf(to) + 1];
  const pick = (next) => setPicked({ from: from?.seq ?? null, to: to.seq, ...next });
  const show = (row) => { setPicked({ from: null, to: row.seq }); setTimeout(() => panel.current?.scrollIntoView({ block: "nearest" })); };
  return html`${numbers && html`<${Timeline} entries=${entries} numbers=${numbers} onPick=${show} />`}
    <div class="bar"><span class="quiet">${meta.hasnext ? `${count(rows.length)}+ changes` : plural(rows.length, "change")}, the newest first</span><span class="spring"></span><${SaveShown} rows=${rows} name="history" history /></div>
    <div class="table revisions" tabindex="0" role="group" aria-label="Changes of this topic"><table><caption class="unseen">Changes of this topic</caption>
      <thead><tr><th scope="col" class="tight"><span class="unseen">Compare </span>From</th><th scope="col" class="tight">To</th><th scope="col" class="tight">Time</th><th scope="col">Value</th><th scope="col" class="number hide-medium">Size</th></tr></thead>
      <tbody>${entries.map(({ row, bytes: payload }, at) => html`<tr key=${row.seq} class=${row === to ? "selected" : ""} onClick=${(event) => { if (!event.target.closest("input, a, button")) show(row); }}>
        <td class="tight"><input type="radio" name="from" checked=${row === from} aria-label=${`Compare from the change of ${row.changed_at}`} onChange=${() => pick({ from: row.seq })} /></td>
        <td class="tight"><input type="radio" name="to" checked=${row === to} aria-label=${`Show, and compare to, the change of ${row.changed_at}`} onChange=${() => pick({ to: row.seq })} /></td>
        <td class="tight"><${Ago} at=${row.changed_at} /></td>
        <td class="grow clip">${row.op !== "set" ? html`<${Op} row=${row} /> <${By} row=${row} />` : payload ? html`${(numbers?.values[at] ?? null) !== null && numbers.name !== "$" && html`<b>${number(numbers.values[at])}</b> `}<${Beginning} bytes=${payload} />` : html`<span class="quiet">too large to show</span>`}</td>
        <td class="number hide-medium">${row.op === "set" ? bytes(row.size) : ""}</td></tr>`)}</tbody></table></div>
    ${error && html`<${ErrorBox} error=${error} stale />`}
    ${meta.hasnext && html`<p><button disabled=${loading} onClick=${() => load(meta.cursor)}>${loading ? "Loading…" : "Older changes"}</button></p>`}
    <section class="panel" ref=${panel}><div class="bar"><h3>Change of <${Exact} at=${to.changed_at} /></h3><span class="spring"></span>
        ${to.op === "set" && allowed(caller, "retained:write") && html`<button onClick=${() => setRestoring(to)}>Restore this…</button>`}</div>
      <p><${Op} row=${to} /> <${By} row=${to} /><span class="quiet">. Revision ${to.revision}.</span></p>
      ${to.payload !== undefined && to.op === "set" && html`<${Payload} key=${to.seq} base64=${to.payload} compact />`}
      ${from && from !== to && html`<h3>Difference to <${Exact} at=${from.changed_at} /></h3><${Difference} topic=${topic} from=${from} to=${to} />`}</section>
    ${restoring && html`<${Restore} filter=${topic} at=${restoring.changed_at} onClose=${(done) => { setRestoring(null); if (done) { load(); onChanged(); } }} />`}`;
}

function Beginning({ bytes: payload }) {
  const { text, kind, cut } = preview(payload);
  return html`<span class=${kind === "hex" ? "mono quiet" : "mono"}><${Text} text=${text} empty="" />${cut && "…"}</span>`;
}

export const momentOf = (row) => moment(row.changed_at) / 1000;
