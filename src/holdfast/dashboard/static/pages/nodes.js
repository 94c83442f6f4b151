// The nodes: this broker, or all members of its cluster, with their leases and clients.
import { html, useState } from "../html.js";
import { del, get, post } from "../api.js";
import { count, duration } from "../format.js";
import { Loaded, useEvery, useLoaded } from "../loaded.js";
import { allowed, useCaller } from "../session.js";
import { Text } from "../text.js";
import { Ago } from "../time.js";
import { Confirm } from "../parts/dialog.js";
import { toast } from "../parts/notices.js";
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
    <${Loaded} from=${list}>${(nodes) => html`<${List} nodes=${nodes} reload=${list.reload} />`}<//>`;
}

function List({ nodes, reload }) {
  const admin = allowed(useCaller(), "admin");
  const [chosen, setChosen] = useState(null);
  const together = nodes.some((node) => node.state !== undefined);
  const columns = COLUMNS.filter((column) => together || !column.together);
  if (together && admin) columns.push({ title: html`<span class="unseen">Actions</span>`, tight: true, cell: (node) => html`<${Action} node=${node} onChosen=${setChosen} />` });
  return html`<${Table} caption="Nodes" rows=${nodes} keyOf=${(node) => node.node} columns=${columns} empty="There is no node." />
    ${together ? html`<p class="quiet">A member that does not answer is shown as the database knows it.</p>` : html`<p class="quiet">This broker is alone: it is no member of a cluster.</p>`}
    ${chosen && html`<${Drain} node=${chosen} onClose=${() => { setChosen(null); reload(); }} />`}`;
}

/** The button that begins or ends the draining of a node that serves clients. */
function Action({ node, onChosen }) {
  const title = { member: "Drain…", draining: "Serve again…" }[node.state];
  return title && html`<button aria-label=${`${title} node ${node.node}`} onClick=${() => onChosen(node)}>${title}</button>`;
}

function Drain({ node, onClose }) {
  const draining = node.state === "draining";
  const work = async () => {
    await (draining ? del : post)(`/nodes/${encodeURIComponent(node.node)}/drain`);
    toast(draining ? `Node ${node.node} serves clients again` : `Node ${node.node} sends its clients to other members`);
  };
  return draining
    ? html`<${Confirm} title=${`Let node ${node.node} serve clients again?`} action="Serve again" danger=${false} work=${work} onClose=${onClose}><p>It admits clients, and disconnects no more of them.</p><//>`
    : html`<${Confirm} title=${`Drain node ${node.node}?`} action="Drain the node" work=${work} onClose=${onClose}><p>It admits no client any more, and disconnects those that it has, some each second. Clients of MQTT 5 are told the address of another member. It does not stop by itself.</p><//>`;
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
