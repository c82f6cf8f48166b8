// One search, and what it may be: one key or one press an answer.
import { html, useState } from "../../lib/html.js";
import { keptPicture, pictureUrl, thumbnail } from "../../lib/pictures.js";
import { short } from "../../lib/text.js";
import { Dialog } from "../../parts/dialog.js";
import { Button } from "../../parts/field.js";
import { LabelSearch } from "../../parts/labels.js";
import { Picture } from "../../parts/picture.js";
import { useShortcuts } from "../../parts/shortcuts.js";
import { GETS, saidInWords } from "./words.js";

const MOST = 9, MOST_HINTS = 3;

// What comes next is there when it comes.
export function preload(paths) {
  for (const path of paths) pictureUrl(path).then((url) => { new Image().src = url; }, () => {});
}

// The best of each label: of a search that was kept all are listed.
export function oneALabel(candidates) {
  const seen = new Set();
  return candidates.filter(({ label, id }) => {
    const key = label === null ? `id ${id}` : `label ${label}`;
    return !seen.has(key) && seen.add(key);
  }).slice(0, MOST);
}

const Candidate = ({ gallery, one, place, isBusy, onSay }) => html`<li>
  <button type="button" class="review-candidate" aria-disabled=${isBusy ? "true" : undefined} onClick=${() => onSay({ item_id: one.id })}>
    <${Picture} path=${thumbnail(gallery, one.id)} />
    <span class="review-name"><bdi>${short(one.label ?? one.id, 60)}</bdi></span>
    <span class="soft small"><kbd>${place + 1}</kbd> <i>score </i>${one.score.toFixed(3)}</span>
  </button></li>`;

export function Question({ gallery, search, note = "", isBusy = false, onSay, onUndo = null, gets = GETS, isInDialog = false, children = null }) {
  const [isFinding, find] = useState(false);
  const candidates = oneALabel(search.candidates);
  const id = search.search_id ?? search.id;
  const say = (said) => { if (!isBusy) onSay(said); };
  useShortcuts({
    ...Object.fromEntries(candidates.map((one, place) => [String(place + 1), () => say({ item_id: one.id })])),
    n: () => say({ absent: true }),
    "?": () => say({ unsure: true }),
    "/": () => find(true),
    ...(onUndo ? { u: onUndo } : {}),
  }, true, { inDialog: isInDialog });
  return html`<div class="review-question">
    <div class="review-query">
      ${search.has_picture
        ? html`<${Picture} path=${keptPicture(gallery, id)} alt="What was searched for" />`
        : html`<span class="picture missing">Searched by numbers, without a picture</span>`}
      <p>${gets[search.verdict] ?? "Nothing is decided: there is no threshold yet."} ${note}</p>
      ${(search.hints ?? []).slice(-MOST_HINTS).map((one) => html`<p key=${one.number} class="soft small"><bdi>${short(one.by, 40)}</bdi> may only search, so this does not count: <bdi>${saidInWords(one)}</bdi></p>`)}
      <div class="review-says">
        <${Button} onClick=${() => say({ absent: true })}>We don't have it <kbd>N</kbd><//>
        <${Button} onClick=${() => find(true)}>Another label <kbd>/</kbd><//>
        <${Button} onClick=${() => say({ unsure: true })}>I can't tell <kbd>?</kbd><//>
        <${Button} disabled=${!onUndo} onClick=${() => onUndo()}>Take back <kbd>U</kbd><//>
      </div>
      ${children}
    </div>
    <div class="review-found">
      <h2>${candidates.length ? "Which of these is the same thing?" : "Nothing was found"}</h2>
      <ul class="review-candidates">${candidates.map((one, place) => html`<${Candidate} key=${one.id} gallery=${gallery} one=${one} place=${place} isBusy=${isBusy} onSay=${say} />`)}</ul>
    </div>
    ${isFinding && html`<${Dialog} title="What is it?" onClose=${() => find(false)}>
      <${LabelSearch} gallery=${gallery} label="Label that the gallery has" onChoose=${(label) => { find(false); say({ label }); }} /><//>`}
  </div>`;
}
