// The nodes: this broker, or all members of its cluster, with their leases and clients.
import { html } from "../html.js";
import { get } from "../api.js";
import { count, duration } from "../format.js";
import { Loaded, useEvery, useLoaded } from "../loaded.js";
import { Text } from "../text.js";
import { Ago } from "../time.js";
import { PageHead } from "../parts/shell.js";
import { Table } from "../parts/table.js";

/** the colours of states, and their meanings */
const STATES = {
  joining: ["idle", "restores its Sessions"],
  member: ["ok", ""],
  draining: ["idle", "sends its clients to other members"],
  silent: ["bad", "its lease has ended"],
  dead: ["bad", "another member has taken over"],
  left: ["idle", "removed"],
};

export function Nodes() {
  const list = useLoaded((signal) => get("/nodes", {}, signal), []);
  useEvery(5, list.reload);
  return html`<${PageHead} title="Nodes" />
    <${Loaded} from=${list}>${(nodes) => html`<${List} nodes=${nodes} />`}<//>`;
}

function List({ nodes }) {
  const together = nodes.some((node) => node.state !== undefined);
  const columns = COLUMNS.filter((column) => together || !column.together);
  return html`<${Table} caption="Nodes" rows=${nodes} keyOf=${(node) => node.node} columns=${columns} empty="There is no node." />
    ${together ? html`<p class="quiet">A member that does not answer is shown as the database knows it.</p>` : html`<p class="quiet">This broker is alone: it is no member of a cluster.</p>`}`;
}

function State({ node }) {
  const [colour, meaning] = STATES[node.state] ?? [node.node_status === "running" ? "ok" : "bad", ""];
  const more = node.silent ? "does not answer" : meaning;
  return html`<span class=${`state ${node.silent ? "bad" : colour}`}><i aria-hidden="true"></i>${node.state ?? node.node_status}</span>${more && html`<br /><small>${more}</small>`}`;
}

const COLUMNS = [
  { title: "Node", tight: true, cell: (node) => html`<strong>${node.node}</strong>${node.local && html` <small>(this one)</small>`}` },
  { title: "State", cell: (node) => html`<${State} node=${node} />` },
  { title: "Address", wide: true, together: true, hide: "phone", cell: (node) => (node.address ? html`<${Text} mono text=${node.address} />` : "–") },
  { title: "Connected", number: true, cell: (node) => count(node.live_connections) },
  { title: "Sessions", number: true, hide: "phone", cell: (node) => count(node.connections) },
  { title: "Behind by", number: true, together: true, hide: "phone", cell: (node) => count(node.lag) },
  { title: "Lease until", together: true, hide: "narrow", cell: (node) => html`<${Ago} at=${node.lease_until} />` },
  { title: "Incarnation", number: true, together: true, hide: "narrow", cell: (node) => count(node.incarnation) },
  { title: "Carrier", together: true, hide: "medium", cell: (node) => node.carrier ?? "–" },
  { title: "Version", hide: "medium", cell: (node) => html`<${Text} text=${node.version ?? "–"} />` },
  { title: "Up", hide: "narrow", cell: (node) => (node.uptime === undefined ? "–" : duration(node.uptime / 1000)) },
];
