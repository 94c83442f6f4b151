// Files of what is shown, and of all that matches.
import { html, useRef } from "../../html.js";
import { address } from "../../api.js";
import { csv, ndjson } from "../../csv.js";
import { save } from "../../parts/copying.js";
import { toast } from "../../parts/notices.js";
import { plural } from "../../format.js";

const COLUMNS = ["topic", "publish_at", "expiry_at", "from_clientid", "from_username", "qos", "size", "revision"];
const HISTORY = ["seq", "changed_at", "op", "origin", "topic", "from_clientid", "from_username", "operator", "qos", "size", "revision"];

/**
 * A menu that saves the rows. `all`: the parameters of the export of everything that matches, or null; `found`: how many
 * messages that is, as {count, exact}, if it is known.
 */
export function SaveShown({ rows, name, all = null, found = null, history = false }) {
  const menu = useRef(null);
  const done = () => { menu.current.open = false; };
  const write = (kind) => {
    const columns = history ? HISTORY : COLUMNS;
    save(`${name}.${kind}`, kind === "csv" ? "text/csv" : "application/x-ndjson", kind === "csv" ? csv(columns, rows) : ndjson(rows));
    toast(`Saved ${plural(rows.length, "row")}`);
    done();
  };
  const shown = `The ${plural(rows.length, "row")} of this page`;
  const matching = found ? `${found.exact ? "All" : "All, at least"} ${plural(found.count, "message")}` : "All messages";
  return html`<details class="menu" ref=${menu} onKeyDown=${(event) => { if (event.key === "Escape") done(); }} onBlur=${(event) => { if (!event.currentTarget.contains(event.relatedTarget)) done(); }}><summary class="button">Export</summary><div>
    <button disabled=${!rows.length} onClick=${() => write("csv")}>${shown}, as CSV</button>
    <button disabled=${!rows.length} onClick=${() => write("ndjson")}>${shown}, as NDJSON</button>
    ${all && html`<a class="button" download href=${address("/mqtt/retainer/export", { ...all, format: "ndjson" })} onClick=${done}>${matching} with payloads, as NDJSON</a>
      <a class="button" download href=${address("/mqtt/retainer/export", { ...all, format: "csv" })} onClick=${done}>${matching} with payloads, as CSV</a>`}
  </div></details>`;
}
