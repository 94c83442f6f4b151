// The explorer of retained messages: on the left a tree, a search or the changes; on the right the chosen topic.
import { html, useEffect, useRef, useState } from "../../html.js";
import { useEvents } from "../../events.js";
import { go, href } from "../../router.js";
import { Segments } from "../../parts/fields.js";
import { PageHead } from "../../parts/shell.js";
import { Icon } from "../../parts/icons.js";
import { Empty } from "../../parts/notices.js";
import { allowed, useCaller } from "../../session.js";
import { Tree } from "./tree.js";
import { Results } from "./results.js";
import { Changes } from "./changes.js";
import { Topic } from "./topic.js";
import { SetForm } from "./setting.js";

const MODES = [["tree", "Tree"], ["search", "Search"], ["changes", "Changes"]];
const CALM = 400;
const isFilter = (topic) => /[+#]/.test(topic);  // no Topic Name has these [MQTT-3.3.2-2]

export function Retained({ path, params }) {
  const caller = useCaller();
  const mode = MODES.some(([each]) => each === path[1]) ? path[1] : "tree";
  const [setting, setSetting] = useState(false);
  const [follow, setFollow] = useState(null);
  const news = useNews(follow);
  const chosen = params.topic;
  const open = (topic, more = {}) => go(["retained", mode], { ...params, tab: undefined, ...more, topic });
  const change = (more) => go(["retained", mode], { ...params, ...more }, true);
  const heading = useRef(null);
  useEffect(() => { if (chosen !== undefined && innerWidth < 900) heading.current?.scrollIntoView(); }, [chosen]);
  return html`<div class=${`explorer ${mode === "tree" ? "" : "list"} ${chosen === undefined ? "" : "chosen"}`}>
    <${PageHead} title="Retained messages">
      <${Segments} label="Find messages by" value=${mode} onValue=${(next) => go(["retained", next], { ...params })} options=${MODES} />
      ${allowed(caller, "retained:write") && html`<button onClick=${() => setSetting(true)}>New message…</button>`}
    <//>
    <div class="split">
      <section class="left" aria-label=${MODES.find(([each]) => each === mode)[1]}>
        ${mode === "tree" && html`<${Tree} chosen=${chosen} onChoose=${open} />`}
        ${mode === "search" && html`<${Results} params=${params} chosen=${chosen} onChoose=${open} onChange=${change} news=${news} follow=${follow} onFollow=${setFollow} />`}
        ${mode === "changes" && html`<${Changes} params=${params} chosen=${chosen} onChoose=${(topic) => open(topic, { tab: "history" })} onChange=${change} />`}
      </section>
      <section class="right" aria-label="The chosen topic" ref=${heading}>
        ${chosen === undefined
          ? html`<${Empty} title="No topic is chosen.">Open the tree with the arrow keys or by clicks, or search by a Topic Filter such as <code>building/+/temperature</code>.<//>`
          : isFilter(chosen) ? html`<${Empty} title="This is a Topic Filter.">It has wildcards, so it is no topic with a message. <a href=${href(["retained", "search"], { q: chosen })}>Search by it</a> instead.<//>`
          : html`<a class="back" href=${href(["retained", mode], { ...params, topic: undefined, tab: undefined })}><${Icon} name="back" />Back to the ${mode === "tree" ? "tree" : "list"}</a>
            <${Topic} key=${chosen} topic=${chosen} at=${mode === "search" ? params.at : undefined} tab=${params.tab} onTab=${(tab) => change({ tab })} news=${news} follow=${follow} onFollow=${setFollow} />`}
      </section>
    </div>
    ${setting && html`<${SetForm} topic=${chosen ?? ""} onClose=${(done) => { setSetting(false); if (typeof done === "string") open(done); }} />`}
  </div>`;
}

/**
 * Follow the changes of a Topic Filter after a token. Returns the newest change of each topic, and two numbers that
 * grow: `turn` after changes, not more often than people can read, and `resets` when a list has to be made again.
 */
function useNews(follow) {
  const [news, setNews] = useState({ turn: 0, resets: 0, topics: new Map() });
  const waiting = useRef(null);
  const collected = useRef(new Map());
  useEffect(() => () => clearTimeout(waiting.current), []);
  useEffect(() => { collected.current = new Map(); setNews((before) => ({ ...before, topics: new Map() })); }, [follow?.filter]);
  useEvents({ filter: follow?.filter, since: follow?.token, on: follow !== null }, (kind, data) => {
    if (kind === "reset") { setNews((before) => ({ ...before, resets: before.resets + 1 })); return; }
    if (data.topic === undefined) return;
    collected.current.delete(data.topic);  // the newest is the last
    collected.current.set(data.topic, { ...data, seen: Date.now() });
    if (collected.current.size > 2000) collected.current.delete(collected.current.keys().next().value);
    waiting.current ??= setTimeout(() => {
      waiting.current = null;
      setNews((before) => ({ ...before, turn: before.turn + 1, topics: new Map(collected.current) }));
    }, CALM);
  });
  return news;
}
