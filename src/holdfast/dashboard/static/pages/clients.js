// The list of clients, with a search that the address keeps.
import { html, useState } from "../html.js";
import { getPage } from "../api.js";
import { useEvents } from "../events.js";
import { count, plural } from "../format.js";
import { Loaded, useLoaded } from "../loaded.js";
import { go, href } from "../router.js";
import { Text } from "../text.js";
import { Ago } from "../time.js";
import { Choice, Search, TextField } from "../parts/fields.js";
import { Missing } from "../parts/notices.js";
import { PageHead } from "../parts/shell.js";
import { Pager, Table, usePages } from "../parts/table.js";
import { Icon } from "../parts/icons.js";

const LIMIT = 100;
const STATES = [["", "any state"], ["connected", "connected"], ["disconnected", "disconnected"]];
const BY = [["like_clientid", "Client Identifier"], ["like_username", "user name"], ["ip_address", "address"]];

export const clientLink = (id, more = {}) => href("clients", { id, ...more });
export const stateOf = (row) => html`<span class=${`state ${row.connected ? "ok" : "idle"}`}><i aria-hidden="true"></i>${row.connected ? "connected" : "away"}</span>`;

export function Clients({ params }) {
  const by = BY.some(([each]) => each === params.by) ? params.by : "like_clientid";
  const search = { [by]: params.q, conn_state: params.state, listener: params.listener };
  const key = JSON.stringify(search);
  const pages = usePages(key);
  const list = useLoaded((signal) => getPage("/clients", { ...search, limit: LIMIT, cursor: pages.cursor }, signal), [key, pages.cursor]);
  const [news, setNews] = useState(0);
  useEvents({ kinds: ["clients"] }, () => setNews((before) => before + 1));
  const change = (more) => go("clients", { ...params, ...more }, true);
  const refresh = () => { setNews(0); list.reload(); };
  return html`<${PageHead} title="Clients"><button onClick=${refresh}><${Icon} name="refresh" />${news ? `${plural(news, "change")} since` : "Refresh"}</button><//>
    <div class="filters">
      <${Search} main label="Search clients" value=${params.q} onValue=${(q) => change({ q })} placeholder=${by === "ip_address" ? "an address" : "a part of the name"} />
      <${Choice} label="in" value=${by} onValue=${(next) => change({ by: next })} options=${BY} />
      <${Choice} label="that are" value=${params.state ?? ""} onValue=${(state) => change({ state })} options=${STATES} />
    </div>
    <${Loaded} from=${list} lines=${10}>${(answer) => html`
      <${Missing} meta=${answer.meta} what="clients" />
      <${Table} caption="Clients" columns=${answer.meta.silent ? OF_MEMBERS : COLUMNS} rows=${answer.data} keyOf=${(row) => `${row.node}\n${row.clientid}`} open=${(row) => go("clients", { id: row.clientid })}
        empty=${params.q || params.state ? "No client matches this search." : "No client is connected, and no Session is kept."} />
      <${Pager} pages=${pages} meta=${answer.meta}>${plural(answer.data.length, "client")} on this page.<//>`}<//>`;
}

const COLUMNS = [
  { title: "Client Identifier", wide: true, cell: (row) => html`<a href=${clientLink(row.clientid)}><${Text} text=${row.clientid} mono empty="(empty)" /></a>` },
  { title: "State", cell: stateOf },
  { title: "User name", named: true, hide: "phone", cell: (row) => html`<${Text} text=${row.username} />` },
  { title: "Address", hide: "narrow", cell: (row) => (row.ip_address ? html`<span class="mono">${row.ip_address}</span>` : html`<span class="quiet">–</span>`) },
  { title: "Protocol", tight: true, hide: "narrow", cell: (row) => protocol(row) },
  { title: "Since", cell: (row) => html`<${Ago} at=${row.connected ? row.connected_at : row.disconnected_at} />` },
  { title: "Subscriptions", hide: "phone", number: true, cell: (row) => count(row.subscriptions_cnt) },
  { title: "Queue", number: true, hide: "phone", cell: (row) => count(row.mqueue_len) },
  { title: "In flight", number: true, hide: "narrow", cell: (row) => count(row.inflight_cnt) },
];

/** in a cluster: with the node that has the client */
const OF_MEMBERS = [...COLUMNS.slice(0, 2), { title: "Node", number: true, hide: "phone", cell: (row) => row.node }, ...COLUMNS.slice(2)];

export const protocol = (row) => ({ 3: "MQTT 3.1", 4: "MQTT 3.1.1", 5: "MQTT 5.0" }[row.proto_ver] ?? "–");
