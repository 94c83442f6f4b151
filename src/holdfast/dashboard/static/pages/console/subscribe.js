// The console's subscriptions, with the options of MQTT 5.
import { html, useState } from "../../html.js";
import { Text, shortened, visible } from "../../text.js";
import { Check, Choice, TextField } from "../../parts/fields.js";
import { ErrorBox } from "../../parts/notices.js";
import { Icon } from "../../parts/icons.js";

const QOS = [["0", "0"], ["1", "1"], ["2", "2"]];
const HANDLING = [["0", "send them"], ["1", "send them if new"], ["2", "do not send them"]];
const FAILED = 0x80;

export function Subscribe({ link }) {
  const [filter, setFilter] = useState("");
  const [qos, setQoS] = useState("0");
  const [nl, setNl] = useState(false);
  const [rap, setRap] = useState(true);
  const [rh, setRh] = useState("0");
  const [error, setError] = useState(null);
  const submit = async (event) => {
    event.preventDefault();
    setError(null);
    try {
      await link.subscribe({ filter, qos: Number(qos), nl, rap, rh: Number(rh) });
      setFilter("");
    } catch (failure) {
      setError({ title: "Not subscribed", detail: failure.message });
    }
  };
  return html`<section class="panel"><h2>Subscribe</h2><form onSubmit=${submit}>
      <${TextField} label="Topic Filter" value=${filter} onValue=${setFilter} class="mono" placeholder="building/#" required />
      <div class="row-fields"><${Choice} label="QoS" value=${qos} onValue=${setQoS} options=${QOS} /><${Choice} label="Retained messages" value=${rh} onValue=${setRh} options=${HANDLING} /></div>
      <div class="checks"><${Check} label="No Local" value=${nl} onValue=${setNl} /><${Check} label="Retain As Published" value=${rap} onValue=${setRap} /></div>
      ${error && html`<${ErrorBox} error=${error} />`}
      <button class="primary" disabled=${link.state !== "live" || !filter}>Subscribe</button></form>
    ${link.subscriptions.length > 0 && html`<ul class="chips">${link.subscriptions.map((each) => html`<li key=${each.filter}><${Text} text=${each.filter} mono /><span class="quiet">${each.granted === null || each.granted === undefined ? "not active" : each.granted >= FAILED ? "refused" : `QoS ${each.granted}`}</span>
      <button class="plain" aria-label=${`Unsubscribe from ${visible(shortened(each.filter))}`} onClick=${() => link.unsubscribe(each.filter).catch(() => {})}><${Icon} name="close" /></button></li>`)}</ul>`}</section>`;
}
