// Clearing messages: the dialog counts them first; a job of the broker clears them.
import { html, useEffect, useRef, useState } from "../../html.js";
import { del, finished } from "../../api.js";
import { count, plural } from "../../format.js";
import { Text } from "../../text.js";
import { Dialog } from "../../parts/dialog.js";
import { Check, TextField } from "../../parts/fields.js";
import { ErrorBox, toast } from "../../parts/notices.js";
import { forgetTree } from "./tree.js";

const MANY = 1000;

/** The messages that an action takes: those of a Topic Filter that meet the conditions of `narrowed`, such as {publisher}. */
export const Selected = ({ filter, narrowed }) => html`<p>Topics: <${Text} text=${filter} mono />${Object.entries(narrowed).map(([name, value]) => html`, ${name.replace("_", " ")} <${Text} text=${value} mono />`)}</p>`;

/** `narrowed`: further conditions, as for `Selected`. */
export function Clear({ filter, narrowed = {}, onClose }) {
  const [state, setState] = useState({ step: "counting", found: 0, cleared: 0, error: null });
  const [quiet, setQuiet] = useState(false);
  const [typed, setTyped] = useState("");
  const stop = useRef(new AbortController());
  const params = { topic: filter, ...narrowed };
  const each = async (dryRun, told) => {
    let sum = 0;
    let cursor;
    do {
      let answer = await del("/mqtt/retainer/messages", { ...params, dry_run: dryRun || undefined, quiet: quiet || undefined, cursor }, stop.current.signal, !dryRun);
      if (answer?.accepted) answer = await finished(answer, (job) => told(sum + (job.progress?.done ?? job.progress?.count ?? 0)), stop.current.signal);
      sum += answer?.count ?? 0;
      told(sum);
      cursor = answer?.meta?.hasnext ? answer.meta.cursor : null;
    } while (cursor !== null);
    return sum;
  };
  const tell = async () => {
    setState({ step: "counting", found: 0, cleared: 0, error: null });
    try {
      const found = await each(true, (sum) => setState((before) => ({ ...before, found: sum })));
      setState({ step: "counted", found, cleared: 0, error: null });
    } catch (error) {
      if (!stop.current.signal.aborted) setState((before) => ({ ...before, step: "failed", error }));
    }
  };
  const work = async () => {
    setState((before) => ({ ...before, step: "clearing", error: null }));
    let cleared = 0;
    try {
      cleared = await each(false, (sum) => { cleared = sum; setState((before) => ({ ...before, cleared: sum })); });
      toast(`Cleared ${plural(cleared, "message")}`);
      forgetTree();
      onClose(true);
    } catch (error) {
      if (stop.current.signal.aborted) { toast(`Stopped: ${plural(cleared, "message")} cleared`); forgetTree(); onClose(true); }
      else setState((before) => ({ ...before, step: "failed", error }));
    }
  };
  useEffect(() => { tell(); return () => stop.current.abort(); }, []);
  const { step, found, cleared, error } = state;
  const sure = found < MANY || typed.replaceAll(",", "").trim() === String(found);
  return html`<${Dialog} title="Clear retained messages" onClose=${() => { stop.current.abort(); onClose(false); }}>
    <div class="body">
      <${Selected} filter=${filter} narrowed=${narrowed} />
      <p aria-live="polite">${step === "counting" ? `Counting… ${found ? count(found) : ""}` : step === "clearing" ? html`<progress max=${found} value=${cleared} aria-label="Cleared messages"></progress> ${count(cleared)} of ${count(found)} cleared` : found ? html`<b>${plural(found, "message")}</b> will be cleared. Subscribers get an empty message for each.` : step === "counted" ? "No message matches: there is nothing to clear." : ""}</p>
      ${step === "counted" && found > 0 && html`<${Check} label="Do not send the empty messages" hint="subscribers then learn nothing of it" value=${quiet} onValue=${setQuiet} />
        <p class="quiet">If a history is kept, they can be restored from it.</p>
        ${found >= MANY && html`<${TextField} label=${`Type ${found} to confirm`} value=${typed} onValue=${setTyped} inputmode="numeric" />`}`}
      ${error && html`<${ErrorBox} error=${error} again=${tell} />`}
    </div>
    <footer><button onClick=${() => { stop.current.abort(); if (step !== "clearing") onClose(false); }}>${step === "clearing" ? "Stop" : "Cancel"}</button>
      <button class="danger" disabled=${step !== "counted" || !found || !sure} onClick=${work}>Clear ${found ? plural(found, "message") : ""}</button></footer>
  <//>`;
}
