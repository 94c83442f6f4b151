// The frame of all pages: the list of pages, the state of the connection, the theme, and the keys that work everywhere.
import { html, useEffect, useErrorBoundary, useRef, useState } from "../html.js";
import { href } from "../router.js";
import { get } from "../api.js";
import { useConnection, useEvents } from "../events.js";
import { plural } from "../format.js";
import { useLoaded } from "../loaded.js";
import { useTheme, THEMES } from "../theme.js";
import { useCaller } from "../session.js";
import { Text } from "../text.js";
import { Icon } from "./icons.js";
import { KeysHelp } from "./keys-help.js";
import { ErrorBox, Toasts } from "./notices.js";

const STATES = { off: ["idle", "Not live"], connecting: ["wait", "Connecting…"], live: ["ok", "Live"], broken: ["bad", "Reconnecting…"] };
const ICONS = { system: "screen", light: "sun", dark: "moon" };

/** `pages`: [name, title, group]; `here`: the name of the present one. */
export function Shell({ pages, here, title, onSignOut, children }) {
  const [open, setOpen] = useState(false);
  const [help, setHelp] = useState(false);
  const alarms = useAlarms();
  const main = useRef(null);
  useEffect(() => {
    const pressed = (event) => {
      if (event.key === "Escape") setOpen(false);
      if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog")) return;
      if (event.key === "?") { event.preventDefault(); setHelp(true); }
      if (event.key !== "/") return;
      const field = document.querySelector("[data-search]");
      if (field) { event.preventDefault(); field.focus(); field.select(); }
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
  useEffect(() => { setOpen(false); document.title = `${title} · Holdfast`; }, [here, title]);
  return html`<a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); main.current.focus(); }}>Go to the content</a>
    <header class="top"><button class="plain" aria-label="Pages" aria-expanded=${open} aria-controls="pages" onClick=${() => setOpen(!open)}><${Icon} name=${open ? "close" : "menu"} /></button>
      <span class="brand">Holdfast</span><span class="spring"></span><${Connection} /></header>
    <nav id="pages" class=${open ? "open" : ""} aria-label="Pages">
      <a class="brand" href=${href("overview")}><img src="icon.svg" alt="" width="22" height="22" />Holdfast</a>
      <ul>${pages.map(([name, label, group], at) => html`<li key=${name} class=${at && pages[at - 1][2] !== group ? "apart" : ""}><a href=${href(name)} aria-current=${name === here ? "page" : undefined}><${Icon} name=${name} />${label}${name === "alarms" && alarms > 0 && html`<span class="badge" title=${plural(alarms, "active alarm")}>${alarms}<span class="unseen"> active</span></span>`}</a></li>`)}</ul>
      <${Foot} onSignOut=${onSignOut} onHelp=${() => setHelp(true)} />
    </nav>
    <main id="main" ref=${main} tabindex="-1"><${Guarded} key=${here}>${children}<//></main>
    ${help && html`<${KeysHelp} onClose=${() => setHelp(false)} />`}
    <${Toasts} />`;
}

/** Return how many alarms are active. Its events also show on every page whether the broker can be reached. */
function useAlarms() {
  const list = useLoaded((signal) => get("/alarms", { activated: true, limit: 100 }, signal), []);
  useEvents({ kinds: ["alarms"] }, list.reload);
  const connection = useConnection();
  useEffect(() => { if (connection === "live") list.reload(); }, [connection]);  // what began and ended while it was away
  return list.data?.data.length ?? 0;
}

function Connection() {
  const [kind, text] = STATES[useConnection()];
  return html`<span class=${`connection ${kind}`} role="status"><i aria-hidden="true"></i>${text}</span>`;
}

function Foot({ onSignOut, onHelp }) {
  const caller = useCaller();
  const [theme, choose] = useTheme();
  const next = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  return html`<div class="foot"><${Connection} />
    <div class="who"><span class="quiet">Signed in by</span><${Text} text=${caller.name} /></div>
    <div class="buttons"><button class="plain" onClick=${() => choose(next)} aria-label=${`Colours: ${theme}. Change to ${next}`} title=${`Colours: ${theme}`}><${Icon} name=${ICONS[theme]} /></button>
      <button class="plain" onClick=${onHelp} aria-label="Keys" title="Keys: ?"><${Icon} name="keyboard" /></button>
      <button class="plain" onClick=${onSignOut}><${Icon} name="leave" />Sign out</button></div></div>`;
}

/** A mistake in one page leaves the others usable. */
function Guarded({ children }) {
  const [error, reset] = useErrorBoundary();
  if (!error) return children;
  console.error(error);
  return html`<${ErrorBox} error=${{ title: "This page has failed", detail: `The dashboard has a defect: ${error.message}` }} again=${reset} />`;
}

/** The heading of a page with its actions. */
export const PageHead = ({ title, children, back }) => html`<div class="head">${back && html`<a class="back" href=${back[0]}><${Icon} name="back" />${back[1]}</a>`}<h1>${title}</h1><div class="actions">${children}</div></div>`;
