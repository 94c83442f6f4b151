// The difference of two revisions: members of JSON, or lines of text.
import { html } from "../../html.js";
import { get } from "../../api.js";
import { Loaded, useLoaded } from "../../loaded.js";
import { Text } from "../../text.js";

export function Difference({ topic, from, to }) {
  const found = useLoaded((signal) => get("/mqtt/retainer/diff", { topic, from: from.revision, to: to.revision }, signal), [topic, from.revision, to.revision]);
  return html`<${Loaded} from=${found} lines=${2}>${(answer) => html`<${Shown} answer=${answer} />`}<//>`;
}

function Shown({ answer }) {
  const changes = answer.data ?? answer.changes ?? [];
  if (!changes.length) return html`<p class="quiet">Both have the same payload.</p>`;
  if (changes[0].path === undefined) return html`<pre class="content difference" tabindex="0" aria-label="Lines that differ">${changes.map((line) => html`<${Line} line=${line} />`)}</pre>`;
  return html`<div class="table" tabindex="0" role="group" aria-label="Members that differ"><table><caption class="unseen">Members that differ</caption><thead><tr><th scope="col">Path</th><th scope="col">Before</th><th scope="col">After</th></tr></thead>
    <tbody>${changes.map((each) => html`<tr key=${each.path}><td><${Text} text=${each.path} mono /></td><td>${"before" in each && each.before !== undefined ? html`<del><${Value} value=${each.before} /></del>` : html`<span class="quiet">absent</span>`}</td><td>${"after" in each && each.after !== undefined ? html`<ins><${Value} value=${each.after} /></ins>` : html`<span class="quiet">absent</span>`}</td></tr>`)}</tbody></table></div>
    ${answer.meta?.hasnext || answer.truncated ? html`<p class="quiet">There are more differences.</p>` : null}`;
}

const Value = ({ value }) => html`<${Text} text=${JSON.stringify(value)} mono />`;

/** A line of a difference as text, or as an object with its kind. */
function Line({ line }) {
  const text = typeof line === "string" ? line : `${{ removed: "-", added: "+", same: " " }[line.kind] ?? line.op ?? " "}${line.text ?? line.line ?? ""}`;
  const shown = html`<${Text} text=${text} keepLines />\n`;
  return text.startsWith("+") ? html`<ins>${shown}</ins>` : text.startsWith("-") ? html`<del>${shown}</del>` : html`<span>${shown}</span>`;
}
