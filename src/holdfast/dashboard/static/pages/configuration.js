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
  return html`<${PageHead} title="Configuration"><button class=${editing ? "" : "primary"} onClick=${() => setEditing(!editing)}>${editing ? "Back to the values" : "Change…"}</button><//>
    ${editing ? html`<${Editor} onApplied=${() => { setEditing(false); values.reload(); }} />` : html`<${Loaded} from=${values} lines=${12}>${(answer) => html`<${Values} options=${answer.data ?? answer} params=${params} />`}<//>`}`;
}

function Values({ options, params }) {
  const differ = params.differ === "true";
  const q = (params.q ?? "").toLowerCase();
  const shown = useMemo(() => options.filter((each) => (!differ || each.differs) && each.name.toLowerCase().includes(q)), [options, differ, q]);
  const change = (more) => go("configuration", { ...params, ...more }, true);
  return html`<div class="filters"><${Search} main label="Search options" value=${params.q} onValue=${(next) => change({ q: next })} /><${Check} label="only those that differ from the file" value=${differ} onValue=${(on) => change({ differ: on || "" })} /></div>
    <${Table} caption="Options" rows=${shown} keyOf=${(row) => row.name} empty=${differ ? "No value differs from the configuration file." : "No option has this name."} columns=${[
      { title: "Option", cell: (row) => html`<span class="mono">${row.name}</span>` },
      { title: "Value", wide: true, cell: (row) => html`<${Shown} value=${row.value} />` },
      { title: "In the file", hide: "phone", cell: (row) => (row.differs ? html`<${Shown} value=${row.file} />` : html`<span class="quiet">the same</span>`) },
      { title: "A change takes effect", hide: "narrow", cell: (row) => row.effect ?? "–" },
    ]} />`;
}

const Shown = ({ value }) => html`<${Text} mono text=${value === undefined ? null : typeof value === "string" ? JSON.stringify(value) : JSON.stringify(value)} />`;

function Editor({ onApplied }) {
  const [toml, setTOML] = useState("");
  const [tried, setTried] = useState(null);
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const send = async (dryRun) => {
    setBusy(true);
    setError(null);
    try {
      const answer = await put("/configs", { dry_run: dryRun, toml });
      if (dryRun) setTried({ toml, differences: answer.differences ?? answer.data ?? [] });
      else { toast("The change is in force"); onApplied(); }
    } catch (failure) {
      setTried(null);
      setError(failure);
    } finally {
      setBusy(false);
    }
  };
  const ready = tried !== null && tried.toml === toml && tried.differences.length > 0;
  return html`<div class="columns edit"><div>
      <${Field} label="Options in TOML" hint="only those to be changed; the others keep their values">${(id, described) => html`<textarea id=${id} aria-describedby=${described} class="mono" rows="16" spellcheck="false" value=${toml} placeholder=${"[retainer]\nmax_payload_size = \"1 MiB\""} onInput=${(event) => setTOML(event.target.value)}></textarea>`}<//>
      <div class="buttons"><button class=${ready ? "" : "primary"} disabled=${busy || !toml.trim()} onClick=${() => send(true)}>Try</button><button class="danger" disabled=${busy || !ready} onClick=${() => send(false)}>Apply ${ready ? plural(tried.differences.length, "change") : ""}</button></div>
      <p class="quiet">A change lasts until the broker ends. The configuration file stays as it is.</p></div>
    <div aria-live="polite">${error && html`<${ErrorBox} error=${error} />`}
      ${tried && (tried.differences.length ? html`<${Table} caption="Differences" rows=${tried.differences} keyOf=${(row) => row.name} columns=${[
        { title: "Option", cell: (row) => html`<span class="mono">${row.name}</span>` },
        { title: "Now", cell: (row) => html`<del><${Shown} value=${row.before} /></del>` },
        { title: "Then", wide: true, cell: (row) => html`<ins><${Shown} value=${row.after} /></ins>` },
        { title: "Effect", hide: "phone", cell: (row) => row.effect ?? "–" },
      ]} />` : html`<${Note}><p>These are the values in force: nothing would change.</p><//>`)}
      ${!tried && !error && html`<${Empty} title="Try the change first.">The broker checks it and lists the differences. Nothing changes until you apply it.<//>`}</div></div>`;
}
