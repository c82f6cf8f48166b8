// More photos for this gallery.
import { galleries, galleryOf } from "../../lib/galleries.js";
import { html } from "../../lib/html.js";
import { href } from "../../lib/router.js";
import { useStore } from "../../lib/store.js";
import { number, visible } from "../../lib/text.js";
import { Adding, beginAdding, endAdding, uploads } from "../../parts/adding.js";
import { Chosen, useChosen } from "../../parts/chosen.js";
import { Drop } from "../../parts/drop.js";
import { Button } from "../../parts/field.js";
import { Empty } from "../../parts/notice.js";

export const title = "Add";
export const needs = "write";

export function Place({ gallery }) {
  const found = galleryOf(gallery, useStore(galleries));
  const chosen = useChosen();
  const isSent = useStore(uploads, (all) => all.has(gallery));
  if (found.takes !== "images") return html`<${Empty} level=${1} title="This gallery takes no photos" text="It holds ready embeddings, which programs send to it." />`;
  const n = chosen.good.length;
  const again = () => { endAdding(gallery); chosen.clear(); };
  return html`<div class="gallery-add stack"><div class="head"><h1>Add photos</h1><p>To <bdi>${visible(gallery)}</bdi>, which holds ${number(found.n_items)}. They can be searched as soon as they are in; what is there already does not come twice.</p></div>
    ${isSent ? html`<${Adding} key=${gallery} gallery=${gallery}>
        <a class="button main" href=${href("search", gallery)}>Search</a><${Button} onClick=${again}>Add more<//><//>`
      : n + chosen.leftOut.length > 0 ? html`<div class="card stack"><${Chosen} chosen=${chosen} />
        ${n > 0 && html`<div class="row end"><${Button} kind="main" onClick=${() => beginAdding(gallery, chosen.taken, chosen.leftOut)}>Add ${number(n)} ${n === 1 ? "photo" : "photos"}<//></div>`}</div>`
      : html`<${Drop} onFiles=${chosen.take} multiple=${true} folder=${true} camera=${true} paste=${true} label="Photos to add">
        <h2><span class="drop-with-mouse">Drop photos or a folder here</span><span class="drop-with-touch">Choose photos to add</span></h2><p><span class="drop-with-mouse">You may paste them, too. </span>With a folder for each thing, its name says what the photos in it show.</p><//>`}
  </div>`;
}
