// The replays of retained messages that run now, with their progress, and their end.
import { html, useRef, useState } from "../html.js";
import { del, get } from "../api.js";
import { useEvents } from "../events.js";
import { count, duration, plural, rate } from "../format.js";
import { Loaded, useEvery, useLoaded } from "../loaded.js";
import { Text, shortened, visible } from "../text.js";
import { Confirm } from "../parts/dialog.js";
import { Empty, toast } from "../parts/notices.js";
import { PageHead } from "../parts/shell.js";
import { Table } from "../parts/table.js";
import { allowed, useCaller } from "../session.js";
import { clientLink } from "./clients.js";

const STATES = { committing: "waits for a commit", waiting: "waits for another replay", ready: "waits for its turn", reading: "reads", resting: "waits for the client", throttled: "waits for a rate", over: "ends" };

export function Replays() {
  const caller = useCaller();
  const list = useLoaded((signal) => get("/mqtt/retainer/replays", {}, signal), []);
  const [ending, setEnding] = useState(null);
  const speeds = useRef(new Map());
  useEvents({ kinds: ["replays"] }, () => list.reload());
  useEvery(1, list.reload);
  const rows = list.data?.data ?? [];
  for (const row of rows) measure(speeds.current, row);
  const may = allowed(caller, "admin");
  return html`<${PageHead} title="Replays" />
    <p class="intro">A replay sends retained messages to a client that has subscribed. Replays take turns, and a slow client delays only its own.</p>
    <${Loaded} from=${list}>${() => (rows.length ? html`<${Table} caption="Running replays" rows=${rows} keyOf=${(row) => row.id} columns=${[
      { title: "Client", named: true, cell: (row) => html`<a href=${clientLink(row.clientid)}><${Text} text=${row.clientid} mono empty="(empty)" /></a><div class="small only-phone"><${Text} text=${row.topic} mono /></div>` },
      { title: "Topic Filter", wide: true, hide: "phone", cell: (row) => html`<${Text} text=${row.topic} mono />` },
      { title: "Progress", cell: (row) => html`<${Progress} row=${row} />` },
      { title: "Rate", number: true, hide: "phone", cell: (row) => rate(row.rate ?? speeds.current.get(row.id)?.rate) },
      { title: "State", tight: true, hide: "phone", cell: (row) => STATES[row.state] ?? row.state },
      { title: "Runs for", number: true, hide: "narrow", cell: (row) => duration(row.age) },
      { title: "Now at", named: true, hide: "medium", cell: (row) => html`<span class="clip" title=${row.cursor && visible(row.cursor)}><${Text} text=${row.cursor && shortened(row.cursor, 60)} mono /></span>` },
      ...(may ? [{ title: html`<span class="unseen">Actions</span>`, tight: true, cell: (row) => html`<button onClick=${() => setEnding(row)}>End…</button>` }] : []),
    ]} />` : html`<${Empty} title="No replay runs.">One begins when a client subscribes. This page follows it without a refresh.<//>`)}<//>
    ${ending && html`<${Confirm} title="End this replay?" action="End the replay" onClose=${() => setEnding(null)} work=${async () => { await del("/mqtt/retainer/replay", { id: ending.id }); toast(`Ended the replay to ${visible(shortened(ending.clientid, 60))}`); list.reload(); }}>
      <p>The replay of <${Text} text=${ending.topic} mono /> to <${Text} text=${ending.clientid} mono empty="(empty)" /> has sent <b>${plural(ending.sent, "message")}</b>.
        It ends, and so does the connection of the client, which would miss the others otherwise.</p><//>`}`;
}

function Progress({ row }) {
  if (!row.total) return html`<span class="progress-text">${count(row.sent)} sent</span>`;
  return html`<span class="progress-text"><progress max=${row.total} value=${row.sent} aria-label="Sent messages"></progress> ${Math.min(100, Math.floor(row.sent / row.total * 100))} % <span class="quiet">${count(row.sent)} of ${row.total_exact === false ? "about " : ""}${count(row.total)}</span></span>`;
}

/** Messages a second since the last look, for brokers that do not tell a rate. */
function measure(speeds, row) {
  const before = speeds.get(row.id);
  if (before && row.age > before.age) speeds.set(row.id, { age: row.age, sent: row.sent, rate: (row.sent - before.sent) / (row.age - before.age) });
  else if (!before) speeds.set(row.id, { age: row.age, sent: row.sent });
}
