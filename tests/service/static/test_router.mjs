// Addresses: what is written is read again, and those of older pages lead on.
import assert from "node:assert/strict";

import { href, oldAddress, parsed } from "./static/lib/router.js";

const places = [
  ["galleries", null, {}],
  ["gallery", "shop", {}],
  ["search", "shop", { item: "mug/1 50%.jpg", filter: "label = 'a&b' # \"c\"" }],
  ["search", "a/b ü?#", { item: "../x" }],
  ["jobs", null, { gallery: "shop" }],
  ["jobs", null, { id: "2026-1/2" }],
  ["key", null, {}],
];
for (const [place, gallery, params] of places) {
  const hash = href(place, gallery, params);
  assert.match(hash, /^#\/[^ "<>]*$/);
  assert.deepEqual(parsed(hash), { place, gallery, params });
}
assert.equal(href("search", "shop", { item: null, kept: "", by: undefined, limit: 0 }), "#/g/shop/search?limit=0");
for (const none of ["", "#", "#/", "#/?a"]) assert.equal(parsed(none).place, "galleries");
assert.equal(parsed("#/g/%E0%A4%A/search").place, "nowhere");
assert.equal(parsed("#/g/").place, "g");

const old = (pathname, search = "", hash = "") => oldAddress({ pathname, search, hash });
assert.equal(old("/", "?gallery=shop&item=a%2Fb&filter=x&limit=5&products=1"), "#/g/shop/search?item=a%2Fb&filter=x&limit=5&by=label");
assert.equal(old("/", "?gallery=shop"), "#/g/shop/search");
assert.equal(old("/below/label", "?gallery=shop&target=precision%3D90%25"), "#/g/shop/pairs?target=precision%3D90%25");
assert.equal(old("/review", "?gallery=shop"), "#/g/shop/review");
assert.equal(old("/label"), "#/galleries");
assert.equal(old("/"), null);
assert.equal(old("/", "?gallery=shop", "#/jobs"), null);
