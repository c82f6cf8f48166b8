// Calls and events: problems are sentences, what passes is tried again, and a stream goes on where it broke.
import assert from "node:assert/strict";

const kept = new Map([["vicinal-api-key", "secret"]]);
globalThis.sessionStorage = { getItem: (name) => kept.get(name) ?? null, setItem: (name, value) => kept.set(name, value), removeItem: (name) => kept.delete(name) };
// Pauses are over at once.
const later = globalThis.setTimeout;
globalThis.setTimeout = (does, ms, ...others) => later(does, Math.min(ms ?? 0, 1), ...others);

let asked = [];
function answers(...given) {
  asked = [];
  globalThis.fetch = async (url, options) => {
    asked.push({ url, ...options });
    const next = given.length > 1 ? given.shift() : given[0];
    if (next instanceof Error) throw next;
    return typeof next === "function" ? next(options) : next.clone();
  };
}
const json = (body, status = 200, headers = {}) => new Response(JSON.stringify(body), { status, headers });
const problem = (status, type, detail, headers = {}) => json({ type: `urn:vicinal:problem:${type}`, detail, job: "j1" }, status, headers);

const { admin, at, get, inWords, post, Problem } = await import("./static/lib/api.js");
const { follow } = await import("./static/lib/events.js");
const { refusals } = await import("./static/lib/key.js");

// What is sent.
answers(json({ ok: true }));
assert.deepEqual(await get(at("a/b ü", "/items"), { query: { size: 2, after: null, id: ["x", "y&"] } }), { ok: true });
assert.equal(asked[0].url, "v1/galleries/a%2Fb%20%C3%BC/items?size=2&id=x&id=y%26");
assert.equal(asked[0].headers["X-API-Key"], "secret");
await post(admin("shop", "/answers"), { body: { same: null } });
assert.deepEqual([asked[1].url, asked[1].body, asked[1].headers["Content-Type"]], ["v1/admin/galleries/shop/answers", '{"same":null}', "application/json"]);
answers(new Response(null, { status: 204 }));
assert.equal(await get("v1/x"), null);

// What passes is tried again where nothing changes by that, and nothing else.
answers(new TypeError("no line"), problem(503, "gallery-busy", "busy"), json([1]));
assert.deepEqual(await get("v1/x"), [1]);
for (const [method, first, n] of [[get, new TypeError("no line"), 3], [post, new TypeError("no line"), 1], [get, problem(404, "item-not-found", "there is no item"), 1]]) {
  answers(first);
  await assert.rejects(method("v1/x"), Problem);
  assert.equal(asked.length, n);
}

// Problems.
const failed = async (given) => { answers(given); return post("v1/x").catch((error) => error); };
const conflict = await failed(problem(409, "job-conflict", "another job", { "Retry-After": "7" }));
assert.deepEqual([conflict.status, conflict.type, conflict.seconds, conflict.members.job], [409, "job-conflict", 7, "j1"]);
assert.equal(inWords(await failed(problem(404, "item-not-found", "there is no item 'a'"))), "There is no item 'a'.");
assert.equal(inWords(await failed(problem(429, "too-many-requests", "x", { "Retry-After": "7" }))), "Too much is asked at once. Try again in 7 seconds.");
assert.match(inWords(await failed(new TypeError("x"))), /^The server does not answer\./);
assert.match(inWords(await failed(new Response("<html>", { status: 502 }))), /answered for it \(502\)/);
assert.match(inWords(new RangeError("odd")), /^Something in this page went wrong: odd/);

// A key that is refused is asked for again, unless it was only tried.
const before = refusals.get();
answers(problem(401, "unauthorized", "send a key"));
await assert.rejects(get("v1/x"));
await assert.rejects(get("v1/me", { headers: { "X-API-Key": "tried" } }));
assert.equal(refusals.get(), before + 1);
assert.equal(asked[1].headers["X-API-Key"], "tried");

// A call that is stopped says so at once, also while it waits to try again.
const stop = new AbortController();
answers(() => { queueMicrotask(() => stop.abort()); throw new TypeError("no line"); });
await assert.rejects(get("v1/x", { signal: stop.signal }), { name: "AbortError" });

// Events: cut anywhere, with lines that only keep the connection open, on after the last one that was seen.
const stream = (...chunks) => () => new Response(new ReadableStream({
  start(out) { for (const one of chunks) out.enqueue(new TextEncoder().encode(one)); out.close(); },
}));
const seen = [];
const onEvent = (name, data) => seen.push([name, data]);
answers(
  stream(": keep\n\n", "id: 4\r\nevent: pro", 'gress\r\ndata: {"a":\ndata: "ü"}\r\n\r', "\nid: 5\nevent: progress\nda"),
  new TypeError("no line"),
  stream('id: 6\nevent: end\ndata: {"a": 2}\n\n', 'id: 7\nevent: progress\ndata: {"a": 3}\n\n'),
);
await follow("v1/jobs/1/events", { onEvent });
assert.deepEqual(seen, [["progress", { a: "ü" }], ["end", { a: 2 }]]);
assert.deepEqual(asked.map((one) => one.headers["Last-Event-ID"]), [undefined, "4", "4"]);
answers(new Response(null, { status: 204 }));
await follow("v1/jobs/1/events", { onEvent });
answers(problem(403, "forbidden", "it may not"));
await assert.rejects(follow("v1/jobs/1/events", { onEvent }), { status: 403 });
const over = AbortSignal.abort();
answers(new TypeError("never asked"));
await follow("v1/jobs/1/events", { onEvent, signal: over });
assert.equal(asked.length, 0);

// That nothing answers is noticed, that something does again, and that a gallery is gone.
const { isAway, losses } = await import("./static/lib/server.js");
answers(new TypeError("no line"));
await assert.rejects(post("v1/x"), { type: "away" });
assert.equal(isAway.get(), true);
answers(problem(404, "gallery-not-found", "it is gone"));
await assert.rejects(get("v1/x"), { status: 404 });
assert.deepEqual([isAway.get(), losses.get()], [false, 1]);
