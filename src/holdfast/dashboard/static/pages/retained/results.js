// The search by Topic Filter: the matching messages as a table, now or at an earlier time.
import { html, useEffect, useState } from "../../html.js";
import { get, getPage } from "../../api.js";
import { bytes, plural } from "../../format.js";
import { Loaded, useLoaded } from "../../loaded.js";
import { bytesIn, preview } from "../../payload.js";
import { Text } from "../../text.js";
import { Ago, fromLocalInput, localInput } from "../../time.js";
import { Check, Choice, Search, TextField } from "../../parts/fields.js";
import { Note } from "../../parts/notices.js";
import { Pager, Table, usePages } from "../../parts/table.js";
import { Restore } from "./restoring.js";
import { Clear } from "./clearing.js";
import { SaveShown } from "./saving.js";
import { allowed, useCaller } from "../../session.js";

const LIMIT = 100;
const BEGINNING = 120;
const MORE = ["search", "publisher", "username", "older_than", "newer_than", "min_size", "max_size"];

export function Results({ params, chosen, onChoose, onChange, news, follow, onFollow }) {
  const caller = useCaller();
  const filter = params.q || "#";
  const sort = params.at ? undefined : params.sort;
  const narrowed = Object.fromEntries(MORE.filter((name) => params[name] && !params.at).map((name) => [name, params[name]]));
  const selected = { topic: params.q, at: params.at, ...narrowed };
  const search = { ...selected, sort, order: sort && params.order };
  const key = JSON.stringify(search);
  const pages = usePages(key);
  const list = useLoaded((signal) => getPage("/mqtt/retainer/messages", { ...search, limit: LIMIT, cursor: pages.cursor, ...(params.at ? {} : { beginning: BEGINNING }) }, signal), [key, pages.cursor]);
  const [whole, setWhole] = useState("");
  const total = useLoaded(params.at ? null : async (signal) => ({ ...await get("/mqtt/retainer/count", { ...selected, exact: whole === key || undefined }, signal), key }), [key, whole === key]);
  const [dialog, setDialog] = useState(null);
  const following = follow?.from === "search" && follow.filter === filter;
  const token = list.data?.meta.token;
  useEffect(() => { if (following && news.turn) { list.reload(); total.reload(); } }, [news.turn, news.resets]);
  useEffect(() => { if (follow?.from === "search" && follow.filter !== filter) onFollow(null); }, [filter]);
  const rows = list.data?.data ?? [];
  const found = foundIn(list.loading ? null : list.data, pages.number, total.data?.key === key ? total.data : null);
  const write = allowed(caller, "retained:write");
  return html`<${Form} params=${params} onChange=${onChange} />
    ${params.at && html`<${Note} kind="warning"><p>You see the messages as they were at <b><${Text} text=${localInput(params.at)?.replace("T", " ")} /></b>. <button class="link" onClick=${() => onChange({ at: "" })}>Back to now</button></p><//>`}
    <div class="bar"><span class="quiet" aria-live="polite">${found === null ? "\u00a0" : `${found.exact ? "" : "At least "}${plural(found.count, "message")}${found.bytes === undefined ? "" : `, ${bytes(found.bytes)}`}`}</span>
      ${found?.exact === false && html`<button class="plain small" disabled=${total.loading} onClick=${() => setWhole(key)}>${total.loading ? "Counting…" : "Count all"}</button>`}<span class="spring"></span>
      ${!params.at && html`<${Check} label="Live" value=${following} onValue=${(on) => onFollow(on ? { filter, token, from: "search" } : null)} />`}
      <${SaveShown} rows=${rows} name="retained" all=${selected} found=${found} />
      ${write && html`<button onClick=${() => setDialog("restore")}>Restore…</button><button onClick=${() => setDialog("clear")} disabled=${Boolean(params.at)}>Clear…</button>`}</div>
    <${Loaded} from=${list} lines=${10}>${(answer) => html`
      <${Table} caption="Matching messages" rows=${answer.data} keyOf=${(row) => row.topic} columns=${columns(news, onChoose, Boolean(params.at))} open=${(row) => onChoose(row.topic)} selected=${(row) => row.topic === chosen}
        sort=${{ by: sort ?? "topic", order: params.order ?? (sort && sort !== "topic" ? "desc" : "asc") }} onSort=${params.at ? undefined : (by) => onChange(by === "topic" ? { sort: "", order: "" } : { sort: by, order: sort === by && params.order === "desc" ? "asc" : "desc" })}
        empty=${params.q ? "No retained message matches this search." : "No messages are retained."} />
      <${Pager} pages=${pages} meta=${answer.meta}>${plural(answer.data.length, "message")} on this page.${answer.meta.partial ? " The search has not looked at all messages." : ""}<//>`}<//>
    ${dialog === "restore" && html`<${Restore} filter=${filter} narrowed=${narrowed} at=${params.at} onClose=${(done) => { setDialog(null); if (done) { list.reload(); total.reload(); } }} />`}
    ${dialog === "clear" && html`<${Clear} filter=${filter} narrowed=${narrowed} onClose=${(done) => { setDialog(null); if (done) { list.reload(); total.reload(); } }} />`}`;
}

const columns = (news, onChoose, past) => [
  { title: "Topic", sort: "topic", topic: true, wide: true, cell: (row) => html`<button class=${`link ${fresh(news, row) ? "fresh" : ""}`} onClick=${() => onChoose(row.topic)}><${Text} text=${row.topic} mono /></button>` },
  ...(past ? [] : [{ title: "Value", named: true, cell: (row) => html`<span class="clip"><${Beginning} row=${row} /></span>`, hide: "beside" }]),
  { title: "Time", sort: "time", tight: true, cell: (row) => html`<${Ago} at=${row.publish_at} />` },
  { title: "Size", sort: "size", number: true, cell: (row) => bytes(row.size) },
  { title: "Publisher", named: true, hide: "medium", cell: (row) => html`<${Text} text=${row.from_clientid} mono />` },
];

/** What a message begins with. */
function Beginning({ row }) {
  if (row.beginning === undefined) return null;
  const { text, cut } = preview(bytesIn(row.beginning), row.size);
  return html`<span class="mono"><${Text} text=${text} empty="" />${cut && "…"}</span>`;
}

/** How many messages match. A list that is complete tells it; a count may have looked at a part of the messages only. */
function foundIn(list, page, total) {
  if (total?.exact) return total;
  if (list && page === 1 && !list.meta.hasnext) return { count: list.data.length, exact: true };
  if (total === null) return null;
  return { ...total, count: Math.max(total.count, list?.data.length ?? 0) };
}

const fresh = (news, row) => Date.now() - (news.topics.get(row.topic)?.seen ?? 0) < 2500;

function Form({ params, onChange }) {
  const used = MORE.filter((name) => params[name]);
  const [open, setOpen] = useState(used.length > 0 || Boolean(params.at));
  const field = (name, label, hint, more = {}) => html`<${Late} label=${label} hint=${hint} value=${params[name] ?? ""} onValue=${(value) => onChange({ [name]: value })} ...${more} />`;
  return html`<div class="filters stacked"><${Search} main label="Search by Topic Filter" value=${params.q} onValue=${(q) => onChange({ q })} placeholder="building/+/temperature or building/#" />
    <button class="plain" aria-expanded=${open} onClick=${() => setOpen(!open)}>${used.length ? `More (${used.length})` : "More"}</button></div>
    ${open && html`<div class="more-filters">
      <${TextField} label="As of" type="datetime-local" step="1" value=${params.at ? localInput(params.at) : ""} onValue=${(value) => onChange({ at: value ? fromLocalInput(value) : "" })} />
      ${!params.at && html`${field("search", "Part of the topic")}${field("publisher", "Publisher", "a Client Identifier")}${field("username", "User name")}${field("newer_than", "Newer than", "such as -1h or 2026-11-21T10:00Z")}${field("older_than", "Older than", "such as -7d")}
        ${field("min_size", "At least", "bytes", { inputmode: "numeric" })}${field("max_size", "At most", "bytes", { inputmode: "numeric" })}`}
    </div>`}`;
}

/** A field that reports its text when the user leaves it or presses Enter. */
function Late({ value, onValue, ...others }) {
  const [text, setText] = useState(value);
  useEffect(() => setText(value), [value]);
  const report = () => { if (text !== value) onValue(text); };
  return html`<${TextField} ...${others} value=${text} onValue=${setText} onBlur=${report} onKeyDown=${(event) => { if (event.key === "Enter") report(); }} />`;
}
