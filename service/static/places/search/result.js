// One photo that was found.
import { html } from "../../lib/html.js";
import { thumbnail } from "../../lib/pictures.js";
import { short } from "../../lib/text.js";
import { Icon } from "../../parts/icon.js";
import { Picture } from "../../parts/picture.js";
import { AskingOf } from "./asking.js";
import { Fields } from "./look.js";

const FEW_FIELDS = 2;
const at = (share) => `${100 * Math.min(1, Math.max(0, share))}%`;
const signed = (margin) => `${margin < 0 ? "−" : "+"}${Math.abs(margin).toFixed(3)}`;

// A score as a bar; the line is the threshold.
export const Bar = ({ score, margin = null, threshold = null }) => html`<div class="search-score">
  <p class="soft small"><span>score ${score.toFixed(3)}</span>${margin !== null && html`<span class=${margin < 0 ? "no" : "yes"} title="Above or below the threshold">${signed(margin)}</span>`}</p>
  <div class="search-bar" aria-hidden="true"><i style=${{ width: at(score) }}></i>${threshold !== null && html`<b style=${{ left: at(threshold) }}></b>`}</div>
</div>`;

export function Result({ gallery, found, threshold, mayBeAsked = false, isGrouped, answers, onLook, onSearch, onWhy, nCopies = 0, isOpen = false, isCopy = false, onCopies }) {
  const name = short(found.label ?? found.id, 60);
  const isWrong = answers.said.wrong[found.id] !== undefined;
  return html`<li class=${`search-result ${isWrong ? "is-wrong" : ""}`}>
    <button type="button" class="search-picture" onClick=${() => onLook(found)} aria-label=${`Look at ${name}, ${short(found.id, 60)}`}>
      <${Picture} path=${thumbnail(gallery, found.id)} />
    </button>
    <div class="search-told">
      ${!isGrouped && html`<strong><bdi>${name}</bdi></strong>`}
      ${(isGrouped || found.label !== null) && html`<span class="soft small"><bdi>${short(found.id, 60)}</bdi></span>`}
      ${isGrouped ? html`<span class="soft small">score ${found.score.toFixed(3)}</span>` : html`<${Bar} score=${found.score} margin=${found.margin} threshold=${threshold} />`}
      <${Fields} metadata=${found.metadata} most=${FEW_FIELDS} />
    </div>
    ${isCopy && html`<span class="tag">a copy</span>`}
    ${nCopies > 0 && html`<button type="button" class="button chip" aria-expanded=${isOpen ? "true" : "false"} onClick=${onCopies}>${isOpen ? "Hide" : "Show"} ${nCopies} ${nCopies === 1 ? "copy" : "copies"}</button>`}
    ${mayBeAsked && !isGrouped && html`<${AskingOf} found=${found} answers=${answers} />`}
    <div class="search-does">
      <button type="button" class="button quiet" onClick=${() => onSearch(found.id)} aria-label=${`Search with ${name}, ${short(found.id, 60)}`}><${Icon} name="search" />Search</button>
      <button type="button" class="button quiet" onClick=${() => onWhy(found.id)} aria-label=${`Why ${name}, ${short(found.id, 60)}`}>Why?</button>
    </div>
  </li>`;
}
