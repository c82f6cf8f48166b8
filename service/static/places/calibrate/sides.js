// The photos that change sides between two scores, those nearest to the present one first.
import { html, useMemo } from "../../lib/html.js";
import { keptPicture, thumbnail } from "../../lib/pictures.js";
import { changing, nChanging } from "../../lib/points.js";
import { href } from "../../lib/router.js";
import { number, short } from "../../lib/text.js";
import { Picture } from "../../parts/picture.js";

const MOST = 12;
const TITLES = {
  "gains right": ["✓", "yes", "Found as well"],
  "gains wrong": ["✕", "no", "Matched wrongly as well"],
  "loses right": ["✕", "no", "Not found any more"],
  "loses wrong": ["✓", "yes", "Wrong matches that go"],
};

// Where the photo that was searched for can be seen; null where it was sent for this alone.
export function queryPicture(gallery, source, id) {
  if (id === null) return null;
  if (source === "leave_one_out") return thumbnail(gallery, id);
  return source === "searches" ? keptPicture(gallery, id) : null;
}

export const Query = ({ gallery, source, id, label }) => {
  const path = queryPicture(gallery, source, id);
  return path ? html`<${Picture} path=${path} alt=${`Searched for: ${short(label ?? id, 60)}`} />` : html`<span class="picture missing">${short(id ?? label ?? "a photo", 40)}</span>`;
};

function Moved({ gallery, source, moved }) {
  const { query, label, item, itemLabel, score, isRight } = moved;
  const pictures = html`<span class="calibrate-two"><${Query} gallery=${gallery} source=${source} id=${query} label=${label} />
    ${item === null ? html`<span class="picture missing">nothing</span>` : html`<${Picture} path=${thumbnail(gallery, item)} alt=${`Nearest: ${short(itemLabel ?? item, 60)}`} />`}</span>`;
  const said = html`<span class="small"><bdi>${short(label ?? query ?? "", 40)}</bdi>${!isRight && html`<span class="soft"> taken for <bdi>${short(itemLabel ?? item ?? "", 40)}</bdi></span>`}</span>
    <span class="soft small">score ${score.toFixed(3)}</span>`;
  return html`<li class="calibrate-moved">${source === "leave_one_out" && query !== null
    ? html`<a href=${href("search", gallery, { item: query })} title="Search with this photo">${pictures}${said}</a>` : html`<div>${pictures}${said}</div>`}</li>`;
}

export function Sides({ gallery, source, P, from, to }) {
  const all = useMemo(() => changing(P, from, to, MOST), [P, from, to]);
  if (!P.mates) return html`<p class="soft calibrate-sides">This calibration was kept without its photos: calibrate again to see which change sides.</p>`;
  if (!all.length) return html`<p class="soft calibrate-sides calibrate-none" role="status">${from === to ? "Photos that change sides stand here as you move the slider." : "No photo changes sides between these two scores."}</p>`;
  const counts = nChanging(P, from, to);
  const kind = to < from ? "gains" : "loses";
  return html`<section class="calibrate-sides" aria-label="Photos that change sides">
    ${["right", "wrong"].map((side) => {
      const [mark, tone, text] = TITLES[`${kind} ${side}`];
      const shown = all.filter((one) => one.isRight === (side === "right"));
      return html`<div key=${side} class="stack"><h2><span class=${tone} aria-hidden="true">${mark}</span> ${text}: ${number(counts[side])}</h2>
        ${shown.length === 0 ? html`<p class="soft small">None.</p>` : html`<ul class="calibrate-moves">${shown.map((one) => html`<${Moved} key=${`${one.query} ${one.item}`} gallery=${gallery} source=${source} moved=${one} />`)}</ul>`}
        ${counts[side] > shown.length && html`<p class="soft small">The ${number(shown.length)} nearest to the present score are shown.</p>`}</div>`;
    })}
  </section>`;
}
