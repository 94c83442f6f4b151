// Setting a retained message, as a publisher would.
import { html, useState } from "../../html.js";
import { post } from "../../api.js";
import { bytesIn, jsonIn, textIn } from "../../payload.js";
import { shortened, visible } from "../../text.js";
import { Confirm } from "../../parts/dialog.js";
import { Check, Choice, Field, TextField } from "../../parts/fields.js";
import { toast } from "../../parts/notices.js";
import { forgetTree } from "./tree.js";
import { PairFields } from "../../parts/pairs.js";

const ENCODINGS = [["plain", "text"], ["base64", "base64"]];

/** `message`: the present one, if there is one. `fixed`: the topic cannot be changed. `onClose(topic)` if it was set. */
export function SetForm({ topic: given, message = null, fixed = false, onClose }) {
  const before = message?.payload === undefined ? null : textIn(bytesIn(message.payload));
  const [topic, setTopic] = useState(given);
  const [encoding, setEncoding] = useState(message?.payload !== undefined && before === null ? "base64" : "plain");
  const [payload, setPayload] = useState(before ?? message?.payload ?? "");
  const [qos, setQoS] = useState(String(message?.qos ?? 0));
  const [type, setType] = useState(message?.properties?.content_type ?? "");
  const [expiry, setExpiry] = useState("");
  const [pairs, setPairs] = useState(message?.properties?.user_properties ?? []);
  const [quiet, setQuiet] = useState(false);
  const looksJSON = encoding === "plain" && /^\s*[[{]/.test(payload);
  const work = async () => {
    const properties = { ...(type && { content_type: type }), ...(expiry && { message_expiry_interval: Number(expiry) }), ...(pairs.length && { user_properties: pairs }) };
    await post("/mqtt/retainer/messages", { topic, payload, payload_encoding: encoding, qos: Number(qos), quiet, properties });
    toast(`Set ${visible(shortened(topic, 60))}`);
    forgetTree();
  };
  return html`<${Confirm} title=${fixed ? "Set the message of this topic" : "New retained message"} action="Set" danger=${false} disabled=${!topic || !payload} work=${work} onClose=${(done) => onClose(done ? topic : false)}>
    <${TextField} label="Topic" value=${topic} onValue=${setTopic} disabled=${fixed} class="mono" />
    <${Field} label="Payload" hint=${looksJSON ? (jsonIn(payload) ? "valid JSON" : "looks like JSON, but is not valid") : "a message without a payload would clear the topic"}>${(id, described) => html`<textarea id=${id} aria-describedby=${described} class="mono" rows="6" spellcheck="false" value=${payload} onInput=${(event) => setPayload(event.target.value)}></textarea>`}<//>
    <div class="row-fields"><${Choice} label="The payload is" value=${encoding} onValue=${setEncoding} options=${ENCODINGS} />
      <${Choice} label="QoS" value=${qos} onValue=${setQoS} options=${[["0", "0"], ["1", "1"], ["2", "2"]]} />
      <${TextField} label="Expires after (seconds)" value=${expiry} onValue=${setExpiry} inputmode="numeric" pattern="[0-9]*" placeholder="never" /></div>
    <${TextField} label="Content Type" value=${type} onValue=${setType} placeholder="application/json" />
    <${PairFields} pairs=${pairs} onPairs=${setPairs} />
    <${Check} label="Only store it" hint="present subscribers are not sent this message" value=${quiet} onValue=${setQuiet} /><//>`;
}
