// Bans: who may not connect, since when, and until when.
import { html, useState } from "../html.js";
import { del, get, post } from "../api.js";
import { Loaded, useLoaded } from "../loaded.js";
import { Text, shortened, visible } from "../text.js";
import { Ago, fromLocalInput } from "../time.js";
import { Confirm } from "../parts/dialog.js";
import { Choice, TextField } from "../parts/fields.js";
import { toast } from "../parts/notices.js";
import { PageHead } from "../parts/shell.js";
import { Table } from "../parts/table.js";

const KINDS = [["clientid", "Client Identifier"], ["username", "User name"], ["peerhost", "Address"], ["peerhost_net", "Network"]];
const HINTS = { peerhost: "an IPv4 or IPv6 address, such as 192.0.2.7", peerhost_net: "a network, such as 192.0.2.0/24 or 2001:db8::/64" };
const LASTING = [["3600", "1 hour"], ["86400", "1 day"], ["604800", "1 week"], ["infinity", "until it is lifted"], ["date", "until a time…"]];

export function Bans() {
  const list = useLoaded((signal) => get("/banned", {}, signal), []);
  const [dialog, setDialog] = useState(null);
  return html`<${PageHead} title="Bans"><button class="primary" onClick=${() => setDialog("new")}>Ban…</button><//>
    <${Loaded} from=${list}>${(answer) => html`<${Table} caption="Bans" rows=${answer.data} keyOf=${(row) => `${row.as}\n${row.who}`} empty="Nobody is banned." columns=${[
      { title: "As", tight: true, cell: (row) => KINDS.find(([each]) => each === row.as)?.[1] ?? row.as },
      { title: "Who", wide: true, cell: (row) => html`<${Text} text=${row.who} mono />` },
      { title: "Reason", hide: "phone", cell: (row) => html`<${Text} text=${row.reason} />` },
      { title: "By", hide: "narrow", cell: (row) => html`<${Text} text=${row.by} />` },
      { title: "Since", hide: "phone", cell: (row) => html`<${Ago} at=${row.at} />` },
      { title: "Until", cell: (row) => html`<${Ago} at=${row.until} empty="it is lifted" />` },
      { title: html`<span class="unseen">Actions</span>`, tight: true, cell: (row) => html`<button onClick=${() => setDialog(row)}>Lift…</button>` },
    ]} />`}<//>
    ${dialog === "new" && html`<${BanForm} onClose=${() => { setDialog(null); list.reload(); }} />`}
    ${dialog?.who !== undefined && html`<${Confirm} title="Lift this ban?" action="Lift the ban" danger=${false} onClose=${() => setDialog(null)} work=${async () => {
      await del(`/banned/${encodeURIComponent(dialog.as)}/${encodeURIComponent(dialog.who)}`);
      toast(`${visible(shortened(dialog.who, 60))} may connect again`);
      list.reload();
    }}><p><${Text} text=${dialog.who} mono /> may connect again, if it can authenticate.</p><//>`}`;
}

/** The form of a new ban. */
export function BanForm({ kind: given = "clientid", who: known = "", onClose }) {
  const [kind, setKind] = useState(given);
  const [who, setWho] = useState(known);
  const [reason, setReason] = useState("");
  const [lasting, setLasting] = useState("86400");
  const [date, setDate] = useState("");
  const work = async () => {
    const until = lasting === "infinity" ? lasting : lasting === "date" ? fromLocalInput(date) : new Date(Date.now() + 1000 * Number(lasting)).toISOString();
    await post("/banned", { as: kind, who, reason, until });
    toast(`Banned ${visible(shortened(who, 60))}`);
  };
  return html`<${Confirm} title="Ban" action="Ban" work=${work} onClose=${onClose} disabled=${!who || (lasting === "date" && !date)}>
    <p>Its present connections end at once, and the broker refuses new ones.</p>
    <${Choice} label="As" value=${kind} onValue=${setKind} options=${KINDS} />
    <${TextField} label="Who" value=${who} onValue=${setWho} hint=${HINTS[kind]} />
    <${Choice} label="For" value=${lasting} onValue=${setLasting} options=${LASTING} />
    ${lasting === "date" && html`<${TextField} label="Until" type="datetime-local" step="1" value=${date} onValue=${setDate} />`}
    <${TextField} label="Reason" value=${reason} onValue=${setReason} hint="is kept with the ban" /><//>`;
}
