// Files that were dropped: folders are walked to their end, each path comes once, and what is no photo is named.
import assert from "node:assert/strict";

import { filesOf, filesOfInput, labelOf, numbered, whyLeftOut } from "./static/lib/files.js";

const file = (name, { size = 10, type = "image/jpeg", lastModified = 1 } = {}) => ({ name, size, type, lastModified });
const fileEntry = (one) => ({ name: one.name, isFile: true, file: (done) => done(one) });
const broken = (name) => ({ name, isFile: true, file: (_done, fail) => fail(new Error("gone")) });
// As browsers do: a hundred at a time.
const folder = (name, entries) => ({
  name, isFile: false,
  createReader: () => {
    let told = 0;
    return { readEntries: (done) => { told += 100; done(entries.slice(told - 100, told)); } };
  },
});
const dropped = (...entries) => ({ items: entries.map((one) => ({ webkitGetAsEntry: () => one })), files: [] });
const paths = async (given) => (await filesOf(given)).map((one) => one.path);

const mugs = Array.from({ length: 250 }, (_, number) => fileEntry(file(`${number}.jpg`)));
const walked = await paths(dropped(folder("shop", [folder("mug", mugs), folder(".git", [fileEntry(file("a.jpg"))]), fileEntry(file("Thumbs.db"))])));
assert.equal(walked.length, 250);
// As people count.
assert.deepEqual(walked.slice(0, 3), ["shop/mug/0.jpg", "shop/mug/1.jpg", "shop/mug/2.jpg"]);

const [gone] = await filesOf(dropped(broken("a.jpg")));
assert.equal(whyLeftOut(gone, 100), "It cannot be opened.");

// The same file once; another of its name has a number.
const twice = [file("1.jpg"), file("1.jpg"), file("1.jpg", { size: 11 }), file("1.jpg", { size: 12 })];
assert.deepEqual(await paths(dropped(...twice.map(fileEntry))), ["1.jpg", "1 (2).jpg", "1 (3).jpg"]);
assert.deepEqual(await paths({ items: [], files: [file("a.jpg")] }), ["a.jpg"]);
const input = { files: [{ ...file("1.jpg"), webkitRelativePath: "shop/mug/1.jpg" }, { ...file("x"), webkitRelativePath: "shop/.git/x" }] };
assert.deepEqual((await filesOfInput(input)).map((one) => one.path), ["shop/mug/1.jpg"]);

assert.deepEqual(["shop/mug/1.jpg", "mug/1.jpg", "1.jpg"].map(labelOf), ["mug", "mug", null]);
assert.deepEqual(["a/b.c/1.jpg", "noend", "a.b/c"].map((one) => numbered(one)), ["a/b.c/1 (2).jpg", "noend (2)", "a.b/c (2)"]);

const why = (one, path = one.name) => whyLeftOut({ file: one, path }, 100);
assert.equal(why(file("1.jpg")), null);
// What a system has no type for may be a photo.
assert.equal(why(file("1.heic", { type: "" })), null);
assert.equal(why(file("1.png.svg", { type: "image/svg+xml" })), null);
for (const [name, type] of [["a.mp4", "video/mp4"], ["a.csv", "text/csv"], ["a.CSV", ""], ["a.pdf", "application/pdf"]]) assert.equal(why(file(name, { type })), "It is no photo.");
assert.equal(why(file("1.jpg", { size: 0 })), "The file is empty.");
assert.equal(whyLeftOut({ file: file("1.jpg", { size: 33e6 }), path: "1.jpg" }, 32e6), "It is larger than 32 MB.");
assert.match(why(file("1.jpg"), "a/".repeat(600)), /too long/);
