// The verdict of a search, and what was found.
import { html } from "../../lib/html.js";
import { thumbnail } from "../../lib/pictures.js";
import { number, short } from "../../lib/text.js";
import { VERDICTS } from "../../lib/words.js";
import { Picture } from "../../parts/picture.js";

const UNDECIDED = { text: "No threshold yet", mark: "–", kind: "plain" };

export function Verdict({ answer }) {
  const { text, mark, kind } = VERDICTS[answer.verdict] ?? UNDECIDED;
  const reasons = [answer.reason, answer.threshold.reason, answer.threshold.note].filter(Boolean);
  return html`<div class=${`search-verdict ${kind}`} role="status">
    <h2><span class="mark" aria-hidden="true">${mark}</span> ${text}</h2>
    ${reasons.map((one) => html`<p dir="auto">${one}</p>`)}
  </div>`;
}

const Result = ({ gallery, found, onSearch }) => html`<li class="search-result">
  <button type="button" onClick=${() => onSearch(found.id)} title="Search with this photo">
    <${Picture} path=${thumbnail(gallery, found.id)} />
    <span><bdi>${short(found.label ?? found.id, 80)}</bdi><span class="soft small">score ${found.score.toFixed(3)}</span></span>
  </button></li>`;

const Part = ({ title, found, ...others }) => found.length > 0 && html`<h3>${title}</h3>
  <ol class="search-results">${found.map((one) => html`<${Result} key=${one.id} found=${one} ...${others} />`)}</ol>`;

export function Results({ gallery, answer, onSearch }) {
  const below = answer.verdict === null ? "Most alike" : "Less alike";
  return html`<${Part} title=${`Matches: ${number(answer.matches.length)}`} found=${answer.matches} gallery=${gallery} onSearch=${onSearch} />
    <${Part} title=${below} found=${answer.candidates} gallery=${gallery} onSearch=${onSearch} />`;
}
