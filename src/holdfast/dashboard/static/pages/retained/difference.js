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
  const { content, equal, changes, truncated } = answer;
  if (equal) return html`<p class="quiet">Both have the same payload.</p>`;
  const more = truncated && html`<p class="quiet">There are more differences.</p>`;
  if (content === "bytes") return html`<p>The payloads differ. They are not text, or too large to be compared in parts.</p>`;
  if (content === "text") {
    return html`<pre class="content difference" tabindex="0" aria-label="Lines that differ">${changes.map((each) => html`${"before" in each && html`<del><${Text} text=${`- ${each.before}`} keepLines />\n</del>`}${"after" in each && html`<ins><${Text} text=${`+ ${each.after}`} keepLines />\n</ins>`}`)}</pre>${more}`;
  }
  return html`<div class="table" tabindex="0" role="group" aria-label="Members that differ"><table><caption class="unseen">Members that differ</caption><thead><tr><th scope="col">Path</th><th scope="col">Before</th><th scope="col">After</th></tr></thead>
    <tbody>${changes.map((each) => html`<tr key=${each.path}><td><${Text} text=${each.path} mono empty="(all of it)" /></td><td>${"before" in each ? html`<del><${Value} value=${each.before} /></del>` : html`<span class="quiet">absent</span>`}</td><td>${"after" in each ? html`<ins><${Value} value=${each.after} /></ins>` : html`<span class="quiet">absent</span>`}</td></tr>`)}</tbody></table></div>${more}`;
}

const Value = ({ value }) => html`<${Text} text=${JSON.stringify(value)} mono />`;
