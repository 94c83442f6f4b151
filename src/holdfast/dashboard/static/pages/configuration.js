// The configuration: the values in force, and a change of them that is tried first.
import { html, useMemo, useState } from "../html.js";
import { get, put } from "../api.js";
import { plural } from "../format.js";
import { Loaded, useLoaded } from "../loaded.js";
import { go } from "../router.js";
import { Text } from "../text.js";
import { Check, Field, Search } from "../parts/fields.js";
import { Empty, ErrorBox, Note, toast } from "../parts/notices.js";
import { PageHead } from "../parts/shell.js";
import { Table } from "../parts/table.js";

export function Configuration({ params }) {
  const values = useLoaded((signal) => get("/configs", {}, signal), []);
  const [editing, setEditing] = useState(false);
  const changeable = values.data?.writable;
  return html`<${PageHead} title="Configuration">${changeable && html`<button class=${editing ? "" : "primary"} onClick=${() => setEditing(!editing)}>${editing ? "Back to the values" : "Change…"}</button>`}<//>
    ${editing ? html`<${File} onApplied=${() => { setEditing(false); values.reload(); }} />` : html`<${Loaded} from=${values} lines=${12}>${(answer) => html`<${Values} answer=${answer} params=${params} />`}<//>`}`;
}

function Values({ answer, params }) {
  const differ = params.differ === "true";
  const q = (params.q ?? "").toLowerCase();
  const shown = useMemo(() => answer.values.filter((each) => (!differ || each.differs) && each.key.toLowerCase().includes(q)), [answer, differ, q]);
  const change = (more) => go("configuration", { ...params, ...more }, true);
  return html`<p class="quiet">${answer.file === null ? "The broker was started without a configuration file: these are the defaults and the options of its command line." : html`Read from <span class="mono"><${Text} text=${answer.file} /></span>. ${answer.writable ? "" : "It cannot be changed from here (admin.config_writable)."}`}</p>
    ${answer.problems.length > 0 && html`<${Note} kind="warning"><p>The file has problems now, so it could not be reloaded:</p><ul>${answer.problems.map((each) => html`<li><${Text} text=${`${each.line ? `line ${each.line}: ` : ""}${each.message}`} /></li>`)}</ul><//>`}
    <div class="filters"><${Search} main label="Search options" value=${params.q} onValue=${(next) => change({ q: next })} /><${Check} label="only those that differ from the file" value=${differ} onValue=${(on) => change({ differ: on || "" })} /></div>
    <${Table} caption="Options" rows=${shown} keyOf=${(row) => row.key} empty=${differ ? "No value differs from the configuration file." : "No option has this name."} columns=${[
      { title: "Option", cell: (row) => html`<span class="mono">${row.key}</span>` },
      { title: "Value", wide: true, cell: (row) => (row.secret ? html`<span class="quiet">secret</span>` : html`<${Shown} value=${row.value} />`) },
      { title: "In the file", hide: "phone", cell: (row) => (row.differs ? html`<span class="state warning"><i aria-hidden="true"></i>another value</span>` : html`<span class="quiet">the same</span>`) },
      { title: "A change takes effect", hide: "narrow", cell: (row) => row.takes_effect },
    ]} />`;
}

const Shown = ({ value }) => html`<${Text} mono text=${value === undefined ? null : JSON.stringify(value)} />`;

/** The file, once it is loaded: what is saved replaces all of it. */
function File({ onApplied }) {
  const file = useLoaded((signal) => get("/configs/toml", {}, signal), []);
  return html`<${Loaded} from=${file} lines=${12}>${(answer) => html`<${Editor} name=${answer.file} text=${answer.toml} onApplied=${onApplied} />`}<//>`;
}

function Editor({ name, text, onApplied }) {
  const [toml, setTOML] = useState(text);
  const [tried, setTried] = useState(null);
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const send = async (dryRun) => {
    setBusy(true);
    setError(null);
    try {
      const answer = await put("/configs", { dry_run: dryRun, toml });
      if (dryRun) setTried({ toml, answer, differences: [...answer.changed, ...answer.restart.map((each) => ({ ...each, takes_effect: "at a restart of the broker" }))] });
      else { toast("The file is written, and the change is in force"); onApplied(); }
    } catch (failure) {
      setTried(null);
      setError(failure);
    } finally {
      setBusy(false);
    }
  };
  const ready = tried !== null && tried.toml === toml && toml !== text;
  return html`<div class="columns edit"><div>
      <${Field} label="Configuration file" hint=${name}>${(id, described) => html`<textarea id=${id} aria-describedby=${described} class="mono" rows="24" spellcheck="false" value=${toml} onInput=${(event) => setTOML(event.target.value)}></textarea>`}<//>
      <div class="buttons"><button class=${ready ? "" : "primary"} disabled=${busy || toml === text} onClick=${() => send(true)}>Try</button><button class="danger" disabled=${busy || !ready} onClick=${() => send(false)}>Save ${ready ? plural(tried.differences.length, "change") : ""}</button></div>
      <p class="quiet">Saving writes the file and reloads it. The previous file stays beside it, with the ending .bak, and is put back if the reload fails.</p></div>
    <div aria-live="polite">${error && html`<${ErrorBox} error=${error} />`}
      ${tried?.answer.warnings?.map((each) => html`<${Note} kind="warning"><p><${Text} text=${each} /></p><//>`)}
      ${tried && (tried.differences.length ? html`<${Table} caption="Differences" rows=${tried.differences} keyOf=${(row) => row.key} columns=${[
        { title: "Option", cell: (row) => html`<span class="mono">${row.key}</span>` },
        { title: "Now", cell: (row) => html`<del><${Shown} value=${row.old} /></del>` },
        { title: "Then", wide: true, cell: (row) => html`<ins><${Shown} value=${row.new} /></ins>` },
        { title: "Effect", hide: "phone", cell: (row) => row.takes_effect },
      ]} />` : html`<${Note}><p>This text changes no option.</p><//>`)}
      ${!tried && !error && html`<${Empty} title="Try the change first.">The broker checks the file and lists the differences. Nothing changes until you save.<//>`}</div></div>`;
}
