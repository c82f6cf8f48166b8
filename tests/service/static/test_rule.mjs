// What of a group of doubles is kept by a rule, and what is ticked.
import assert from "node:assert/strict";
import { commonOf, folderOf, isSafe, keptBy, ruleOf, shortFolder, ticks } from "./static/places/doubles/rule.js";

const item = (id, others = {}) => ({ id, uri: `/photos/${id}`, width: 10, height: 10, n_bytes: 5, taken_at: null, added_at: null, ...others });
const group = (...items) => ({ kept: items[0], copies: items.slice(1) });
const kept = (items, params) => keptBy(group(...items), ruleOf(params)).id;

// The largest has most pixels, then most bytes; of equal ones the look's own choice stays.
assert.equal(kept([item("a"), item("b", { width: 20 })], {}), "b");
assert.equal(kept([item("a"), item("b", { n_bytes: 6 })], {}), "b");
assert.equal(kept([item("a"), item("b")], {}), "a");
assert.equal(kept([item("a", { width: null, n_bytes: null }), item("b", { width: 1, height: 1 })], {}), "b");
assert.equal(kept([item("a"), item("b", { width: 20 })], { keep: "nonsense" }), "b");

// When it was taken counts before when it came; what nobody knows is neither old nor new.
const dated = [item("a", { taken_at: "2024-05-01T00:00:00", added_at: "2025-01-01T00:00:00Z" }), item("b", { taken_at: "2023-05-01T00:00:00", added_at: "2025-02-01T00:00:00Z" }), item("c")];
assert.equal(kept(dated, { keep: "oldest" }), "b");
assert.equal(kept(dated, { keep: "newest" }), "a");

// A folder holds those below it, and none whose name only begins alike.
const placed = [item("new/a.jpg", { width: 90 }), item("new2/b.jpg", { width: 80 }), item("old/x/c.jpg")];
assert.equal(kept(placed, { keep: "folder", folder: "/photos/old" }), "old/x/c.jpg");
assert.equal(kept(placed, { keep: "folder", folder: "/photos/new2/" }), "new2/b.jpg");
assert.equal(kept(placed, { keep: "folder", folder: "/photos/none" }), "new/a.jpg");
assert.equal(kept(placed, { keep: "folder" }), "new/a.jpg");

// What lies in a folder that is never touched stays beside what the rule keeps; what a person ticks goes before both.
const rule = ruleOf({ never: " /photos/new2 \n\n" });
assert.deepEqual(rule.never, ["/photos/new2"]);
assert.ok(isSafe(placed[1], rule) && !isSafe(placed[0], rule));
assert.deepEqual([...ticks([group(...placed)], rule, new Map())], ["old/x/c.jpg"]);
assert.deepEqual([...ticks([group(...placed)], rule, new Map([["new2/b.jpg", true], ["old/x/c.jpg", false]]))], ["new2/b.jpg"]);

// What came over the network has its folder in its id.
assert.equal(folderOf({ id: "shop/mug/1.jpg", uri: "1.jpg" }), "shop/mug");
assert.equal(folderOf({ id: "1.jpg", uri: "1.jpg" }), "");

assert.equal(commonOf(["/a/b/c", "/a/b", "/a/b/d"]), "/a/b");
assert.equal(commonOf(["a", "b"]), "");
assert.equal(commonOf([]), "");
assert.equal(shortFolder("/a/b/c", "/a/b"), "c");
assert.equal(shortFolder("/a/b", "/a/b"), "b");
assert.equal(shortFolder("a", ""), "a");
