// The chosen topic: its message, its history, and what is below it.
import { html, useEffect, useMemo, useRef, useState } from "../../html.js";
import { address, get } from "../../api.js";
import { bytes, count, plural } from "../../format.js";
import { Loaded, useLoaded } from "../../loaded.js";
import { href } from "../../router.js";
import { bytesIn } from "../../payload.js";
import { Text } from "../../text.js";
import { Ago, Exact } from "../../time.js";
import { Check, Tabs } from "../../parts/fields.js";
import { CopyButton } from "../../parts/copying.js";
import { Empty, Note } from "../../parts/notices.js";
import { PayloadView } from "../../parts/payload-view.js";
import { allowed, useCaller } from "../../session.js";
import { clientLink } from "../clients.js";
import { Clear } from "./clearing.js";
import { History } from "./history.js";
import { Restore } from "./restoring.js";
import { SetForm } from "./setting.js";
import { forgetTree } from "./tree.js";

const TABS = [["message", "Message"], ["history", "History"], ["below", "Below"]];

/** A topic with more levels is shown as it is: each level would be a link with all levels above it. */
const MOST_LINKS = 30;

export const subtree = (topic) => `${topic}/#`;

export function Topic({ topic, at, tab: asked, onTab, news, follow, onFollow }) {
  const caller = useCaller();
  const token = useRef(null);
  const message = useLoaded(topic === "" ? async () => null : async (signal) => {
    const list = await get("/mqtt/retainer/messages", { topic, at, limit: 1, payload: true }, signal);  // it has the token for changes after it
    token.current = list.meta.token;
    return list.data[0] ?? null;
  }, [topic, at]);
  const below = useLoaded((signal) => get("/mqtt/retainer/count", { topic: subtree(topic) }, signal), [topic]);
  const [dialog, setDialog] = useState(null);
  const following = follow?.filter === topic;
  const change = news.topics.get(topic);
  useEffect(() => { if (change) message.reload(); }, [change, news.resets]);
  const tab = TABS.some(([each]) => each === asked) ? asked : "message";
  const write = allowed(caller, "retained:write") && !at;
  const done = (changed) => { setDialog(null); if (changed) { message.reload(); below.reload(); forgetTree(); } };
  const others = below.data ? below.data.count - (message.data ? 1 : 0) : 0;
  return html`<div class="topic">
    <div class="topic-head"><h2><${Levels} topic=${topic} /></h2><${CopyButton} text=${topic} what="the topic" /><${CopyButton} icon="link" text=${`${location.origin}${location.pathname}${href(["retained", "tree"], { topic })}`} what="a link to the topic" /></div>
    <div class="bar">
      ${topic !== "" && !at && html`<${Check} label="Live" value=${following} onValue=${(on) => onFollow(on ? { filter: topic, token: token.current, from: "topic" } : null)} />`}<span class="spring"></span>
      ${write && html`${topic !== "" && html`<button onClick=${() => setDialog("set")}>Set…</button>`}
        <button onClick=${() => setDialog("restore")}>Restore…</button>
        <button disabled=${!message.data} onClick=${() => setDialog("clear")}>Clear…</button>`}
    </div>
    <${Tabs} label="Parts of the topic" value=${tab} onValue=${onTab} options=${TABS.map(([each, title]) => [each, each === "below" && others > 0 ? `${title} (${below.data.exact === false ? "≥ " : ""}${count(others)})` : title])} />
    <div role="tabpanel" aria-label=${TABS.find(([each]) => each === tab)[1]}>
      ${tab === "message" && (message.loading && message.data === null && !message.error ? html`<${Loaded} from=${message} lines=${6} />` : message.data === null && !message.error
        ? html`<${Empty} title=${at ? "This topic had no message then." : "This topic has no message."}>${others > 0 ? `Below it there ${others === 1 ? "is" : "are"} ${plural(others, "message")}.` : "Its history tells whether it had one."}<//>`
        : html`<${Loaded} from=${message}>${(row) => html`<${Message} row=${row} />`}<//>`)}
      ${tab === "history" && html`<${History} topic=${topic} turn=${change} onChanged=${() => done(true)} />`}
      ${tab === "below" && html`<${Below} topic=${topic} below=${below} write=${write} onDialog=${setDialog} />`}
    </div>
    ${dialog === "set" && html`<${SetForm} topic=${topic} message=${message.data} fixed onClose=${done} />`}
    ${dialog === "clear" && html`<${Clear} filter=${topic} onClose=${done} />`}
    ${dialog === "clear-below" && html`<${Clear} filter=${subtree(topic)} onClose=${done} />`}
    ${dialog === "restore" && html`<${Restore} filter=${message.data && others === 0 ? topic : subtree(topic)} topic=${topic} onClose=${done} />`}
  </div>`;
}

/** The topic, whose levels above lead to them. */
function Levels({ topic }) {
  const names = topic.split("/");
  if (topic === "" || names.length > MOST_LINKS) return html`<${Text} text=${topic} mono empty="(empty level)" />`;
  return names.map((name, at) => (at === names.length - 1 ? html`<${Text} text=${name} mono empty="" />`
    : html`<a class="level" href=${href(["retained", "tree"], { topic: names.slice(0, at + 1).join("/") })}><${Text} text=${name} mono empty="(empty level)" /></a><span class="quiet">/</span>`));
}


function Message({ row }) {
  const facts = [
    ["Stored", html`<${Ago} at=${row.publish_at} /> <span class="quiet"><${Exact} at=${row.publish_at} /></span>`],
    ["Expires", html`<${Ago} at=${row.expiry_at} empty="never" />`],
    ["Publisher", row.from_clientid ? html`<a href=${clientLink(row.from_clientid)}><${Text} text=${row.from_clientid} mono /></a>` : html`<span class="quiet">no client</span>`],
    ["User name", html`<${Text} text=${row.from_username} />`],
    ["QoS", row.qos],
    ["Size", html`${bytes(row.size)}`],
    ["Revision", html`<span class="mono">${row.revision}</span>`],
  ];
  return html`<dl class="facts">${facts.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}${properties(row.properties)}</dl>
    ${row.payload === undefined ? html`<${Note}><p>The payload has ${bytes(row.size)}: too many to show here. <a download href=${address("/mqtt/retainer/export", { topic: row.topic })}>Save it</a> instead.</p><//>` : html`<${Payload} base64=${row.payload} />`}`;
}

export function Payload({ base64, compact = false }) {
  const decoded = useMemo(() => bytesIn(base64), [base64]);
  return html`<${PayloadView} bytes=${decoded} compact=${compact} />`;
}

const NAMES = { content_type: "Content Type", payload_format_indicator: "Payload Format", response_topic: "Response Topic", correlation_data: "Correlation Data" };

/** The properties of PUBLISH, with the standard's names. */
export function properties(given) {
  const { user_properties: pairs = [], ...others } = given ?? {};
  return html`${Object.entries(others).map(([name, value]) => html`<div key=${name}><dt>${NAMES[name] ?? name}</dt><dd>${name === "payload_format_indicator" ? (value ? "UTF-8 text" : "bytes") : html`<${Text} text=${value} mono />`}</dd></div>`)}
    ${pairs.length > 0 && html`<div><dt>${plural(pairs.length, "User Property", "User Properties")}</dt><dd>${pairs.map(([name, value]) => html`<div class="pair"><${Text} text=${name} empty="(empty)" mono /> <span class="quiet">=</span> <${Text} text=${value} empty="(empty)" mono /></div>`)}</dd></div>`}`;
}

function Below({ topic, below, write, onDialog }) {
  const filter = subtree(topic);
  return html`<${Loaded} from=${below}>${(found) => html`
    <p>The Topic Filter <${Text} text=${filter} mono /> matches <b>${found.exact === false ? "at least " : ""}${plural(found.count, "message")}</b> with ${bytes(found.bytes)}, the topic itself included.</p>
    <div class="buttons"><a class="button" href=${`#/retained/search?q=${encodeURIComponent(filter)}`}>List them</a>
      <a class="button" download href=${address("/mqtt/retainer/export", { topic: filter })}>Export all</a>
      ${write && html`<button onClick=${() => onDialog("restore")}>Restore all…</button><button class="danger" disabled=${!found.count} onClick=${() => onDialog("clear-below")}>Clear all…</button>`}</div>`}<//>`;
}
