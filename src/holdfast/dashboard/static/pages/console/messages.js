// The messages that the console has received: the newest ones, and one in full.
import { html, useState } from "../../html.js";
import { bytes, count } from "../../format.js";
import { preview } from "../../payload.js";
import { Text } from "../../text.js";
import { clockTime } from "../../time.js";
import { Empty } from "../../parts/notices.js";
import { PayloadView } from "../../parts/payload-view.js";
import { Table } from "../../parts/table.js";
import { properties } from "../retained/topic.js";
import { MOST } from "./link.js";

export function Messages({ link }) {
  const [chosen, setChosen] = useState(null);
  const found = link.messages.find((each) => each.number === chosen);
  const pick = (row) => setChosen(row.number === chosen ? null : row.number);
  return html`<section class="panel messages" aria-label="Received messages">
    <div class="bar"><h2>Messages</h2><span class="quiet" role="status">${count(link.received)} received${link.received > MOST ? `, the last ${MOST} are kept` : ""}${link.missed ? `, ${count(link.missed)} not shown` : ""}</span><span class="spring"></span>
      <button aria-pressed=${link.paused} onClick=${() => link.pause(!link.paused)}>${link.paused ? "Go on" : "Pause"}</button><button disabled=${!link.messages.length} onClick=${() => link.clear()}>Clear</button></div>
    ${found && html`<div class="shown"><div class="bar"><h3><${Text} text=${found.topic} mono /></h3><span class="spring"></span><button onClick=${() => setChosen(null)}>Close</button></div>
      <dl class="facts">${properties(standard(found.properties))}</dl><${PayloadView} key=${found.number} bytes=${found.payload} compact /></div>`}
    ${link.messages.length === 0 ? html`<${Empty} title="No messages yet.">${link.subscriptions.length ? "They appear here as they are published." : "Subscribe to a Topic Filter to see its messages."}<//>` : html`<div class="tall-limited more"><${Table} caption="Received messages" rows=${link.messages} keyOf=${(row) => row.number} open=${pick} selected=${(row) => row.number === chosen} empty="" columns=${[
      { title: "Time", tight: true, cell: (row) => clockTime(row.at) },
      { title: "Topic", topic: true, wide: true, cell: (row) => html`<button class="link" onClick=${() => pick(row)}><${Text} text=${row.topic} mono /></button>` },
      { title: "Payload", cell: (row) => html`<span class="clip"><${Beginning} bytes=${row.payload} /></span>` },
      { title: "QoS", number: true, hide: "narrow", cell: (row) => row.qos },
      { title: "Retained", hide: "medium", cell: (row) => (row.retain ? "yes" : "") },
      { title: "Size", number: true, hide: "medium", cell: (row) => bytes(row.payload.length) },
    ]} /></div>`}</section>`;
}

function Beginning({ bytes: payload }) {
  const { text, cut } = preview(payload);
  return html`<span class="mono"><${Text} text=${text} empty="" />${cut && "…"}</span>`;
}

/** The properties of MQTT.js with the names of the API. */
function standard(given) {
  const { contentType, payloadFormatIndicator, responseTopic, correlationData, userProperties } = given;
  const pairs = Object.entries(userProperties ?? {}).flatMap(([name, values]) => [values].flat().map((value) => [name, value]));
  return {
    ...(contentType !== undefined && { content_type: contentType }), ...(payloadFormatIndicator !== undefined && { payload_format_indicator: payloadFormatIndicator ? 1 : 0 }),
    ...(responseTopic !== undefined && { response_topic: responseTopic }), ...(correlationData !== undefined && { correlation_data: [...correlationData].map((byte) => byte.toString(16).padStart(2, "0")).join(" ") }), user_properties: pairs,
  };
}
