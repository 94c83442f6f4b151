// The admin API: one function per method, problems as errors, long jobs followed to their end.
import { visible } from "./text.js";

/** The address of a path of the broker. The dashboard may be below a path of a proxy: it is where its page is. */
export const below = (path) => new URL(path, document.baseURI).href;

const BASE = below("api/v5");
const PATIENCE = 30_000;
const FIRST_LOOK = 150;
const LAST_LOOK = 2000;
const EMPTY_PAGES = 20;

let csrf = "";
let onSignedOut = () => {};

/** Use this CSRF token; call `signedOut` when the broker says that the session is over. */
export function useSession(token, signedOut) {
  csrf = token;
  onSignedOut = signedOut;
}

/** A refusal or a failure, in words for the user. `fields` says which fields are wrong, and what is allowed. */
export class Problem extends Error {
  constructor(title, detail = "", status = 0, fields = []) {
    super(detail || title);
    this.title = title;
    this.detail = detail;
    this.status = status;
    this.fields = fields;
    this.passwordLogin = true;
  }
}

export const get = (path, params, signal) => call("GET", path, { params, signal });
export const post = (path, body, params, signal, job) => call("POST", path, { body: body ?? {}, params, signal, job });
export const put = (path, body, params) => call("PUT", path, { body, params });
export const del = (path, params, signal, job) => call("DELETE", path, { params, signal, job });

/** Load a page. A search may look at many rows without a match: then go on, up to some pages, before it is shown. */
export async function getPage(path, params, signal) {
  let page = await get(path, params, signal);
  for (let more = 0; more < EMPTY_PAGES && !page.data.length && page.meta?.hasnext; more += 1) {
    page = await get(path, { ...params, cursor: page.meta.cursor }, signal);
  }
  return page;
}

/** The address of a call, for downloads. */
export const address = (path, params) => BASE + path + query(params);

/** Call the API; with `job`, prefer a job to a late answer. Raises Problem, or AbortError if `signal` is aborted. */
export async function call(method, path, { params, body, signal, job = false } = {}) {
  const headers = { Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (method !== "GET") headers["X-CSRF-Token"] = csrf;
  if (job) headers.Prefer = "respond-async";
  const patience = AbortSignal.timeout(PATIENCE);
  let response;
  let text;
  try {
    response = await fetch(address(path, params), {
      method, headers, credentials: "same-origin", cache: "no-store", redirect: "error",
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: signal ? AbortSignal.any([signal, patience]) : patience,
    });
    text = await response.text();
  } catch (error) {
    if (signal?.aborted) throw error;
    if (patience.aborted) throw new Problem("The broker did not answer", `No answer came within ${PATIENCE / 1000} s.`);
    throw new Problem("The broker cannot be reached", "It may be stopped, or the network between it and this browser is down.");
  }
  if (response.status === 401 && path !== "/login") onSignedOut();
  if (!response.ok) throw problemIn(response, text);
  const content = parsed(text);
  if (response.status === 202 && content?.kind === "call") {
    throw new Problem("The database does not answer", `The broker makes this change when the database is back: see the job ${content.id}.`);
  }
  return response.status === 202 && content?.state !== undefined ? { ...content, accepted: true } : content;
}

/** A parameter that is sent even if it is empty. */
export class Exactly {
  constructor(text) { this.text = text; }
  toString() { return this.text; }
}

function query(params) {
  const given = Object.entries(params ?? {}).filter(([, value]) => value !== undefined && value !== null && value !== "");
  if (!given.length) return "";
  return `?${given.map(([name, value]) => `${encodeURIComponent(name)}=${encodeURIComponent(String(value).toWellFormed())}`).join("&")}`;
}

function parsed(text) {
  if (text === "") return null;
  try {
    return JSON.parse(text);
  } catch {
    throw new Problem("The answer is not JSON", "Another program may answer in place of the broker.");
  }
}

function problemIn(response, text) {
  let content = {};
  try {
    content = JSON.parse(text) ?? {};
  } catch { /* an answer of a proxy: its status has to do */ }
  const detail = content.detail ?? content.message ?? `The answer has the status ${response.status} ${response.statusText}.`;
  const errors = Array.isArray(content.problems) ? content.problems.map(located) : content.field ? [content] : [];
  const fields = errors.map((each) => ({ field: visible(each.field ?? ""), detail: visible(each.allowed ? `allowed: ${each.allowed}` : each.detail ?? "") }));
  const problem = new Problem(visible(content.title ?? "The call was refused"), visible(detail), response.status, fields);
  problem.passwordLogin = content.password_login ?? true;
  return problem;
}

/** A problem of a configuration file as a field and what is wrong with it. */
const located = (each) => ({ field: each.key ?? "", detail: `${each.line ? `line ${each.line}: ` : ""}${each.message}` });

/** Follow a job to its end; `progress` gets each state. Raises Problem if it failed. `signal` cancels the job. */
export async function finished(job, progress = () => {}, signal = undefined) {
  let wait = FIRST_LOOK;
  let state = job;
  const path = `/jobs/${encodeURIComponent(job.id)}`;
  try {
    while (["queued", "pending", "running"].includes(state.state)) {
      progress(state);
      await pause(wait, signal);
      wait = Math.min(LAST_LOOK, wait * 1.5);
      state = await get(path, {}, signal);
    }
  } catch (error) {
    if (!signal?.aborted) throw error;
    await del(path); // what it has done stays done
    progress(await get(path));
    throw error;
  }
  progress(state);
  if (state.state !== "done") throw new Problem("The work did not finish", visible(state.detail ?? state.message ?? state.error ?? `its state is ${state.state}`));
  return state.result ?? state;
}

const pause = (time, signal) => new Promise((resolve, reject) => {
  const timer = setTimeout(resolve, time);
  signal?.addEventListener("abort", () => { clearTimeout(timer); reject(signal.reason); }, { once: true });
});
