// Uploads: parts that a server takes, and each photo accounted for once, whatever the answers are.
import assert from "node:assert/strict";

globalThis.sessionStorage = { getItem: () => null, setItem() {}, removeItem() {} };
// Pauses are over at once.
const later = globalThis.setTimeout;
globalThis.setTimeout = (does, ms, ...others) => later(does, Math.min(ms ?? 0, 1), ...others);
const { nextSize, takePart, upload } = await import("./static/lib/uploads.js");

const LIMITS = { max_batch: 64, max_request_bytes: 256 * 2 ** 20, max_image_bytes: 32 * 2 ** 20 };
const one = (name, size = 10) => ({ id: name, label: null, file: { name, size, type: "image/jpeg", arrayBuffer: async () => new ArrayBuffer(1) } });
const many = (n, size) => Array.from({ length: n }, (_, number) => one(`${number}.jpg`, size));
function sizes(files, most, mostBytes) {
  const found = [];
  while (files.length) found.push(takePart(files, most, mostBytes).length);
  return found;
}

assert.deepEqual(sizes(many(20), 8, 1000), [8, 8, 4]);
assert.deepEqual(sizes(many(4), 8, 25), [2, 2]);
// What is larger than a part goes alone.
assert.deepEqual(sizes([one("large", 30), one("small"), one("large", 26)], 8, 25), [1, 1, 1]);
// A quick server gets more at once, a slow one less.
assert.deepEqual([[8, 100], [32, 100], [8, 2000], [8, 9000], [2, 9000]].map(([size, ms]) => nextSize(size, ms)), [16, 32, 8, 4, 2]);

const said = (status, body, headers = {}) => new Response(JSON.stringify(body), { status, headers });
const problem = (status, type, more = {}) => said(status, { type: `urn:vicinal:problem:${type}`, detail: type, ...more });

// A server that answers each part by what `decide` says of the ids in it.
function serve(decide) {
  const parts = [];
  globalThis.fetch = async (url, options) => {
    if (url === "readyz") return said(200, { limits: LIMITS });
    const ids = options.body.getAll("id");
    parts.push(ids);
    return decide(ids, options);
  };
  return parts;
}
const taken = (ids) => said(200, { added: ids.map((id) => ({ id, replaced: false })), unchanged: [], skipped: [], refused: [] });
const told = ({ added, replaced, unchanged, failures, left }) => ({ added, replaced, unchanged, failed: failures.map((one) => one.id).sort(), left: left.length });

serve(taken);
const seen = [];
const all = await upload({ gallery: "a", files: many(20), onProgress: (now) => seen.push(now.done) });
assert.deepEqual(told(all), { added: 20, replaced: 0, unchanged: 0, failed: [], left: 0 });
assert.equal(seen.at(-1), 20);
assert.deepEqual(seen, [...seen].sort((a, b) => a - b));

// A problem of one photo takes no other with it: the part is sent again photo by photo.
serve((ids) => (ids.includes("3.jpg") ? problem(422, "invalid-request") : taken(ids)));
assert.deepEqual(told(await upload({ gallery: "a", files: many(10) })), { added: 9, replaced: 0, unchanged: 0, failed: ["3.jpg"], left: 0 });

// All of a part refused at once.
const errors = [0, 1].map((place) => ({ place, type: "urn:vicinal:problem:item-exists", reason: "there is one" }));
const once = serve(() => problem(422, "nothing-added", { errors }));
const refused = await upload({ gallery: "a", files: many(2) });
assert.deepEqual(told(refused), { added: 0, replaced: 0, unchanged: 0, failed: ["0.jpg", "1.jpg"], left: 0 });
assert.deepEqual([refused.failures[0].type, once.length], ["item-exists", 1]);

// What is wrong with all that follow ends it, and says what was not sent.
serve(() => problem(403, "forbidden"));
const ended = await upload({ gallery: "a", files: many(20) });
assert.deepEqual([ended.stopped.status, ended.left.length, ended.added], [403, 20, 0]);

// A server that is busy or away for a moment is asked again with the same; one that stays away ends it.
const answers = [problem(429, "too-many-requests"), new TypeError("failed"), problem(503, "gallery-busy")];
const again = serve((ids) => {
  const next = answers.shift() ?? taken(ids);
  if (next instanceof Error) throw next;
  return next;
});
const pauses = [];
const waited = await upload({ gallery: "a", files: many(3), onProgress: (now) => { if (now.pause) pauses.push(now.pause); } });
assert.deepEqual([told(waited), again.length, new Set(again.map(String)).size], [{ added: 3, replaced: 0, unchanged: 0, failed: [], left: 0 }, 4, 1]);
assert.match(pauses[0], /^Too much is asked at once/);
serve(() => { throw new TypeError("failed"); });
const away = await upload({ gallery: "a", files: many(20) });
assert.deepEqual([away.stopped.type, away.left.length, away.added], ["away", 20, 0]);

// A file that went meanwhile is named, and the others are sent.
serve(taken);
const gone = one("gone.jpg");
gone.file.arrayBuffer = async () => { throw new Error("gone"); };
assert.deepEqual(told(await upload({ gallery: "a", files: [gone, ...many(3)] })), { added: 3, replaced: 0, unchanged: 0, failed: ["gone.jpg"], left: 0 });

// Who stops it hears of all that was not sent.
const stop = new AbortController();
serve((_ids, { signal }) => new Promise((_done, fail) => {
  signal.addEventListener("abort", () => fail(signal.reason));
  stop.abort();
  fail(signal.reason);
}));
assert.equal((await upload({ gallery: "a", files: many(30), signal: stop.signal })).left.length, 30);
