// Places of the dashboard as addresses: "#/retained/search?topic=a%2F%2B" is a path of names and some parameters.
import { useEffect, useState } from "./html.js";

const encode = (text) => encodeURIComponent(String(text).toWellFormed());

/** Decode a part of an address. */
export const decode = (text) => {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;  // a hand-made address with a lone "%"
  }
};

/** Return the place in an address. */
export function placeIn(hash) {
  const [path, search = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const params = {};
  for (const pair of search.split("&")) {
    if (!pair) continue;
    const at = pair.indexOf("=");
    params[decode(at < 0 ? pair : pair.slice(0, at))] = at < 0 ? "" : decode(pair.slice(at + 1));
  }
  return { path: path.split("/").filter(Boolean).map(decode), params };
}

/** Return the address of a place. Parameters without a value are left out, but for an empty topic, which is one. */
export function href(path, params = {}) {
  const names = (Array.isArray(path) ? path : [path]).map(encode).join("/");
  const given = Object.entries(params).filter(([name, value]) => name === "topic" ? typeof value === "string" : value !== undefined && value !== null && value !== "" && value !== false);
  const search = given.map(([name, value]) => `${encode(name)}=${encode(value)}`).join("&");
  return `#/${names}${search ? `?${search}` : ""}`;
}

/** Go to a place. `replace`: without a step for the browser's back button. */
export function go(path, params = {}, replace = false) {
  const address = href(path, params);
  if (address === location.hash) return;
  if (replace) {
    history.replaceState(null, "", address);
    dispatchEvent(new HashChangeEvent("hashchange"));
  } else {
    location.hash = address;
  }
}

/** Return the present place; the component is drawn again when it changes. */
export function usePlace() {
  const [place, setPlace] = useState(() => placeIn(location.hash));
  useEffect(() => {
    const changed = () => setPlace(placeIn(location.hash));
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return place;
}
