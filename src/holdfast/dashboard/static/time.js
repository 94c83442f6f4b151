// Times: relative ones that keep up, each with the exact time as its title.
import { html, useEffect, useState } from "./html.js";
import { duration } from "./format.js";

const STEP = 5000;
const DAYS = 30;
const listeners = new Set();
let ticking = null;

/** Return milliseconds since the epoch of an ISO time or a number, or null. */
export function moment(at) {
  if (at === null || at === undefined || at === "" || at === "infinity") return null;
  const when = typeof at === "number" ? at : Date.parse(at);
  return Number.isNaN(when) ? null : when;
}

/** A time of this computer's clock and zone, to the second, with its zone. */
export function exact(at) {
  const when = moment(at);
  if (when === null) return "";
  const date = new Date(when);
  const minutes = -date.getTimezoneOffset();
  const sign = minutes < 0 ? "-" : "+";
  const zone = `${sign}${two(Math.floor(Math.abs(minutes) / 60))}:${two(Math.abs(minutes) % 60)}`;
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${clock(date)} (UTC${zone})`;
}

const two = (number) => String(number).padStart(2, "0");
const clock = (date) => `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;

/** The hours, minutes and seconds of a time. */
export const clockTime = (at) => (moment(at) === null ? "–" : clock(new Date(moment(at))));

export function relative(at, now = Date.now()) {
  const when = moment(at);
  if (when === null) return "–";
  const seconds = (now - when) / 1000;
  if (Math.abs(seconds) < 5) return "now";
  const size = Math.abs(seconds);
  if (size > DAYS * 86400) return exact(when).slice(0, 10);
  const text = duration(size).split(" ").slice(0, size < 3600 || size >= 172800 ? 2 : 4).join(" ");
  return seconds < 0 ? `in ${text}` : `${text} ago`;
}

/** Return the present time; the component is drawn again while time goes by. */
export function useNow() {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    listeners.add(setNow);
    ticking ??= setInterval(() => { for (const set of listeners) set(Date.now()); }, STEP);
    return () => {
      listeners.delete(setNow);
      if (!listeners.size) { clearInterval(ticking); ticking = null; }
    };
  }, []);
  return now;
}

/** A relative time. `empty` stands for no time. */
export function Ago({ at, empty = "–" }) {
  useNow();  // draws again; the clock itself is read below, so that a new value is never in the future
  const when = moment(at);
  if (when === null) return html`<span class="quiet">${empty}</span>`;
  return html`<time datetime=${iso(when)} title=${exact(when)}>${relative(when)}</time>`;
}

/** An exact time, whose title is how long ago it was. */
export function Exact({ at, empty = "–" }) {
  const when = moment(at);
  if (when === null) return html`<span class="quiet">${empty}</span>`;
  return html`<time datetime=${iso(when)} title=${relative(when)}>${exact(when)}</time>`;
}

function iso(when) {
  try {
    return new Date(when).toISOString();
  } catch (error) {
    if (error instanceof RangeError) return undefined;  // beyond what a Date can be
    throw error;
  }
}

/** The value of <input type="datetime-local"> for a time. */
export function localInput(at) {
  const date = new Date(moment(at));
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}T${clock(date)}`;
}

/** The time in such a value, as ISO 8601 in UTC, or null. */
export function fromLocalInput(text) {
  const when = Date.parse(text);
  return Number.isNaN(when) ? null : new Date(when).toISOString();
}
