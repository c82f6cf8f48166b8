// Texts: what cannot be seen stands as its code, and no number says more than is known.
import assert from "node:assert/strict";

import { bytes, lasting, of100, percent, sentence, short, valueText, visible, when } from "./static/lib/text.js";

// Labels are shown as they are; emoji and scripts stay whole.
const shown = ["[new] <b>shoes</b>", "\u202egnp.exe", "a\u200bb\u2028c\x1b", "שלום 👩\u200d🚀"].map(visible);
assert.deepEqual(shown, ["[new] <b>shoes</b>", "\\u{202e}gnp.exe", "a\\u{200b}b\\u{2028}c\\u{1b}", "שלום 👩\u200d🚀"]);

assert.equal(short("a".repeat(200)), "a".repeat(200));
assert.equal(short("a".repeat(10_000)).length, 200);
assert.ok(short("a".repeat(201)).endsWith("a…"));
assert.equal([...short("🚀".repeat(300), 10)].length, 10);

assert.deepEqual([0, 0.0004, 0.034, 0.5, 0.96, 0.9996, 1].map(percent), ["0 %", "under 0.1 %", "3.4 %", "50 %", "96 %", "over 99.9 %", "100 %"].map((one) => one.replace(" %", "\u00a0%")));
assert.deepEqual(["it is full", "Is it?", "a\u202eb", null].map(sentence), ["It is full.", "Is it?", "A\\u{202e}b.", ""]);
assert.deepEqual([0, 0.001, 0.034, 0.96, 0.999, 1].map(of100), ["0", "under 1", "3", "96", "over 99", "100"]);
assert.deepEqual([0, 999, 1000, 1_234_567, 5e11].map(bytes), ["0 bytes", "999 bytes", "1.0 kB", "1.2 MB", "500 GB"]);
assert.deepEqual([1, 5, 120, 7200, 200_000].map(lasting), ["a moment", "about 5 seconds", "about 2 minutes", "about 2 hours", "about 2 days"]);
assert.deepEqual([null, true, 3.5, "a\u0000", [1, { b: 2 }]].map(valueText), ["none", "yes", "3.5", "a\\u{0}", '[1,{"b":2}]']);
assert.match(when(new Date().toISOString()), /^today \d\d:\d\d$/);
assert.equal(when("2020-03-03T12:00:00Z"), "3 Mar 2020");
