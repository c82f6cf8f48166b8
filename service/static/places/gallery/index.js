// One gallery: its photos, versions, names and what it takes.
import { galleryOf, galleries } from "../../lib/galleries.js";
import { html } from "../../lib/html.js";
import { href, setParams } from "../../lib/router.js";
import { may } from "../../lib/session.js";
import { useStore } from "../../lib/store.js";
import { number, visible } from "../../lib/text.js";
import { STANDINGS } from "../../lib/words.js";
import { Tabs } from "../../parts/tabs.js";
import { Names } from "./aliases.js";
import { Items } from "./items.js";
import { Storage } from "./storage.js";
import { Versions } from "./versions.js";

export const title = "Photos";
export const needs = "search";

const VIEWS = { photos: ["Photos", Items], versions: ["Versions", Versions], names: ["Names", Names], storage: ["Storage", Storage] };

export function Place({ gallery, params }) {
  const found = galleryOf(gallery, useStore(galleries));
  const view = Object.hasOwn(VIEWS, params.view ?? "") ? params.view : "photos";
  const [, View] = VIEWS[view];
  const { text, mark, kind } = STANDINGS[found.standing.word];
  const n = found.n_items, labels = found.n_labels;
  return html`<div class="head"><h1><bdi>${visible(gallery)}</bdi></h1>
      ${may("write", gallery) && found.takes === "images" && html`<a class="button" href=${href("add", gallery)}>Add photos</a>`}
      <p>${number(n)} ${n === 1 ? "photo" : "photos"}${labels > 0 && ` with ${number(labels)} ${labels === 1 ? "label" : "labels"}`}.
        ${found.promise_in_short && ` ${found.promise_in_short}.`} <span class=${`tag ${kind}`}><span aria-hidden="true">${mark}</span> ${text}</span> ${found.standing.sentence}</p></div>
    <div class="stack">
      <${Tabs} value=${view} label="Views of this gallery" tabs=${Object.entries(VIEWS).map(([one, [name]]) => [one, name])} onChange=${(one) => setParams({ view: one === "photos" ? null : one })} />
      <${View} key=${gallery} gallery=${gallery} found=${found} params=${params} />
    </div>`;
}
