// The changes of all topics that match a filter, the newest first: who has set or cleared what.
import { html } from "../../html.js";
import { getPage } from "../../api.js";
import { bytes, plural } from "../../format.js";
import { Loaded, useLoaded } from "../../loaded.js";
import { Text } from "../../text.js";
import { Ago } from "../../time.js";
import { Search } from "../../parts/fields.js";
import { Empty } from "../../parts/notices.js";
import { Pager, Table, usePages } from "../../parts/table.js";
import { SaveShown } from "./saving.js";

const LIMIT = 100;
const ORIGINS = { publish: "published", will: "a Will", api: "the API", import: "an import", expiry: "expired", restore: "a restore", override: "a shorter expiry", baseline: "from before the history" };

export const originText = (origin) => ORIGINS[origin] ?? origin;
/** The client of a change, and its user; or what else has made it, and its operator. */
export function By({ row }) {
  const user = row.from_clientid && row.from_username && html`, user <${Text} text=${row.from_username} />`;
  // Clears of a database that did not yet note operators have them as users.
  const name = row.operator ?? (row.from_clientid ? null : row.from_username);
  const operator = name && html`, operator <${Text} text=${name} />`;
  if (!row.from_clientid) return html`<span class="quiet">by ${originText(row.origin)}</span>${user}${operator}`;
  return html`<span class="quiet">by</span> <${Text} text=${row.from_clientid} mono />${user}${row.origin !== "publish" && html` <span class="quiet">(${originText(row.origin)})</span>`}${operator}`;
}

export const Op = ({ row }) => html`<span class=${`state ${row.op === "set" ? "ok" : "wait"}`}><i aria-hidden="true"></i>${row.op === "set" ? "set" : row.origin === "expiry" ? "expired" : "cleared"}</span>`;

export function Changes({ params, chosen, onChoose, onChange }) {
  const filter = params.q || "#";
  const pages = usePages(filter);
  const list = useLoaded((signal) => getPage("/mqtt/retainer/history", { topic: filter, first: "newest", limit: LIMIT, cursor: pages.cursor }, signal), [filter, pages.cursor]);
  const off = list.error?.status === 404 || list.error?.status === 409;
  return html`<div class="filters stacked"><${Search} main label="Changes of a Topic Filter" value=${params.q} onValue=${(q) => onChange({ q })} placeholder="building/#" /><button onClick=${list.reload}>Refresh</button><${SaveShown} rows=${list.data?.data ?? []} name="changes" history /></div>
    ${off && !list.data ? html`<${Empty} title="No history is kept.">${list.error.detail}<//>` : html`<${Loaded} from=${list} lines=${10}>${(answer) => html`
      <${Table} caption="Changes" rows=${answer.data} keyOf=${(row) => row.seq} open=${(row) => onChoose(row.topic)} selected=${(row) => row.topic === chosen} empty="No change of a matching topic is in the history." columns=${[
        { title: "Time", tight: true, cell: (row) => html`<${Ago} at=${row.changed_at} />` },
        { title: "Change", topic: true, wide: true, cell: (row) => html`<button class="link" onClick=${() => onChoose(row.topic)}><${Text} text=${row.topic} mono /></button><div class="small"><${Op} row=${row} /> <${By} row=${row} /></div>` },
        { title: "Size", number: true, hide: "medium", cell: (row) => (row.op === "set" ? bytes(row.size) : "") },
      ]} />
      <${Pager} pages=${pages} meta=${answer.meta}>${plural(answer.data.length, "change")} on this page.<//>`}<//>`}`;
}
