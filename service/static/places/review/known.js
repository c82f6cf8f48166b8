// What the answers say so far: two rates with where they may truly lie, which shrinks with each answer.
import { at, del, inWords } from "../../lib/api.js";
import { html } from "../../lib/html.js";
import { keptPicture } from "../../lib/pictures.js";
import { number, sentence, short } from "../../lib/text.js";
import { Button } from "../../parts/field.js";
import { Interval } from "../../parts/interval.js";
import { tell } from "../../parts/notice.js";
import { Picture } from "../../parts/picture.js";
import { saidInWords } from "./words.js";

const MOST = 5;

function Disagreement({ gallery, search_id: search, answers, onChange }) {
  const back = async (answer) => {
    try {
      await del(at(gallery, `/answers/${answer.number}`));
      onChange();
    } catch (error) {
      tell(inWords(error), { kind: "wrong" });
    }
  };
  return html`<li class="review-against"><${Picture} path=${keptPicture(gallery, search)} alt="What was searched for" />
    <ul>${answers.map((one) => html`<li key=${one.number}><span><bdi>${short(one.by, 40)}</bdi>: <bdi>${saidInWords(one)}</bdi></span>
      <${Button} kind="quiet" onClick=${() => back(one)}>Take back<//></li>`)}</ul></li>`;
}

export function Known({ gallery, known, onChange }) {
  const { fnir, fpir, disagreements, notes } = known;
  return html`
    ${fnir && html`<${Interval} label="Found, of what you have:" rate=${1 - fnir.rate} low=${1 - fnir.high} high=${1 - fnir.low} />`}
    ${fpir && html`<${Interval} label="Matched, of what you lack:" kind="no" rate=${fpir.rate} low=${fpir.low} high=${fpir.high} />`}
    ${!fnir && !fpir && html`<p class="soft">Two bars come here: how much of what you have is found, and how much of what you lack gets a match. Each answer makes them surer.</p>`}
    <p class="review-sentence" dir="auto">${known.sentence}</p>
    ${notes.map((one) => html`<p key=${one} class="soft small" dir="auto">${sentence(one)}</p>`)}
    ${disagreements.length > 0 && html`<h3>People disagree</h3>
      <ul class="review-disagreements">${disagreements.slice(0, MOST).map((one) => html`<${Disagreement} key=${one.search_id} gallery=${gallery} ...${one} onChange=${onChange} />`)}</ul>
      ${disagreements.length > MOST && html`<p class="soft small">And ${number(disagreements.length - MOST)} more.</p>`}`}`;
}
