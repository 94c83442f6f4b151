// Restoring the messages of an earlier time: first a dry run that counts, part by part, then a job of the broker.
import { html, useRef, useState } from "../../html.js";
import { finished, post } from "../../api.js";
import { count, plural } from "../../format.js";
import { Text } from "../../text.js";
import { Exact, fromLocalInput, localInput } from "../../time.js";
import { Dialog } from "../../parts/dialog.js";
import { Check, Choice, TextField } from "../../parts/fields.js";
import { ErrorBox, toast } from "../../parts/notices.js";
import { Selected } from "./clearing.js";
import { forgetTree } from "./tree.js";

const PART = 1000;
const RECENT = [["5 min ago", 300], ["1 hour ago", 3600], ["yesterday", 86400], ["a week ago", 604800]];
const COUNTS = [
  ["restored", "Restored"], ["cleared", "Cleared: no message then"], ["kept", "Kept: no message then"], ["unchanged", "Unchanged: the same message then"],
  ["expired", "Left: the message of then has expired"], ["changed", "Left: changed meanwhile"], ["refused", "Refused by a limit"],
];

/**
 * `filter`: the topics; `topic`: one topic that may be restored alone, or with all below it, also with those that have no
 * message any more; `narrowed`: conditions that the present messages meet; `at`: the time, if it is known.
 */
export function Restore({ filter: first, topic = "", narrowed = {}, at, onClose }) {
  const [filter, setFilter] = useState(first);
  const [time, setTime] = useState(localInput(at ?? Date.now() - 3600_000));
  const [clear, setClear] = useState(false);
  const [state, setState] = useState({ step: "ask", counts: null, error: null });
  const stop = useRef(null);
  const chosen = at ?? fromLocalInput(time);
  const again = (change) => (value) => { change(value); setState({ step: "ask", counts: null, error: null }); };

  const run = async (dryRun) => {
    const control = stop.current = new AbortController();
    setState((before) => ({ step: dryRun ? "trying" : "working", counts: dryRun ? null : before.counts, done: null, error: null }));
    let sum = {};
    let part = {};
    try {
      let cursor;
      do {
        const params = { topic: filter, ...narrowed, at: chosen, dry_run: dryRun, clear, limit: dryRun ? PART : undefined, cursor };
        let answer = await post("/mqtt/retainer/restore", {}, params, control.signal, !dryRun);
        if (answer.accepted) answer = await finished(answer, (job) => { part = job.result ?? {}; setState((before) => ({ ...before, done: part, worked: job.progress?.done ?? 0 })); }, control.signal);
        sum = sumOf(sum, answer);
        const done = sum;
        setState((before) => ({ ...before, done }));
        cursor = answer.meta?.hasnext ? answer.meta.cursor : null;
      } while (cursor !== null && !control.signal.aborted);
      if (dryRun) { setState({ step: "tried", counts: sum, error: null }); return; }
      toast(`Restored ${plural(sum.restored ?? 0, "topic")}`, "done", sum.refused ? `Refused: ${count(sum.refused)}${sum.reason ? `: ${sum.reason}` : ""}` : "");
      forgetTree();
      onClose(true);
    } catch (error) {
      if (control.signal.aborted) setState({ step: "ask", counts: null, error: { title: "Stopped", detail: `Restored before: ${plural(part.restored ?? 0, "topic")}.` } });
      else setState({ step: "ask", counts: null, error });
    }
  };
  const { step, counts, done, error } = state;
  const busy = step === "trying" || step === "working";
  const changes = (counts?.restored ?? 0) + (counts?.cleared ?? 0);
  const shown = step === "working" ? null : counts ?? done;
  return html`<${Dialog} title="Restore earlier messages" onClose=${() => { stop.current?.abort(); onClose(false); }}>
    <div class="body">
      ${topic !== "" && html`<${Choice} label="Restore" value=${filter} onValue=${again(setFilter)} options=${[[`${topic}/#`, "this topic and all below it"], [topic, "this topic only"]]} />`}
      <${Selected} filter=${filter} narrowed=${narrowed} />
      ${at ? html`<p>As of <${Exact} at=${at} />.</p>` : html`<${TextField} label="As of (time of this computer)" type="datetime-local" step="1" value=${time} max=${localInput(Date.now())} onValue=${again(setTime)} disabled=${busy} />
        <div class="buttons">${RECENT.map(([title, seconds]) => html`<button type="button" class="small" disabled=${busy} onClick=${() => again(setTime)(localInput(Date.now() - seconds * 1000))}>${title}</button>`)}</div>`}
      <${Check} label="Also clear topics that had no message then" value=${clear} onValue=${again(setClear)} />
      <div aria-live="polite" class="counts">
        ${shown && html`<dl class="facts">${COUNTS.filter(([name]) => shown[name]).map(([name, title]) => html`<div key=${name}><dt>${title}</dt><dd>${plural(shown[name], "topic")}</dd></div>`)}</dl>`}
        ${shown?.left_out?.length > 0 && html`<p class="quiet">The history does not know some topics then or now, and they stay: <${Text} text=${shown.left_out.join(", ")} mono /></p>`}
        ${step === "tried" && !changes && html`<p>Nothing would change.</p>`}
        ${busy && html`<p class="quiet">${step === "trying" ? "Counting…" : html`<progress max=${changes} value=${state.worked ?? 0} aria-label="Restored topics"></progress> ${count(state.worked ?? 0)} of ${count(changes)} changed`}</p>`}
      </div>
      ${error && html`<${ErrorBox} error=${error} />`}
    </div>
    <footer>${busy ? html`<button onClick=${() => stop.current.abort()}>Stop</button>` : html`<button onClick=${() => onClose(false)}>Cancel</button>`}
      <button class=${step === "tried" ? "" : "primary"} disabled=${busy || !chosen} onClick=${() => run(true)}>Dry run</button>
      <button class="danger" disabled=${step !== "tried" || !changes} onClick=${() => run(false)}>${counts ? `Change ${plural(changes, "topic")}` : "Restore"}</button></footer>
  <//>`;
}

function sumOf(sum, counts) {
  const next = { ...sum };
  for (const [name] of COUNTS) next[name] = (sum[name] ?? 0) + (counts[name] ?? 0);
  next.left_out = [...new Set([...(sum.left_out ?? []), ...(counts.left_out ?? [])])];
  next.reason = counts.reason || sum.reason;
  return next;
}
