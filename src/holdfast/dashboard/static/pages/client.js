// One client: what it has said, what it gets, what waits for it; and its end.
import { html, useState } from "../html.js";
import { del, get, post } from "../api.js";
import { bytes, count, duration, plural } from "../format.js";
import { Loaded, useEvery, useLoaded } from "../loaded.js";
import { go, href } from "../router.js";
import { Text, shortened, visible } from "../text.js";
import { Ago, Exact } from "../time.js";
import { Confirm } from "../parts/dialog.js";
import { Check, Tabs } from "../parts/fields.js";
import { CopyButton } from "../parts/copying.js";
import { PayloadView } from "../parts/payload-view.js";
import { bytesIn } from "../payload.js";
import { Empty, toast } from "../parts/notices.js";
import { PageHead } from "../parts/shell.js";
import { Table } from "../parts/table.js";
import { allowed, useCaller } from "../session.js";
import { BanForm } from "./bans.js";
import { protocol, stateOf } from "./clients.js";

const TABS = [["about", "About"], ["subscriptions", "Subscriptions"], ["queue", "Queue"], ["inflight", "In flight"]];
const path = (id) => `/clients/${encodeURIComponent(id.toWellFormed())}`;

export function Client({ id, params }) {
  const caller = useCaller();
  const client = useLoaded((signal) => get(path(id), {}, signal), [id]);
  const [dialog, setDialog] = useState(null);
  const tab = TABS.some(([each]) => each === params.tab) ? params.tab : "about";
  useEvery(5, client.reload);
  const admin = allowed(caller, "admin");
  const gone = client.error?.status === 404;
  return html`<${PageHead} back=${[href("clients"), "Clients"]} title=${html`<${Text} text=${id} mono empty="(empty)" />`}>
      <${CopyButton} text=${id} what="the Client Identifier" />
      ${admin && html`<button onClick=${() => setDialog("ban")}>Ban…</button>
      <button class="danger" disabled=${gone} onClick=${() => setDialog("kick")}>Kick…</button>`}
    <//>
    ${gone ? html`<${Empty} title="There is no such client.">It has left, and no Session of it is kept.<//>` : html`<${Loaded} from=${client} lines=${8}>${(row) => html`
      <${Tabs} label="Parts of the client" value=${tab} onValue=${(next) => go("clients", { id, tab: next }, true)} options=${TABS.map(([each, title]) => [each, title + number(each, row)])} />
      <section role="tabpanel" aria-label=${tab}>
        ${tab === "about" && html`<${About} row=${row} />`}
        ${tab === "subscriptions" && html`<${Subscriptions} id=${id} />`}
        ${tab === "queue" && html`<${Waiting} id=${id} what="mqueue_messages" empty="No messages wait for this client." />`}
        ${tab === "inflight" && html`<${Waiting} id=${id} what="inflight_messages" empty="No messages are in flight to this client." />`}
      </section>`}<//>`}
    ${dialog === "kick" && client.data && html`<${Kick} row=${client.data} onClose=${(done) => { setDialog(null); if (done) client.reload(); }} />`}
    ${dialog === "ban" && html`<${BanForm} kind="clientid" who=${id} onClose=${() => setDialog(null)} />`}`;
}

function number(tab, row) {
  const shown = { subscriptions: row.subscriptions_cnt, queue: row.mqueue_len, inflight: row.inflight_cnt }[tab];
  return shown === undefined ? "" : ` (${count(shown)})`;
}

function About({ row }) {
  const facts = [
    ["State", stateOf(row)],
    ["Connected", row.connected ? html`<${Exact} at=${row.connected_at} />` : html`until <${Exact} at=${row.disconnected_at} />`],
    ["User name", html`<${Text} text=${row.username} />`],
    ["Authenticated by", html`<${Text} text=${row.principal?.method} empty="nothing" />`],
    ["Address", html`<${Text} mono text=${row.ip_address && `${row.ip_address}${row.port ? `, port ${row.port}` : ""}`} />`],
    ["Listener", html`<${Text} text=${row.listener} />`],
    ["Protocol", protocol(row)],
    ["Keep Alive", row.keepalive ? duration(row.keepalive) : "off"],
    ["Session", html`<span>${row.clean_start ? "began anew" : "may be resumed"}, ${expiry(row.expiry_interval)}</span>`],
    ["Session created", html`<${Ago} at=${row.created_at} />`],
    ["Will", row.will === undefined ? "–" : row.will ? "yes" : "no"],
  ];
  const counters = [
    ["Subscriptions", count(row.subscriptions_cnt), "at most", row.subscriptions_max ? count(row.subscriptions_max) : "no limit"],
    ["Queued messages", count(row.mqueue_len), "at most", row.mqueue_max ? count(row.mqueue_max) : "no limit"],
    ["Queued bytes", bytes(row.mqueue_bytes), "unsent bytes of the connection", bytes(row.unsent_bytes)],
    ["Messages in flight", count(row.inflight_cnt), "at most", count(row.inflight_max)],
    ["QoS 2, not released", count(row.awaiting_rel_cnt), "at most", row.awaiting_rel_max ? count(row.awaiting_rel_max) : "no limit"],
  ];
  return html`<div class="columns"><dl class="facts">${facts.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
    <dl class="facts">${counters.map(([name, value, other, second]) => html`<div><dt>${name}</dt><dd><b>${value}</b> <span class="quiet">${other}</span> ${second}</dd></div>`)}</dl></div>`;
}

function expiry(seconds) {
  if (!seconds) return "ends with the connection";
  return seconds >= 0xffffffff ? "never expires" : `expires ${duration(seconds)} after the connection`;
}

function Subscriptions({ id }) {
  const list = useLoaded((signal) => get(`${path(id)}/subscriptions`, {}, signal), [id]);
  return html`<${Loaded} from=${list}>${(answer) => html`<${Table} caption="Subscriptions of this client" rows=${answer.data ?? answer} keyOf=${(row) => row.topic} empty="This client has no subscriptions." columns=${SUBSCRIPTION_COLUMNS} />`}<//>`;
}

const HANDLING = ["always", "if new", "never"];
export const SUBSCRIPTION_COLUMNS = [
  { title: "Topic Filter", wide: true, cell: (row) => html`<${Text} text=${row.topic} mono />` },
  { title: "QoS", number: true, cell: (row) => row.qos },
  { title: "No Local", hide: "phone", cell: (row) => (row.nl ? "yes" : "no") },
  { title: "Retain As Published", hide: "phone", cell: (row) => (row.rap ? "yes" : "no") },
  { title: "Retained messages", hide: "phone", cell: (row) => HANDLING[row.rh] ?? "–" },
];

function Waiting({ id, what, empty }) {
  const list = useLoaded((signal) => get(`${path(id)}/${what}`, { limit: 100, payload: "base64" }, signal), [id, what]);
  const [shown, setShown] = useState(null);
  return html`<${Loaded} from=${list}>${(answer) => html`<${Table} caption="Messages" rows=${answer.data} keyOf=${(row) => answer.data.indexOf(row)} empty=${empty} open=${(row) => setShown(shown === row ? null : row)} selected=${(row) => row === shown} columns=${[
      { title: "Topic", wide: true, cell: (row) => (row.topic === undefined ? html`<span class="quiet">${row.state ?? "no message"}</span>` : html`<button class="link" onClick=${() => setShown(shown === row ? null : row)}><${Text} text=${row.topic} mono /></button>`) },
      { title: "QoS", number: true, cell: (row) => row.qos },
      { title: "Size", number: true, cell: (row) => bytes(row.payload_size) },
      { title: "Expires", hide: "narrow", cell: (row) => html`<${Ago} at=${row.expires_at} empty="never" />` },
      { title: "From", named: true, hide: "phone", cell: (row) => html`<${Text} text=${row.from_clientid} mono />` },
    ]} />
    ${shown?.topic !== undefined && html`<section class="panel"><h2><${Text} text=${shown.topic} mono /></h2>${shown.payload === undefined ? html`<p class="quiet">The payload is too large to be shown here.</p>` : html`<${PayloadView} bytes=${bytesIn(shown.payload)} />`}</section>`}
    ${answer.meta?.hasnext && html`<p class="quiet">These are the first ${count(answer.data.length)} messages.</p>`}`}<//>`;
}

function Kick({ row, onClose }) {
  const [ban, setBan] = useState(false);
  const name = visible(shortened(row.clientid, 60));
  const work = async () => {
    if (ban) await post("/banned", { as: "clientid", who: row.clientid, reason: "kicked in the dashboard" });
    await del(path(row.clientid));
    toast(`Kicked ${name}`);
  };
  return html`<${Confirm} title="Kick this client?" action="Kick" work=${work} onClose=${onClose}>
    <p>The connection of <${Text} text=${row.clientid} mono /> ends at once, and its Session with it:
      ${" "}<b>${plural(row.subscriptions_cnt, "subscription")}</b> and <b>${plural((row.mqueue_len ?? 0) + (row.inflight_cnt ?? 0), "waiting message")}</b> are discarded.</p>
    <p class="quiet">Most clients connect again at once.</p>
    <${Check} label="Ban its Client Identifier, too" value=${ban} onValue=${setBan} /><//>`;
}
