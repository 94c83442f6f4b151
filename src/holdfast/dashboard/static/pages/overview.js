// The overview: what the broker does now, and how it went in the last minutes or hours.
import { html, useMemo, useState } from "../html.js";
import { get } from "../api.js";
import { useConnection, useEvents } from "../events.js";
import { byteRate, bytes, compact, count, duration, milliseconds, plural, rate } from "../format.js";
import { Loaded, useEvery, useLoaded } from "../loaded.js";
import { go, href } from "../router.js";
import { moment } from "../time.js";
import { Chart } from "../parts/chart.js";
import { Segments } from "../parts/fields.js";
import { PageHead } from "../parts/shell.js";
import { Icon } from "../parts/icons.js";
import { Text } from "../text.js";

const RANGES = [["5m", "5 min", 300], ["1h", "1 h", 3600], ["24h", "24 h", 86400]];
const STALE = 10_000;

export function Overview({ params }) {
  const [name, , seconds] = RANGES.find(([each]) => each === params.range) ?? RANGES[0];
  const past = useLoaded((signal) => get("/monitor", { latest: seconds }, signal), [seconds]);
  const alarms = useLoaded((signal) => get("/alarms", { activated: true }, signal), []);
  const node = useLoaded((signal) => get("/nodes", {}, signal), []);
  const [live, setLive] = useState([]);
  useEvents({ kinds: ["monitor", "alarms"] }, (kind, data) => {
    if (kind === "alarm") alarms.reload();
    else setLive((before) => [...before.slice(-300), data]);
  });
  const connection = useConnection();
  useEvery(seconds > 300 ? seconds / 240 : connection === "live" ? 0 : 5, past.reload);
  const samples = useMemo(() => merged(past.data ?? [], live, seconds), [past.data, live, seconds]);
  return html`<${PageHead} title="Overview"><${Segments} label="Period" value=${name} onValue=${(range) => go("overview", { range }, true)} options=${RANGES.map(([each, title]) => [each, title])} /><//>
    <${ActiveAlarms} alarms=${alarms.data?.data ?? []} />
    <${Loaded} from=${past} lines=${12}>${() => html`<${Figures} samples=${samples} node=${own(node.data?.data ?? node.data)} /><${Charts} samples=${samples} seconds=${seconds} />`}<//>`;
}

/** This node, whose figures the page shows. */
const own = (nodes) => nodes?.find((node) => node.local) ?? nodes?.[0];

/** The samples of the API, then newer live ones, of the period. */
function merged(past, live, seconds) {
  const last = past.length ? moment(past.at(-1).time_stamp) : 0;
  const step = seconds > 300 ? seconds / 360 * 1000 : 0;
  const added = [];
  let before = last;
  for (const each of live) {
    const at = moment(each.time_stamp);
    if (at > before + step) { added.push(each); before = at; }
  }
  const newest = added.length ? moment(added.at(-1).time_stamp) : last;
  return [...past, ...added].filter((each) => moment(each.time_stamp) >= newest - seconds * 1000);
}

function ActiveAlarms({ alarms }) {
  if (!alarms.length) return null;
  return html`<a class="notice warning link" href=${href("alarms")}><${Icon} name="alarms" /><div><strong>${plural(alarms.length, "active alarm")}</strong>
    <p>${alarms.slice(0, 3).map((each, at) => html`${at > 0 && " · "}<${Text} text=${each.message ?? each.name} />`)}${alarms.length > 3 && " …"}</p></div></a>`;
}

function Figures({ samples, node }) {
  const now = samples.at(-1) ?? {};
  const old = now.time_stamp !== undefined && Date.now() - moment(now.time_stamp) > STALE * 7;
  const first = samples[0] ?? {};
  const grown = (now.retained_msg_count ?? 0) - (first.retained_msg_count ?? 0);
  const figures = [
    ["Messages in", rate(now.received_msg_rate), byteRate(now.received_bytes_rate), null],
    ["Messages out", rate(now.sent_msg_rate), byteRate(now.sent_bytes_rate), null],
    ["PUBACK after commit", milliseconds(now.puback_p99_ms), `half within ${milliseconds(now.puback_p50_ms)}`, null],
    ["Reactor lag, 99 %", milliseconds(now.reactor_lag_p99_ms), `writer queue ${bytes(now.writer_queue_bytes)}`, null],
    ["Connected clients", count(now.live_connections ?? now.connections), `${plural(now.sessions, "Session")}, ${plural(now.subscriptions, "subscription")}`, href("clients")],
    ["Retained messages", count(now.retained_msg_count), `${bytes(now.retained_bytes)}, ${grown < 0 ? "−" : "+"}${count(Math.abs(grown))} in this period`, href("retained")],
    ["Free disk", bytes(now.disk_free_bytes), now.database_bytes === undefined ? "" : `database ${bytes(now.database_bytes)}`, null],
    ["Memory", bytes(now.memory_bytes), node?.uptime === undefined ? "" : `up ${duration(node.uptime / 1000)}`, null],
  ];
  return html`<dl class="figures">${figures.map(([title, value, more, link]) => html`<div key=${title}><dt>${link ? html`<a href=${link}>${title}</a>` : title}</dt><dd><strong>${value}</strong><small>${more || "\u00a0"}</small></dd></div>`)}</dl>
    ${old && html`<p class="quiet">These figures are old: no newer ones have come from the broker.</p>`}`;
}

const CHARTS = [
  ["Messages", [["in", "received_msg_rate"], ["out", "sent_msg_rate"]], rate],
  ["Bytes", [["in", "received_bytes_rate"], ["out", "sent_bytes_rate"]], byteRate],
  ["PUBACK after commit", [["99 %", "puback_p99_ms"], ["50 %", "puback_p50_ms"]], milliseconds],
  ["Reactor lag", [["99 %", "reactor_lag_p99_ms"]], milliseconds],
  ["Clients", [["connected", "live_connections"], ["Sessions", "sessions"], ["subscriptions", "subscriptions"]], compact],
  ["Retained messages", [["messages", "retained_msg_count"]], compact, false],
  ["Retained bytes", [["bytes", "retained_bytes"]], bytes, false],
  ["Memory", [["used", "memory_bytes"]], bytes],
];

function Charts({ samples, seconds }) {
  const times = useMemo(() => samples.map((each) => moment(each.time_stamp) / 1000), [samples]);
  const last = times.at(-1) ?? Date.now() / 1000;
  return html`<div class="charts">${CHARTS.map(([title, series, format, zero]) => html`<${OverTime} key=${title} title=${title} series=${series} format=${format} zero=${zero ?? true} samples=${samples} times=${times} range=${[last - seconds, last]} />`)}</div>`;
}

function OverTime({ title, series, format, zero, samples, times, range }) {
  const values = useMemo(() => series.map(([name, field]) => ({ name, format, values: samples.map((each) => each[field] ?? null) })), [samples]);
  return html`<${Chart} title=${title} times=${times} series=${values} range=${range} zero=${zero} bridged=${format === milliseconds} />`;
}
