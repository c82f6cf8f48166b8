// Calls of the HTTP API: answers as values, problems as errors that say what is wrong in a sentence.
import { useCallback, useEffect, useRef, useState } from "./html.js";
import { headers as keyed, refusals } from "./key.js";
import { isAway, losses } from "./server.js";
import { sentence } from "./text.js";
import { PROBLEMS } from "./words.js";

const PREFIX = "urn:vicinal:problem:";
const AGAIN = [502, 503, 504];
const PAUSES = [300, 1000];
const OLD = 30_000;

// status 0 and type "away" where nothing answered; `seconds` until it is worth to ask again.
export class Problem extends Error {
  constructor(status, type, detail, seconds = null, members = {}) {
    super(detail);
    Object.assign(this, { name: "Problem", status, type, detail, seconds, members });
  }
}

const pause = (ms, signal) => new Promise((done, fail) => {
  const stop = () => { clearTimeout(timer); fail(signal.reason); };
  const timer = setTimeout(() => { signal?.removeEventListener("abort", stop); done(); }, ms);
  signal?.addEventListener("abort", stop, { once: true });
});

async function problemOf(response) {
  const members = await response.json().catch(() => ({}));
  const seconds = Number(response.headers.get("Retry-After")) || null;
  const type = String(members.type ?? "").replace(PREFIX, "") || "no-answer-of-the-service";
  const detail = members.detail ?? `the server answered ${response.status} without a reason`;
  return new Problem(response.status, type, detail, seconds, members);
}

// One response that is a success; everything else is thrown.
export async function send(method, path, { query, body, form, headers, signal, tries = method === "GET" ? 3 : 1 } = {}) {
  const shown = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    for (const one of Array.isArray(value) ? value : [value]) if (one !== undefined && one !== null) shown.append(name, one);
  }
  const url = shown.size ? `${path}?${shown}` : path;
  const sent = { ...keyed(), ...(body === undefined ? {} : { "Content-Type": "application/json" }), ...headers };
  const options = { method, signal, headers: sent, body: form ?? (body === undefined ? undefined : JSON.stringify(body)) };
  for (let left = tries - 1; ; left -= 1) {
    let problem;
    try {
      const response = await fetch(url, options);
      isAway.set(false);
      if (response.ok) return response;
      problem = await problemOf(response);
    } catch {
      signal?.throwIfAborted();
      isAway.set(true);
      problem = new Problem(0, "away", "the server does not answer");
    }
    // A key that is only tried is no reason to ask for another one.
    if (problem.status === 401 && !headers?.["X-API-Key"]) refusals.set((n) => n + 1);
    if (problem.type === "gallery-not-found") losses.set((n) => n + 1);
    const passes = problem.status === 0 || AGAIN.includes(problem.status);
    if (!passes || left <= 0) throw problem;
    await pause(PAUSES[Math.min(tries - 1 - left, PAUSES.length - 1)], signal);
  }
}

export async function call(method, path, options) {
  const response = await send(method, path, options);
  return response.status === 204 ? null : response.json();
}

export const get = (path, options) => call("GET", path, options);
export const post = (path, options) => call("POST", path, options);
export const put = (path, options) => call("PUT", path, options);
export const patch = (path, options) => call("PATCH", path, options);
export const del = (path, options) => call("DELETE", path, options);
export const blob = async (path, { signal } = {}) => (await send("GET", path, { signal })).blob();

export const at = (gallery, rest = "") => `v1/galleries/${encodeURIComponent(gallery)}${rest}`;
export const admin = (gallery, rest = "") => `v1/admin/galleries/${encodeURIComponent(gallery)}${rest}`;

let known = null;

// What one request may hold. A server that is not ready says it too, with 503.
export async function limits() {
  known ??= fetch("readyz", { headers: keyed() }).then((answer) => answer.json()).then((body) => body.limits);
  try {
    return await known;
  } catch {
    known = null;
    throw new Problem(0, "away", "the server does not answer");
  }
}

// A sentence for whoever looks at the page.
export function inWords(error) {
  if (!(error instanceof Problem)) return `Something in this page went wrong: ${error?.message ?? error}`;
  const told = PROBLEMS[error.type];
  if (told) return typeof told === "function" ? told(error) : told;
  return sentence(error.detail);
}

const NOTHING = { deps: null, value: undefined, error: null, isLoading: true };
const areSame = (some, others) => some?.length === others.length && others.every((one, place) => Object.is(one, some[place]));

// What a call answers, for as long as `deps` stay: it is stopped when they change, and an answer that comes too
// late is dropped. Truth that is old is fetched again when the page comes into view, unless `refreshes` is false.
export function useCall(work, deps, { refreshes = true } = {}) {
  const [shown, show] = useState(NOTHING);
  const [turn, setTurn] = useState(0);
  const answered = useRef(0);
  const again = useCallback(() => setTurn((n) => n + 1), []);
  useEffect(() => {
    const stop = new AbortController();
    const tell = (next) => { if (!stop.signal.aborted) show(next); };
    show((old) => ({ ...old, isLoading: true }));
    Promise.resolve(stop.signal).then(work).then(
      (value) => { answered.current = Date.now(); tell({ deps, value, error: null, isLoading: false }); },
      (error) => tell((old) => ({ deps, value: areSame(old.deps, deps) ? old.value : undefined, error, isLoading: false })),
    );
    return () => stop.abort();
  }, [...deps, turn]);
  useEffect(() => {
    if (!refreshes) return undefined;
    const look = () => { if (!document.hidden && answered.current && Date.now() - answered.current > OLD) again(); };
    document.addEventListener("visibilitychange", look);
    return () => document.removeEventListener("visibilitychange", look);
  }, [refreshes]);
  // What failed because nothing answered is asked for again when something does.
  const wasAway = shown.error?.type === "away";
  useEffect(() => (wasAway ? isAway.on((away) => { if (!away) again(); }) : undefined), [wasAway]);
  const { value, error, isLoading } = areSame(shown.deps, deps) ? shown : NOTHING;
  return { value, error, isLoading, again };
}
