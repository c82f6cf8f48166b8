// One group: photos of the same, which of them stays and which go.
import { html } from "../../lib/html.js";
import { thumbnail } from "../../lib/pictures.js";
import { bytes, number, short, visible, when } from "../../lib/text.js";
import { Button } from "../../parts/field.js";
import { Picture } from "../../parts/picture.js";
import { all, folderOf, isSafe, pathOf, shortFolder } from "./rule.js";

const nameOf = (item) => pathOf(item).slice(folderOf(item).length).replace(/^\//, "") || item.id;
export const sizeOf = ({ width, height }) => (width && height ? `${number(width)} × ${number(height)}` : "size unknown");
export const changedIn = (kinds) => (kinds.includes("exact") ? "same file" : kinds.join(", "));
export const isExact = (item) => item.kinds.includes("exact");

function Photo({ gallery, group, item, rule, common, isTicked, onTick, onCompare, onNot }) {
  const isKept = item.id === group.kept.id;
  const safe = isSafe(item, rule);
  return html`<li class=${`doubles-photo ${isTicked ? "goes" : "stays"}`}>
    <button type="button" class="doubles-look" aria-label=${`Compare ${visible(short(item.id, 80))}`} onClick=${onCompare}><${Picture} path=${thumbnail(gallery, item.id)} /></button>
    <label class="tick"><input type="checkbox" data-id=${item.id} checked=${isTicked} onChange=${(event) => onTick(event.target.checked)} />
      <span class=${isTicked ? "no" : "yes"}><span aria-hidden="true">${isTicked ? "✕" : "✓"}</span> ${isTicked ? "Goes" : "Stays"}</span><span class="unseen">: <bdi>${short(item.id, 80)}</bdi></span></label>
    <p class="doubles-name"><bdi title=${visible(pathOf(item))}>${short(nameOf(item), 60)}</bdi></p>
    ${folderOf(item) && html`<p class="soft small doubles-folder"><bdi title=${visible(folderOf(item))}>${short(shortFolder(folderOf(item), common), 60)}</bdi></p>`}
    <p class="soft small">${sizeOf(item)}${item.n_bytes !== null && `, ${bytes(item.n_bytes)}`}</p>
    ${(item.taken_at ?? item.added_at) && html`<p class="soft small">${item.taken_at ? "taken" : "added"} ${when(item.taken_at ?? item.added_at)}</p>`}
    ${!isKept && html`<p class="small"><span class="tag">${changedIn(item.kinds)}</span></p>`}
    ${safe && html`<p class="small"><span class="tag yes">never touched</span></p>`}
    ${!isKept && !isExact(item) && html`<${Button} kind="quiet" onClick=${onNot}>Not the same<//>`}
  </li>`;
}

export function Group({ gallery, group, rule, common, ticked, onTick, onCompare, onNot }) {
  const items = all(group);
  const nGo = items.filter(({ id }) => ticked.has(id)).length;
  const label = group.kept.label;
  return html`<section class="doubles-group card" aria-label=${`Group of ${items.length} photos`}>
    <header><h2>${number(items.length)} photos${label && html` <span class="soft">of <bdi>${short(label, 60)}</bdi></span>`}</h2>
      ${nGo === items.length && html`<p class="no" role="status"><span aria-hidden="true">✕</span> No photo of this group would be left</p>`}</header>
    <ul>${items.map((item) => html`<${Photo} key=${item.id} gallery=${gallery} group=${group} item=${item} rule=${rule} common=${common} isTicked=${ticked.has(item.id)}
      onTick=${(isOn) => onTick(item.id, isOn)} onCompare=${() => onCompare(item.id)} onNot=${() => onNot(item)} />`)}</ul>
  </section>`;
}
