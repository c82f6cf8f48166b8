// Filters: what is chosen becomes the text of the API, and comes back from it.
import assert from "node:assert/strict";

import { field, filterText, isWhole, kindOf, opsOf, rowsOf } from "./static/lib/filters.js";

const price = field("price");
assert.equal(price, "metadata.price");
assert.equal(field("on sale", 'a"b'), 'metadata."on sale"."a""b"');

const rows = [
  { field: "label", kind: "text", op: "is", value: "o'brien AND label = 'x'" },
  { field: price, kind: "number", op: "between", value: "1.5", value2: "20" },
  { field: field("on sale"), kind: "boolean", op: "is", value: "true" },
  { field: field("made", "on"), kind: "date", op: "least", value: "2026-01-31" },
  { field: field("color"), kind: "text", op: "holds", value: "50%_\\" },
  { field: field("color"), kind: "text", op: "begins", value: "re" },
  { field: price, kind: "text", op: "any" },
];
const text = filterText(rows);
assert.equal(text, [
  "label = 'o''brien AND label = ''x'''", "metadata.price BETWEEN 1.5 AND 20", 'metadata."on sale" = true',
  "metadata.made.on >= DATE '2026-01-31'", String.raw`metadata.color LIKE '%50\%\_\\%'`, "metadata.color LIKE 're%'", "metadata.price IS NOT NULL",
].join(" AND "));
assert.deepEqual(rowsOf(text), rows);

// What was written by hand in another way stays text.
for (const other of ["label = 'a' OR label = 'b'", "NOT label = 'a'", "label LIKE '%a_'", "label = 'a' AND", "price < 3", "metadata.a < 3"]) assert.equal(rowsOf(other), null, other);
assert.deepEqual(rowsOf(""), []);

// A row that says nothing yet is left out, and what is no number is none.
assert.equal(filterText([{ field: price, kind: "number", op: "least", value: "a OR 1" }, { field: "label", kind: "text", op: "is", value: " " }]), "");
assert.ok(!isWhole({ field: price, kind: "number", op: "between", value: "1" }));

assert.equal(kindOf({ number: 3, text: 5, other: 9 }), "text");
assert.deepEqual(opsOf({ boolean: 2 }), ["is", "any", "none"]);
