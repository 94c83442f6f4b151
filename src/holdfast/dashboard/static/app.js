// The dashboard: a session first, then the page that the address names.
import { html, render, useEffect, useMemo, useRef, useState } from "./html.js";
import { go, usePlace } from "./router.js";
import { Session, allowed, present, signIn, signOut, takeToken } from "./session.js";
import { applyTheme } from "./theme.js";
import { Shell } from "./parts/shell.js";
import { ErrorBox, toastError } from "./parts/notices.js";
import { Placeholder } from "./loaded.js";
import { SignIn } from "./pages/sign-in.js";
import { Overview } from "./pages/overview.js";
import { Clients } from "./pages/clients.js";
import { Client } from "./pages/client.js";
import { Retained } from "./pages/retained/page.js";
import { Replays } from "./pages/replays.js";
import { Subscriptions } from "./pages/subscriptions.js";
import { Listeners } from "./pages/listeners.js";
import { Nodes } from "./pages/nodes.js";
import { Alarms } from "./pages/alarms.js";
import { Bans } from "./pages/bans.js";
import { Keys } from "./pages/keys.js";
import { Configuration } from "./pages/configuration.js";
import { Console } from "./pages/console/page.js";
import { link } from "./pages/console/link.js";

/** name, title, group in the list of pages, component, and the scope that its calls need */
const PAGES = [
  ["overview", "Overview", 1, Overview, "read"],
  ["retained", "Retained messages", 1, Retained, "read"],
  ["replays", "Replays", 1, Replays, "read"],
  ["clients", "Clients", 2, Clients, "read"],
  ["subscriptions", "Subscriptions", 2, Subscriptions, "read"],
  ["console", "Console", 2, Console, "read"],
  ["alarms", "Alarms", 3, Alarms, "read"],
  ["nodes", "Nodes", 3, Nodes, "read"],
  ["listeners", "Listeners", 3, Listeners, "read"],
  ["bans", "Bans", 3, Bans, "admin"],
  ["keys", "API keys", 3, Keys, "admin"],
  ["configuration", "Configuration", 3, Configuration, "admin"],
];

function App() {
  const [session, setSession] = useState(undefined);
  const [failure, setFailure] = useState(null);
  const [notice, setNotice] = useState("");
  const ended = useMemo(() => () => { link.disconnect(); setNotice("Your session is over. Sign in again."); setSession(null); }, []);
  const last = useRef(Promise.resolve());
  /** Begin one after the other: a late answer about an older link must not end the session of a newer one. */
  const begin = (token) => { last.current = last.current.then(() => take(token)); };
  const take = async (token) => {
    setFailure(null);
    if (token) link.disconnect();  // the console's connection is another user's, maybe
    try {
      setSession(token ? await signIn({ token }, ended) : await present(ended));
    } catch (error) {
      if (!token) { setFailure(error); return; }
      setNotice(error.detail || error.title);
      setSession(await present(ended).catch(() => null));
    }
  };
  useEffect(() => {
    begin(takeToken());
    const changed = () => { const token = takeToken(); if (token) begin(token); };  // a link was opened in this tab
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  if (failure) return html`<main class="alone"><${ErrorBox} error=${failure} again=${() => begin(null)} /></main>`;
  if (session === undefined) return html`<main class="alone"><${Placeholder} lines=${3} /></main>`;
  if (session === null) {
    return html`<${SignIn} notice=${notice} onSignIn=${async (given) => { setSession(await signIn(given, ended)); setNotice(""); }} />`;
  }
  const leave = async () => {
    try {
      await signOut();
      link.disconnect();
      setNotice("You have signed out.");
      setSession(null);
    } catch (error) {
      toastError(error);
    }
  };
  return html`<${Session.Provider} value=${session}><${Pages} session=${session} onSignOut=${leave} /><//>`;
}

function Pages({ session, onSignOut }) {
  const { path, params } = usePlace();
  const pages = PAGES.filter(([, , , , scope]) => allowed(session, scope));
  const name = path[0] ?? "overview";
  const found = pages.find(([each]) => each === name);
  useEffect(() => { if (!found) go("overview", {}, true); }, [found]);
  useEffect(() => { scrollTo(0, 0); }, [name, path[1]]);
  if (!found) return null;
  const [, title, , Page] = found;
  const one = name === "clients" && params.id !== undefined;
  return html`<${Shell} pages=${pages} here=${name} title=${title} onSignOut=${onSignOut}>
    ${one ? html`<${Client} key=${params.id} id=${params.id} params=${params} />` : html`<${Page} path=${path} params=${params} />`}
  <//>`;
}

applyTheme();
const root = document.getElementById("app");
root.replaceChildren();
render(html`<${App} />`, root);
