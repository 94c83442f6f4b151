// The frame of all pages: the list of pages, the state of the connection, the theme, and the keys that work everywhere.
import { html, useEffect, useErrorBoundary, useRef, useState } from "../html.js";
import { href } from "../router.js";
import { useConnection } from "../events.js";
import { useTheme, THEMES } from "../theme.js";
import { useCaller } from "../session.js";
import { Text } from "../text.js";
import { Icon } from "./icons.js";
import { ErrorBox, Toasts } from "./notices.js";

const STATES = { off: ["idle", "Not live"], connecting: ["wait", "Connecting…"], live: ["ok", "Live"], broken: ["bad", "Reconnecting…"] };
const ICONS = { system: "screen", light: "sun", dark: "moon" };

/** `pages`: [name, title, group]; `here`: the name of the present one. */
export function Shell({ pages, here, title, onSignOut, children }) {
  const [open, setOpen] = useState(false);
  const main = useRef(null);
  useEffect(() => {
    const pressed = (event) => {
      if (event.key === "Escape") setOpen(false);
      if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog")) return;
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
      <ul>${pages.map(([name, label, group], at) => html`<li key=${name} class=${at && pages[at - 1][2] !== group ? "apart" : ""}><a href=${href(name)} aria-current=${name === here ? "page" : undefined}><${Icon} name=${name} />${label}</a></li>`)}</ul>
      <${Foot} onSignOut=${onSignOut} />
    </nav>
    <main id="main" ref=${main} tabindex="-1"><${Guarded} key=${here}>${children}<//></main>
    <${Toasts} />`;
}

function Connection() {
  const [kind, text] = STATES[useConnection()];
  return html`<span class=${`connection ${kind}`} role="status"><i aria-hidden="true"></i>${text}</span>`;
}

function Foot({ onSignOut }) {
  const caller = useCaller();
  const [theme, choose] = useTheme();
  const next = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  return html`<div class="foot"><${Connection} />
    <div class="who"><span class="quiet">Signed in by</span><${Text} text=${caller.name} /></div>
    <div class="buttons"><button class="plain" onClick=${() => choose(next)} aria-label=${`Colours: ${theme}. Change to ${next}`} title=${`Colours: ${theme}`}><${Icon} name=${ICONS[theme]} /></button>
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
