// The topic tree, drawn as far as it is in view, with the keys of the ARIA tree pattern.
import { html, useEffect, useLayoutEffect, useRef, useState } from "../../html.js";
import { bytes, compact, count } from "../../format.js";
import { Text, visible } from "../../text.js";
import { exact, relative, useNow } from "../../time.js";
import { Empty, ErrorBox } from "../../parts/notices.js";
import { Icon } from "../../parts/icons.js";
import { Nodes } from "./nodes.js";

const ROW = 28;
const CALM = 120;
const AROUND = 12;
const TYPED_FOR = 800;
const INDENT = 14;
const DEEPEST = 12;

let kept = null;

/** Forget the tree, because messages were set or cleared. It is loaded again when it is drawn next. */
export function forgetTree() { kept = null; changed(); }
let changed = () => {};

export function Tree({ chosen, onChoose }) {
  const [, draw] = useState(0);
  const [active, setActive] = useState(0);
  const [view, setView] = useState({ top: 0, height: 600 });
  const frame = useRef(null);
  const typed = useRef({ text: "", at: 0 });
  const now = useNow();
  const [nodes, setNodes] = useState(() => (kept ??= new Nodes()));
  useEffect(() => {
    let left = false;
    const begin = async () => {
      if (!nodes.root.loaded) await nodes.load(nodes.root);
      const node = chosen === undefined || left ? null : await nodes.reveal(chosen);
      const at = nodes.rows.findIndex((row) => row.node === node);
      if (node && at >= 0 && !left) focusRow(at);  // another page may be shown by now
    };
    nodes.draw = () => draw((before) => before + 1);
    begin();
    return () => { left = true; nodes.draw = () => {}; };
  }, [nodes]);
  useEffect(() => {
    changed = async () => { const fresh = await nodes.refresh(); kept = fresh; fresh.arrange(); setNodes(fresh); };
    return () => { changed = () => {}; };
  }, [nodes]);
  useEffect(() => {
    const sized = new ResizeObserver(() => frame.current && setView({ top: frame.current.scrollTop, height: frame.current.clientHeight }));
    sized.observe(frame.current);
    return () => sized.disconnect();
  }, []);
  const rows = nodes.rows;
  const first = Math.max(0, Math.floor(view.top / ROW) - AROUND);
  const last = Math.min(rows.length, Math.ceil((view.top + view.height) / ROW) + AROUND);
  const part = rows.slice(first, last);
  useEffect(() => { for (const each of part) if (each.more && each.more.loaded && !each.more.error) nodes.load(each.more); }, [first, last, rows]);

  useEffect(() => {  // a pause, since scrolling passes many
    const timer = setTimeout(() => nodes.loadValues(part.flatMap((row) => row.node ?? [])), CALM);
    return () => clearTimeout(timer);
  }, [first, last, rows]);

  function focusRow(at) {
    const next = Math.max(0, Math.min(at, nodes.rows.length - 1));
    setActive(next);
    const box = frame.current;
    if (next * ROW < box.scrollTop) box.scrollTop = next * ROW;
    else if ((next + 1) * ROW > box.scrollTop + box.clientHeight) box.scrollTop = (next + 1) * ROW - box.clientHeight;
  }
  function toggle(node) {
    if (node.open) nodes.close(node); else nodes.open(node);
  }
  function pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const node = rows[active]?.node;
    const page = Math.max(1, Math.floor(view.height / ROW) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key in steps) focusRow(active + steps[event.key]);
    else if (event.key === "ArrowRight" && node) { if (node.open) focusRow(active + 1); else if (!node.leaf) toggle(node); }
    else if (event.key === "ArrowLeft" && node) { if (node.open) toggle(node); else focusRow(rows.findIndex((row) => row.node === node.parent)); }
    else if (event.key === "Enter" || event.key === " ") choose(rows[active]);
    else if (event.key.length === 1 && event.key !== "/") { seek(event.key); }
    else return;
    event.preventDefault();
  }
  /** Letters that are typed quickly lead to the next row that begins with them. */
  function seek(letter) {
    const again = Date.now() - typed.current.at < TYPED_FOR;
    typed.current = { text: (again ? typed.current.text : "") + letter.toLowerCase(), at: Date.now() };
    for (let step = again ? 0 : 1; step <= rows.length; step += 1) {
      const at = (active + step) % rows.length;
      if (rows[at].node?.name.toLowerCase().startsWith(typed.current.text)) { focusRow(at); return; }
    }
  }
  function choose(row) {
    if (row?.more) nodes.load(row.more);
    else if (row) onChoose(row.node.topic);
  }
  const root = nodes.root;
  if (root.error && !root.loaded) return html`<div ref=${frame}><${ErrorBox} error=${root.error} again=${() => nodes.load(root)} /></div>`;
  if (root.loaded && root.done && !root.children.length) return html`<div ref=${frame}><${Empty} title="No messages are retained.">A message that is published with the RETAIN flag appears here.<//></div>`;
  return html`<div class="tree-head"><span>Topic level</span><span>messages</span><span class="hide-narrow">bytes</span><span>newest</span><button class="plain" aria-label="Load the tree again" title="Load the tree again" onClick=${() => forgetTree()}><${Icon} name="refresh" /></button></div>
    <div class="tree" ref=${frame} role="tree" aria-label="Topics of retained messages" tabindex="0" aria-activedescendant=${rows.length ? `row-${active}` : undefined} aria-busy=${nodes.busy > 0}
      onKeyDown=${pressed} onScroll=${(event) => setView({ top: event.currentTarget.scrollTop, height: event.currentTarget.clientHeight })}>
      <div class="tall" role="presentation" style=${{ height: `${rows.length * ROW}px` }}>
        ${part.map((row, at) => html`<${Row} key=${first + at} row=${row} at=${first + at} now=${now} active=${first + at === active} chosen=${row.node && row.node.topic === chosen}
          onPick=${() => { setActive(first + at); choose(row); }} onToggle=${() => { setActive(first + at); toggle(row.node); }} />`)}
      </div>
    </div>`;
}

function Row({ row, at, now, active, chosen, onPick, onToggle }) {
  const { node, more } = row;
  const level = node ? node.level : more.level + 1;
  const place = { top: `${at * ROW}px`, paddingLeft: `${8 + (Math.min(level, DEEPEST) - 1) * INDENT}px` };
  if (more) {
    return html`<div id=${`row-${at}`} class=${`row more ${active ? "active" : ""}`} role="treeitem" aria-level=${level} style=${place} onClick=${onPick}>${more.error ? `${more.error.title}. Load again` : "Loading…"}</div>`;
  }
  const newest = node.newest ? relative(node.newest, now) : "–";
  const alone = node.leaf && node.count === 1;  // its value stands in place of numbers that say nothing
  const name = node.name === "" ? "(empty level)" : visible(node.name);
  return html`<div id=${`row-${at}`} class=${`row ${active ? "active" : ""} ${chosen ? "selected" : ""}`} role="treeitem" style=${place} aria-level=${level} aria-posinset=${node.position} aria-setsize=${row.setsize}
      aria-expanded=${node.leaf ? undefined : node.open} aria-selected=${Boolean(chosen)} onClick=${onPick}>
    <span class="fold" onClick=${(event) => { if (!node.leaf) { event.stopPropagation(); onToggle(); } }}>${!node.leaf && html`<${Icon} name="chevron" />`}</span>
    <span class=${`label ${alone ? "wide" : ""}`}><span class=${`name ${node.has_message ? "holds" : ""}`} title=${name}><${Text} text=${node.name} empty="(empty level)" mono /></span>${node.value && html`<span class="value"><${Text} text=${node.value.text} mono empty="(empty)" />${node.value.cut && "…"}</span>`}</span>
    ${!alone && html`<span class="number" title=${node.exact === false ? `at least ${count(node.count)}` : count(node.count)}>${node.exact === false ? "≥ " : ""}${compact(node.count)}<span class="unseen"> messages</span></span>
    <span class="number hide-narrow">${bytes(node.bytes)}</span>`}
    <span class="number when" title=${exact(node.newest)}><span class="unseen">newest </span>${newest.replace(" ago", "")}</span>
  </div>`;
}
