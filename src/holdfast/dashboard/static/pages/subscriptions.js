// All subscriptions: who gets what.
import { html } from "../html.js";
import { getPage } from "../api.js";
import { plural } from "../format.js";
import { Loaded, useLoaded } from "../loaded.js";
import { go } from "../router.js";
import { Text } from "../text.js";
import { Choice, Search } from "../parts/fields.js";
import { Missing } from "../parts/notices.js";
import { PageHead } from "../parts/shell.js";
import { Pager, Table, usePages } from "../parts/table.js";
import { SUBSCRIPTION_COLUMNS } from "./client.js";
import { clientLink } from "./clients.js";

const LIMIT = 100;
const BY = [["match_topic", "that match the topic"], ["topic", "with the Topic Filter"], ["clientid", "of the client"], ["share_group", "of the share group"]];
const QOS = [["", "any QoS"], ["0", "QoS 0"], ["1", "QoS 1"], ["2", "QoS 2"]];

export function Subscriptions({ params }) {
  const by = BY.some(([each]) => each === params.by) ? params.by : "match_topic";
  const search = { [by]: params.q, qos: params.qos };
  const key = JSON.stringify(search);
  const pages = usePages(key);
  const list = useLoaded((signal) => getPage("/subscriptions", { ...search, limit: LIMIT, cursor: pages.cursor }, signal), [key, pages.cursor]);
  const change = (more) => go("subscriptions", { ...params, ...more }, true);
  return html`<${PageHead} title="Subscriptions" />
    <div class="filters"><${Choice} label="Subscriptions" value=${by} onValue=${(next) => change({ by: next })} options=${BY} />
      <${Search} main label="Search subscriptions" value=${params.q} onValue=${(q) => change({ q })} placeholder=${by === "match_topic" ? "a/topic" : by === "topic" ? "a/+/filter" : "a name"} />
      <${Choice} label="with" value=${params.qos ?? ""} onValue=${(qos) => change({ qos })} options=${QOS} /></div>
    <${Loaded} from=${list} lines=${10}>${(answer) => html`
      <${Missing} meta=${answer.meta} what="subscriptions" />
      <${Table} caption="Subscriptions" rows=${answer.data} keyOf=${(row) => `${row.node}\n${row.clientid}\n${row.topic}`} columns=${COLUMNS} empty=${params.q || params.qos ? "No subscription matches this search." : "Nobody has subscribed to anything."} />
      <${Pager} pages=${pages} meta=${answer.meta}>${plural(answer.data.length, "subscription")} on this page.<//>`}<//>`;
}

const COLUMNS = [
  SUBSCRIPTION_COLUMNS[0],
  { title: "Client Identifier", named: true, cell: (row) => html`<a href=${clientLink(row.clientid)}><${Text} text=${row.clientid} mono empty="(empty)" /></a>` },
  ...SUBSCRIPTION_COLUMNS.slice(1),
];
