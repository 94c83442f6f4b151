// API keys: each has a name and scopes. Its secret is shown once, when it is made.
import { html, useState } from "../html.js";
import { del, get, post } from "../api.js";
import { Loaded, useLoaded } from "../loaded.js";
import { Text, shortened, visible } from "../text.js";
import { Ago } from "../time.js";
import { Confirm, Dialog } from "../parts/dialog.js";
import { Check, Choice, TextField } from "../parts/fields.js";
import { CopyButton } from "../parts/copying.js";
import { Note, toast } from "../parts/notices.js";
import { PageHead } from "../parts/shell.js";
import { Table } from "../parts/table.js";

const SCOPES = [["read", "see everything that is not secret"], ["publish", "publish messages, and subscribe"], ["retained:write", "set, clear and restore retained messages"], ["admin", "everything"]];

export function Keys() {
  const list = useLoaded((signal) => get("/api_key", {}, signal), []);
  const [dialog, setDialog] = useState(null);
  const [made, setMade] = useState(null);
  return html`<${PageHead} title="API keys"><button class="primary" onClick=${() => setDialog("new")}>New key…</button><//>
    <p class="intro">Programs use a key in place of a password: <code>Authorization: Bearer KEY:SECRET</code>, or as user name and password of Basic authentication.</p>
    <${Loaded} from=${list}>${(answer) => html`<${Table} caption="API keys" rows=${answer.data ?? answer} keyOf=${(row) => row.name} empty="There are no API keys." columns=${[
      { title: "Name", wide: true, cell: (row) => html`<${Text} text=${row.name} />` },
      { title: "Key", named: true, hide: "phone", cell: (row) => html`<${Text} text=${row.api_key} mono />` },
      { title: "Scopes", cell: (row) => (row.scopes ?? []).map((scope) => html`<span class="tag">${scope}</span> `) },
      { title: "Made", hide: "phone", cell: (row) => html`<${Ago} at=${row.created_at} />` },
      { title: "By", named: true, hide: "narrow", cell: (row) => html`<${Text} text=${row.created_by} />` },
      { title: "Expires", hide: "phone", cell: (row) => html`${row.expired ? html`<span class="state bad"><i aria-hidden="true"></i>expired</span> ` : ""}<${Ago} at=${row.expired_at} empty="never" />` },
      { title: html`<span class="unseen">Actions</span>`, tight: true, cell: (row) => html`<button onClick=${() => setDialog(row)}>Revoke…</button>` },
    ]} />`}<//>
    ${dialog === "new" && html`<${NewKey} onClose=${() => setDialog(null)} onMade=${(key) => { setMade(key); list.reload(); }} />`}
    ${dialog?.name !== undefined && html`<${Confirm} title="Revoke this key?" action="Revoke" onClose=${() => setDialog(null)} work=${async () => {
      await del(`/api_key/${encodeURIComponent(dialog.name)}`);
      toast(`Revoked ${visible(shortened(dialog.name, 60))}`);
      list.reload();
    }}><p>Programs that use the key <${Text} text=${dialog.name} /> are refused from now on. This cannot be taken back.</p><//>`}
    ${made && html`<${Made} key_=${made} onClose=${() => setMade(null)} />`}`;
}

function NewKey({ onClose, onMade }) {
  const [name, setName] = useState("");
  const [scopes, setScopes] = useState(["read"]);
  const [lasting, setLasting] = useState("infinity");
  const change = (scope, on) => setScopes(on ? [...scopes, scope] : scopes.filter((each) => each !== scope));
  return html`<${Confirm} title="New API key" action="Make the key" danger=${false} disabled=${!name || !scopes.length} onClose=${onClose} work=${async () => onMade(await post("/api_key", { name, scopes, expired_at: lasting === "infinity" ? lasting : new Date(Date.now() + 86400_000 * Number(lasting)).toISOString() }))}>
    <${TextField} label="Name" value=${name} onValue=${setName} hint="says who uses the key; the log names it" />
    <fieldset><legend>Scopes</legend>${SCOPES.map(([scope, hint]) => html`<${Check} label=${scope} hint=${hint} value=${scopes.includes(scope)} onValue=${(on) => change(scope, on)} />`)}</fieldset>
    <${Choice} label="Expires" value=${lasting} onValue=${setLasting} options=${[["infinity", "never"], ["30", "after 30 days"], ["365", "after a year"]]} /><//>`;
}

function Made({ key_: key, onClose }) {
  const values = [["Key", key.api_key], ["Secret", key.api_secret]];
  return html`<${Dialog} title="The new key" onClose=${onClose}><div class="body"><${Note} kind="warning"><p>The secret is shown only now. Copy it before you close this.</p><//>
    <dl class="facts">${values.map(([name, value]) => html`<div><dt>${name}</dt><dd><code class="secret">${value}</code> <${CopyButton} text=${value} what=${`the ${name.toLowerCase()}`} /></dd></div>`)}</dl></div>
    <footer><button class="primary" onClick=${onClose}>I have copied it</button></footer><//>`;
}
