// The listeners: where clients connect.
import { html } from "../html.js";
import { get } from "../api.js";
import { count } from "../format.js";
import { Loaded, useEvery, useLoaded } from "../loaded.js";
import { href } from "../router.js";
import { Text } from "../text.js";
import { PageHead } from "../parts/shell.js";
import { Table } from "../parts/table.js";

export function Listeners() {
  const list = useLoaded((signal) => get("/listeners", {}, signal), []);
  useEvery(5, list.reload);
  return html`<${PageHead} title="Listeners" />
    <${Loaded} from=${list}>${(answer) => html`<${Table} caption="Listeners" rows=${answer.data ?? answer} keyOf=${(row) => row.id ?? row.name} columns=${COLUMNS} empty="No listener is configured." />`}<//>`;
}

const COLUMNS = [
  { title: "Name", cell: (row) => html`<a href=${href("clients", { listener: row.name ?? row.id })}><${Text} text=${row.name ?? row.id} /></a>` },
  { title: "Protocol", cell: (row) => row.type ?? "–" },
  { title: "Address", wide: true, cell: (row) => html`<${Text} mono text=${row.bind ?? row.endpoint} />` },
  { title: "Accepts", cell: (row) => { const on = row.running ?? row.status?.running ?? row.enable; return html`<span class=${`state ${on ? "ok" : "bad"}`}><i aria-hidden="true"></i>${on ? "yes" : "no"}</span>`; } },
  { title: "Connections", number: true, cell: (row) => count(row.current_connections ?? row.status?.current_connections) },
  { title: "At most", number: true, hide: "phone", cell: (row) => { const most = row.max_connections ?? row.status?.max_connections; return typeof most === "number" && most > 0 ? count(most) : "no limit"; } },
];
