// Publishing from the console.
import { html, useState } from "../../html.js";
import { bytesIn } from "../../payload.js";
import { shortened, visible } from "../../text.js";
import { Check, Choice, Field, TextField } from "../../parts/fields.js";
import { ErrorBox, toast } from "../../parts/notices.js";
import { PairFields } from "../../parts/pairs.js";

const QOS = [["0", "0"], ["1", "1"], ["2", "2"]];
const NOBODY = 0x10;

export function Publish({ link }) {
  const [topic, setTopic] = useState("");
  const [payload, setPayload] = useState("");
  const [encoding, setEncoding] = useState("plain");
  const [qos, setQoS] = useState("0");
  const [retain, setRetain] = useState(false);
  const [type, setType] = useState("");
  const [expiry, setExpiry] = useState("");
  const [pairs, setPairs] = useState([]);
  const [error, setError] = useState(null);
  const submit = async (event) => {
    event.preventDefault();
    setError(null);
    try {
      const bytes = encoding === "base64" ? bytesIn(payload) : new TextEncoder().encode(payload);
      const properties = { ...(type && { contentType: type }), ...(expiry && { messageExpiryInterval: Number(expiry) }), ...(pairs.length && { userProperties: grouped(pairs) }) };
      const answer = await link.publish(topic, bytes, { qos: Number(qos), retain, properties });
      toast(`Published to ${visible(shortened(topic, 60))}`, "done", answer?.reasonCode === NOBODY ? "Nobody has subscribed to it." : "");
    } catch (failure) {
      setError({ title: "Not published", detail: failure.name === "InvalidCharacterError" ? "The payload is not base64." : failure.message });
    }
  };
  return html`<section class="panel"><h2>Publish</h2><form onSubmit=${submit}>
    <${TextField} label="Topic" value=${topic} onValue=${setTopic} class="mono" required />
    <${Field} label="Payload">${(id) => html`<textarea id=${id} class="mono" rows="4" spellcheck="false" value=${payload} onInput=${(event) => setPayload(event.target.value)}></textarea>`}<//>
    <div class="row-fields"><${Choice} label="The payload is" value=${encoding} onValue=${setEncoding} options=${[["plain", "text"], ["base64", "base64"]]} /><${Choice} label="QoS" value=${qos} onValue=${setQoS} options=${QOS} /></div>
    <${Check} label="Retain" hint=${retain && !payload ? "an empty payload clears the topic" : "keep it for later subscribers"} value=${retain} onValue=${setRetain} />
    <details><summary>Properties</summary><div class="row-fields"><${TextField} label="Content Type" value=${type} onValue=${setType} /><${TextField} label="Expires after (seconds)" value=${expiry} onValue=${setExpiry} inputmode="numeric" pattern="[0-9]*" /></div><${PairFields} pairs=${pairs} onPairs=${setPairs} /></details>
    ${error && html`<${ErrorBox} error=${error} />`}
    <button class="primary" disabled=${link.state !== "live" || !topic}>Publish</button></form></section>`;
}

/** MQTT.js takes pairs as an object; values of a repeated name as a list. */
function grouped(pairs) {
  const found = Object.create(null);
  for (const [name, value] of pairs) found[name] = name in found ? [found[name], value].flat() : value;
  return found;
}
