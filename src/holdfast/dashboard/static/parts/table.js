// Tables: real ones, with a caption for those who do not see them, that scroll inside their frame.
import { html, useRef, useState } from "../html.js";
import { Empty } from "./notices.js";

/**
 * `columns`: {title, cell(row), number, wide, tight, named, hide, sort}: `named` ones have names that may be long. `hide` is "medium", "narrow" or "phone": left out on such screens.
 * `open(row)`: what a click on a row does; the first cell has the link for the keyboard.
 */
export function Table({ caption, columns, rows, keyOf, empty, open, sort, onSort, selected }) {
  if (!rows.length) return html`<${Empty} title=${empty} />`;
  return html`<div class="table" tabindex="0" role="group" aria-label=${caption}><table>
    <caption class="unseen">${caption}</caption>
    <thead><tr>${columns.map((column) => html`<th scope="col" class=${classOf(column)} aria-sort=${sortOf(column, sort)}>
      ${column.sort && onSort
        ? html`<button class="sort" onClick=${() => onSort(column.sort)}>${column.title}<span aria-hidden="true">${mark(column, sort)}</span></button>`
        : column.title}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr key=${keyOf(row)} class=${`${open ? "opens" : ""} ${selected?.(row) ? "selected" : ""}`} onClick=${open && ((event) => pick(event, () => open(row)))}>
      ${columns.map((column) => html`<td class=${classOf(column)}>${column.cell(row)}</td>`)}</tr>`)}</tbody>
  </table></div>`;
}

const classOf = (column) => [column.number ? "number" : "", column.hide ? `hide-${column.hide}` : "", column.wide ? "grow" : "", column.tight ? "tight" : "", column.named ? "named" : "", column.topic ? "topic" : ""].join(" ");

function sortOf(column, sort) {
  if (!column.sort || sort?.by !== column.sort) return undefined;
  return sort.order === "desc" ? "descending" : "ascending";
}

const mark = (column, sort) => (sort?.by === column.sort ? (sort.order === "desc" ? " ↓" : " ↑") : "");

/** A click on a row that is not one on a link or a button, and does not select text. */
function pick(event, then) {
  if (event.target.closest("a, button, input") || String(getSelection())) return;
  then();
}

/** Steps through pages that the API gives by cursors: it goes back by the cursors of this visit. */
export function usePages(key) {
  const [trail, setTrail] = useState([]);
  const before = useRef(key);
  let here = trail;
  if (before.current !== key) {  // another search begins at its first page
    before.current = key;
    here = [];
    if (trail.length) setTrail([]);
  }
  return { cursor: here.at(-1), number: here.length + 1, next: (cursor) => setTrail([...here, cursor]), back: () => setTrail(here.slice(0, -1)), first: () => setTrail([]) };
}

export function Pager({ pages, meta, children }) {
  const more = Boolean(meta?.hasnext);
  if (pages.number === 1 && !more) return html`<p class="pager quiet">${children}</p>`;
  return html`<div class="pager"><span class="quiet">${children} Page ${pages.number}</span>
    <span class="buttons"><button disabled=${pages.number === 1} onClick=${pages.first}>First</button>
    <button disabled=${pages.number === 1} onClick=${pages.back}>Previous</button>
    <button disabled=${!more} onClick=${() => pages.next(meta.cursor)}>Next</button></span></div>`;
}
