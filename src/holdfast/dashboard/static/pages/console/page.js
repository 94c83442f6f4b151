// The console: subscribe and publish from the browser.
import { html, useEffect, useState } from "../../html.js";
import { PageHead } from "../../parts/shell.js";
import { Note } from "../../parts/notices.js";
import { Text } from "../../text.js";
import { allowed, useCaller } from "../../session.js";
import { link } from "./link.js";
import { Messages } from "./messages.js";
import { Publish } from "./publish.js";
import { Subscribe } from "./subscribe.js";

const STATES = { off: ["idle", "not connected"], connecting: ["wait", "connecting…"], live: ["ok", "connected"] };

export function Console() {
  const caller = useCaller();
  const [, draw] = useState(0);
  useEffect(() => link.watch(draw), []);
  useEffect(() => { link.connect(); }, []);
  const [kind, text] = STATES[link.state];
  return html`<${PageHead} title="Console"><span class=${`state ${kind}`} role="status"><i aria-hidden="true"></i>${text}</span>
      ${link.state === "off" ? html`<button class="primary" onClick=${() => link.connect()}>Connect</button>` : html`<button onClick=${() => link.disconnect()}>Disconnect</button>`}<//>
    ${link.detail && html`<${Note} kind="warning"><p><${Text} text=${link.detail} /></p><//>`}
    <div class="console">
      <div><${Subscribe} link=${link} />${allowed(caller, "publish") && html`<${Publish} link=${link} />`}</div>
      <${Messages} link=${link} />
    </div>`;
}
