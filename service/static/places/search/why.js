// Why a search was answered so: what refined it, how its order came about, what else is near, and what took how long.
import { useCall } from "../../lib/api.js";
import { galleryOf } from "../../lib/galleries.js";
import { html, useEffect, useRef } from "../../lib/html.js";
import { thumbnail } from "../../lib/pictures.js";
import { number, of100, percent, short } from "../../lib/text.js";
import { Button } from "../../parts/field.js";
import { Fault, Waiting } from "../../parts/notice.js";
import { Picture } from "../../parts/picture.js";
import { optionsOf, send } from "./state.js";
import { Orders } from "./why_order.js";

const MOST = 100;
const MOST_LABELS = 6;
const STAGES = {
  decode: "Opening the photo", embed: "Looking at the photo", filter: "Applying the filter", refine: "Comparing it with its neighbours",
  search: "Finding the nearest photos", rescore: "Scoring them exactly", rerank: "Ordering them by their surroundings", answer: "Deciding", explain: "Explaining",
};

const mean = (values) => (values.length ? values.reduce((sum, one) => sum + one, 0) / values.length : 0);
const width = (share) => ({ width: `${100 * Math.min(1, Math.max(0, share))}%` });

const Small = ({ gallery, found, children }) => html`<li class="search-near">
  <${Picture} path=${thumbnail(gallery, found.id)} /><span><strong><bdi>${short(found.label ?? found.id, 50)}</bdi></strong>${children}</span></li>`;

function Neighbors({ gallery, refinement }) {
  if (!refinement) return html`<p class="soft">The model of this gallery does not refine a search by its neighbours.</p>`;
  const { neighbors, is_used: isUsed, cosines } = refinement;
  const weights = neighbors.map(({ attention }) => mean(attention));
  const most = Math.max(...weights, 1e-9);
  return html`
    <p class="soft">${isUsed ? "These photos are nearest to it. Each pulled it its way, by its weight, before the gallery was searched."
      : "These photos are nearest to it. This gallery is searched without letting them pull it; this is what they would weigh."}
      ${cosines.length > 1 && html` Afterwards it is ${percent(Math.max(0, cosines.at(-1)))} like it was before.`}</p>
    <ol class="search-nears">${neighbors.map((one, place) => html`<${Small} key=${one.id} gallery=${gallery} found=${one}>
      <span class="soft small">alike ${one.similarity.toFixed(3)} · weight ${percent(weights[place])}</span>
      <span class="search-bar" aria-hidden="true"><i style=${width(weights[place] / most)}></i></span><//>`)}</ol>`;
}

function Others({ gallery, answer }) {
  const all = [...answer.matches, ...answer.candidates].sort((some, other) => other.score - some.score);
  const seen = new Map();
  for (const one of all) if (!seen.has(one.label ?? one.id)) seen.set(one.label ?? one.id, one);
  const [best, ...others] = seen.values();
  if (!best) return html`<p class="soft">Nothing else is near.</p>`;
  return html`
    <p class="soft">The nearest photo of each other label. The closer its score is to the best one, ${best.score.toFixed(3)}, the easier the two are mixed up.</p>
    ${others.length ? html`<ol class="search-nears">${others.slice(0, MOST_LABELS).map((one) => html`<${Small} key=${one.id} gallery=${gallery} found=${one}>
      <span class="soft small">score ${one.score.toFixed(3)} · ${(best.score - one.score).toFixed(3)} lower</span>
      <span class="search-bar" aria-hidden="true"><i style=${width(one.score)}></i></span><//>`)}</ol>` : html`<p>All that is near has the same label.</p>`}`;
}

function Times({ answer }) {
  const stages = Object.entries(answer.milliseconds), all = stages.reduce((sum, [, ms]) => sum + ms, 0);
  const { devices } = answer.explanation;
  return html`<table class="search-times"><thead><tr><th scope="col">Step</th><th scope="col">On</th><th scope="col" class="number">Time</th></tr></thead>
    <tbody>${stages.map(([stage, ms]) => html`<tr key=${stage}><th scope="row">${STAGES[stage] ?? stage}</th>
      <td>${devices[stage] === "cpu" || !devices[stage] ? "processor" : devices[stage]}</td>
      <td class="number">${ms.toFixed(1)} ms<span class="search-bar" aria-hidden="true"><i style=${width(all ? ms / all : 0)}></i></span></td></tr>`)}</tbody>
    <tfoot><tr><th scope="row">All of it</th><td></td><td class="number">${all.toFixed(1)} ms</td></tr></tfoot></table>`;
}

function Chance({ gallery, answer }) {
  const { threshold, p_value: p, n_searched: n } = answer;
  const known = galleryOf(gallery);
  const promise = threshold.source === "calibration" && threshold.calibration === known?.calibration?.id ? known.promise?.[0] : null;
  const best = Math.max(0, ...[...answer.matches, ...answer.candidates].map((one) => one.score));
  return html`<p>Of ${number(n)} photos the best scores ${best.toFixed(3)}${threshold.value === null ? "; there is no threshold yet." : `; a match needs ${threshold.value.toFixed(3)}.`}
    ${p !== null && html` Of 100 things that this gallery lacks, ${of100(p)} would score as high.`}
    ${promise && html`<br /><span class="soft" dir="auto">${short(promise, 400)}</span>`}</p>`;
}

const Section = ({ title, children }) => html`<section class="search-why-part"><h3>${title}</h3>${children}</section>`;

// `item` is a photo that was found, in place of the query.
export function Why({ gallery, query, params, item, onClose }) {
  const asked = item ? { item, key: `item ${item}` } : query;
  const { filter, by } = params;
  const found = useCall((signal) => send(gallery, asked, { ...optionsOf({ filter, by }), explain: true, limit: MOST }, signal), [gallery, asked.key, filter, by], { refreshes: false });
  const answer = found.value;
  const place = useRef();
  // It may have been asked for far below.
  useEffect(() => { place.current.scrollIntoView({ block: "start" }); place.current.focus({ preventScroll: true }); }, [asked.key]);
  return html`<section class="search-why card" aria-label="Why" tabindex="-1" ref=${place}>
    <div class="search-part-head"><h2>${item ? html`Why: <bdi>${short(item, 60)}</bdi>` : "Why this answer?"}</h2><${Button} kind="quiet" onClick=${onClose}>Close<//></div>
    ${item && html`<p class="soft">This photo of the gallery, as if it were searched for.</p>`}
    ${found.isLoading && html`<${Waiting} text="Looking into it…" />`}
    <${Fault} error=${found.error} again=${found.again} />
    ${answer && html`
      <${Chance} gallery=${gallery} answer=${answer} />
      <${Section} title="Its neighbours and their weights"><${Neighbors} gallery=${gallery} refinement=${answer.explanation.refinement} /><//>
      <${Section} title="How the order came about"><${Orders} gallery=${gallery} answer=${answer} /><//>
      <${Section} title="Nearest of other labels"><${Others} gallery=${gallery} answer=${answer} /><//>
      <${Section} title="Time of each step"><${Times} answer=${answer} /><//>`}
  </section>`;
}
