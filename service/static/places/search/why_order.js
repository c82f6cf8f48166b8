// The order of what was found at three moments, side by side: by looks alone, refined, and as it was shown.
import { html } from "../../lib/html.js";
import { thumbnail } from "../../lib/pictures.js";
import { short } from "../../lib/text.js";
import { Picture } from "../../parts/picture.js";

const MOST = 8;

const by = (of) => (some, other) => of(other) - of(some);

// What changed since the moment before: "↑2", "↓1", "new".
function change(place, before) {
  if (before === undefined) return null;
  if (before < 0) return { text: "new", kind: "yes", said: "was not among these before" };
  if (before === place) return null;
  const n = Math.abs(before - place);
  return before > place ? { text: `↑${n}`, kind: "yes", said: `${n} higher than before` } : { text: `↓${n}`, kind: "no", said: `${n} lower than before` };
}

function Column({ gallery, title, hint, rows, before, valueOf }) {
  return html`<div class="search-order"><h4>${title}</h4><p class="soft small">${hint}</p>
    <ol>${rows.slice(0, MOST).map((one, place) => {
      const moved = change(place, before?.indexOf(one));
      return html`<li key=${one.id}><span class="soft">${place + 1}</span><${Picture} path=${thumbnail(gallery, one.id)} />
        <span class="search-order-name"><bdi>${short(one.label ?? one.id, 40)}</bdi><span class="soft small">${valueOf(one).toFixed(3)}</span></span>
        ${moved && html`<span class=${`small ${moved.kind}`}><span aria-hidden="true">${moved.text}</span><span class="unseen">${moved.said}</span></span>`}</li>`;
    })}</ol></div>`;
}

export function Orders({ gallery, answer }) {
  const all = [...answer.matches, ...answer.candidates];
  if (!all.length) return html`<p class="soft">Nothing was found.</p>`;
  const initial = all.toSorted(by((one) => one.initial_similarity));
  const refined = all.toSorted(by((one) => one.similarity));
  const final = all.toSorted(by((one) => one.score));
  const isSame = (some, others) => some.every((one, place) => one === others[place]);
  const isReranked = all.some((one) => one.contextual_similarity !== null);
  const same = [isSame(initial, refined) && "Refining changed nothing in it.", isSame(refined, final) && (isReranked ? "Its surroundings changed nothing in it." : "It is not ordered again by its surroundings.")];
  return html`<p class="soft">The ${all.length} best are compared; the first ${Math.min(MOST, all.length)} are shown. ${same.filter(Boolean).join(" ")}</p>
    <div class="search-orders">
      <${Column} gallery=${gallery} title="By looks alone" hint="how alike the photos are" rows=${initial} valueOf=${(one) => one.initial_similarity} />
      <${Column} gallery=${gallery} title="Refined" hint="after its neighbours were asked" rows=${refined} before=${initial} valueOf=${(one) => one.similarity} />
      <${Column} gallery=${gallery} title="As shown" hint="with its surroundings: the score" rows=${final} before=${refined} valueOf=${(one) => one.score} />
    </div>`;
}
