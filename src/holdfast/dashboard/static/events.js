// Server-sent events: one connection of this page for all its parts, since a browser allows few connections to one host.
//
// The parts say what they want; the connection is opened again when that changes. It ends while the page is hidden, and
// goes on from the last token when the page is visible again. A connection that fails is tried again, later each time.
import { useEffect, useRef, useState } from "./html.js";
import { below, get } from "./api.js";

const NAMES = ["retained", "client", "replay", "alarm", "monitor", "reset"];
const FIRST_WAIT = 1000;
const LAST_WAIT = 10_000;
const FACTOR = 1.5;
const HIDDEN_FOR = 20_000;

/** An event of the window: the broker can be reached, maybe again. */
export const BACK = "broker-back";

const parts = new Set();
const watchers = new Set();
let source = null;
let opened = "";
let token = null;
let watched = null;
let wait = FIRST_WAIT;
let timer = null;
let hiding = null;
let state = "off";

function tell(next) {
  state = next;
  for (const watcher of watchers) watcher(next);
}

function wanted() {
  const params = new URLSearchParams();
  let filter = null;
  for (const part of parts) {
    for (const kind of part.kinds) params.set(kind, "true");
    if (part.filter !== undefined) filter = part;
  }
  if (filter) {
    if (watched !== filter) { watched = filter; token = filter.token ?? null; }
    params.set("retained", filter.filter.toWellFormed());
    if (token) params.set("token", token);
  } else {
    watched = null;
  }
  return params.size ? `${below("events")}?${params}` : "";
}

function shape(address) {
  return address.replace(/([?&])token=[^&]*/, "$1");
}

function arrange() {
  clearTimeout(timer);
  timer = setTimeout(open, 30);  // several parts of a page come and go together
}

function open() {
  const address = document.hidden && source === null ? "" : wanted();
  if (source && shape(address) === opened) return;
  source?.close();
  source = null;
  opened = shape(address);
  if (!address) { tell("off"); return; }
  tell("connecting");
  source = new EventSource(address);
  const mine = source;
  mine.onopen = () => { wait = FIRST_WAIT; tell("live"); dispatchEvent(new Event(BACK)); };
  mine.onerror = () => { if (source === mine) failed(); };
  for (const name of NAMES) mine.addEventListener(name, (event) => take(name, event));
}

function failed() {
  source.close();
  source = null;
  opened = "";
  tell("broken");
  clearTimeout(timer);
  timer = setTimeout(async () => {
    try {
      await get("/session");  // tells whether the session is over, which EventSource does not
    } catch { /* the next try tells more */ }
    open();
  }, wait);
  wait = Math.min(LAST_WAIT, wait * FACTOR);
}

function take(name, event) {
  if ((name === "retained" || name === "reset") && event.lastEventId) token = event.lastEventId;
  let data;
  try {
    data = event.data ? JSON.parse(event.data) : {};
  } catch {
    return;  // an event of another version
  }
  for (const part of [...parts]) {
    const its = name === "retained" || name === "reset" ? part.filter !== undefined : part.kinds.some((kind) => kind === name || kind === `${name}s`);
    if (its) part.take(name, data);
  }
}

addEventListener("online", () => { if (state === "broken") arrange(); else dispatchEvent(new Event(BACK)); });

document.addEventListener("visibilitychange", () => {
  clearTimeout(hiding);
  if (!document.hidden) { arrange(); return; }
  hiding = setTimeout(() => { source?.close(); source = null; opened = ""; clearTimeout(timer); tell("off"); }, HIDDEN_FOR);
});

/**
 * Take events of these kinds ("monitor", "clients", "replays", "alarms"), or with `filter` the retained changes that
 * match it, after `since`, the token of a list. `take(name, data)` may get the name "reset": then list again.
 */
export function useEvents({ kinds = [], filter, since, on = true }, take) {
  const latest = useRef(take);
  latest.current = take;
  useEffect(() => {
    if (!on) return undefined;
    const part = { kinds, filter, token: since, take: (name, data) => latest.current(name, data) };
    parts.add(part);
    arrange();
    return () => { parts.delete(part); arrange(); };
  }, [on, kinds.join(), filter, since]);
}

/** Return the state of the connection: "off", "connecting", "live" or "broken". */
export function useConnection() {
  const [now, setNow] = useState(state);
  useEffect(() => {
    watchers.add(setNow);
    setNow(state);
    return () => watchers.delete(setNow);
  }, []);
  return now;
}
