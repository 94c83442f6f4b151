// Who uses the dashboard: signs in and out, and knows what the scopes allow.
import { createContext, useContext } from "./html.js";
import { get, post, useSession } from "./api.js";
import { decode } from "./router.js";

export const Session = createContext(null);

/** Return the session of this page: {name, scopes, csrf_token, expires_at}. */
export const useCaller = () => useContext(Session);

/** Tell whether the session may do what needs this scope. */
export const allowed = (session, scope) => session.scopes.includes(scope) || session.scopes.includes("admin");

/** Take the one-time token of a link out of the address, so that it is neither kept nor shown. */
export function takeToken() {
  const found = /^#\/?token=([^&]+)/.exec(location.hash);
  if (!found) return null;
  history.replaceState(null, "", `${location.pathname}${location.search}#/overview`);
  return decode(found[1]);
}

/** Whether somebody can sign in by a name and a password, as far as the broker has told. */
export let passwordLogin = true;

/** Return the present session, or null without one. */
export async function present(signedOut) {
  try {
    return begun(await get("/session"), signedOut);
  } catch (error) {
    if (error.status !== 401 && error.status !== 403) throw error;
    passwordLogin = error.passwordLogin;
    return null;
  }
}

export async function signIn(given, signedOut) {
  return begun(await post("/login", given), signedOut);
}

/** End the session. What other calls and streams still get as answers then is no news. */
export async function signOut() {
  await post("/logout");
  useSession("", () => {});
}

function begun(session, signedOut) {
  useSession(session.csrf_token, signedOut);
  passwordLogin = session.password_login;
  return session;
}
