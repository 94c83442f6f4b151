// Alarms: the present ones, and those that are over.
import { html, useState } from "../html.js";
import { del, get } from "../api.js";
import { useEvents } from "../events.js";
import { count, duration } from "../format.js";
import { Loaded, useLoaded } from "../loaded.js";
import { go } from "../router.js";
import { Text } from "../text.js";
import { Ago } from "../time.js";
import { Confirm } from "../parts/dialog.js";
import { Segments } from "../parts/fields.js";
import { toast } from "../parts/notices.js";
import { PageHead } from "../parts/shell.js";
import { Table } from "../parts/table.js";
import { allowed, useCaller } from "../session.js";

const LIMIT = 500;

export function Alarms({ params }) {
  const past = params.show === "past";
  const caller = useCaller();
  const list = useLoaded((signal) => get("/alarms", { activated: !past, limit: LIMIT }, signal), [past]);
  const [clearing, setClearing] = useState(false);
  useEvents({ kinds: ["alarms"] }, () => list.reload());
  const columns = [
    { title: "Severity", tight: true, cell: (row) => html`<span class=${`state ${row.severity === "critical" ? "bad" : "wait"}`}><i aria-hidden="true"></i>${row.severity}</span>` },
    { title: "Alarm", wide: true, cell: (row) => html`<strong><${Text} text=${row.message ?? row.name} /></strong><div class="quiet small"><span class="mono">${row.name}</span>${details(row.details)}</div>` },
    { title: "Since", cell: (row) => html`<${Ago} at=${row.activated_at} />` },
    ...(past ? [{ title: "Lasted", hide: "phone", cell: (row) => duration(row.duration / 1000) }] : []),
  ];
  return html`<${PageHead} title="Alarms"><${Segments} label="Which alarms" value=${past ? "past" : "now"} onValue=${(show) => go("alarms", { show: show === "past" ? show : "" }, true)} options=${[["now", "Active"], ["past", "Past"]]} />
      ${past && allowed(caller, "admin") && html`<button disabled=${!list.data?.data.length} onClick=${() => setClearing(true)}>Forget past alarms…</button>`}<//>
    <${Loaded} from=${list}>${(answer) => html`<${Table} caption=${past ? "Past alarms" : "Active alarms"} rows=${answer.data} keyOf=${(row) => `${row.name}${row.activated_at}`} columns=${columns} empty=${past ? "No alarm is remembered." : "No alarm is active."} />
      ${answer.meta.hasnext && html`<p class="pager quiet">There are more: these are ${count(answer.data.length)}.</p>`}`}<//>
    ${clearing && html`<${Confirm} title="Forget the past alarms?" action="Forget them" onClose=${() => setClearing(false)} work=${async () => { await del("/alarms"); toast("Forgot the past alarms"); list.reload(); }}><p>The list of past alarms becomes empty. Active alarms stay, and the log keeps its lines.</p><//>`}`;
}

function details(given) {
  if (!given || typeof given !== "object") return given ? html` · <${Text} text=${given} />` : null;
  return Object.entries(given).map(([name, value]) => html` · <${Text} text=${name} /> <${Text} text=${typeof value === "object" ? JSON.stringify(value) : value} />`);
}
