// Two calibrations side by side: what each promises, and which photos they decide in another way.
import { admin, get, Problem, useCall } from "../../lib/api.js";
import { html, useMemo } from "../../lib/html.js";
import { prepared } from "../../lib/points.js";
import { setParams } from "../../lib/router.js";
import { when } from "../../lib/text.js";
import { Button } from "../../parts/field.js";
import { Interval } from "../../parts/interval.js";
import { Fault, Waiting } from "../../parts/notice.js";
import { SOURCES } from "./history.js";
import { expected, holdsFor } from "./holds.js";
import { Sides } from "./sides.js";
import { inWordsOf, isSameSpace } from "./targets.js";

const at = (gallery, id) => admin(gallery, `/calibrations/${encodeURIComponent(id)}`);
const RATES = [["fnir", "Missed, of things you have", "no"], ["fpir", "Wrongly matched, of things you lack", "no"], ["precision", "Right, of all matches", "yes"]];

function One({ record }) {
  const holds = holdsFor(record);
  return html`<section class="card stack"><h2>${when(record.created_at)}</h2>
    <p>${SOURCES[record.source]}${record.target ? html`<br />${inWordsOf(record.target.rate ? textOf(record.target) : record.target)}` : ""}<br /><span class="soft">score ${record.threshold.toFixed(4)}, ${record.n_items} photos, version ${record.version}</span></p>
    ${RATES.map(([name, label, kind]) => {
      const rate = expected(record, name);
      return rate && html`<${Interval} key=${name} label=${label} kind=${kind} ...${rate} />`;
    })}
    ${holds && html`<p class="soft small">${holds}</p>`}
  </section>`;
}

// A record holds its target in parts.
export const textOf = ({ rate, value }) => `${rate === "precision" ? rate : rate.toUpperCase()} ${Number((100 * value).toPrecision(4))} %`;

// Of answers about pairs, and of old ones, no scores are kept.
async function pointsOf(gallery, id, signal) {
  try {
    return await get(`${at(gallery, id)}/points`, { signal });
  } catch (error) {
    if (error instanceof Problem && error.status === 404) return null;
    throw error;
  }
}

// Why no photos can be told that change sides; null where they can.
function whyNot(first, second, P) {
  if (first.bundle !== second.bundle) return "Both were measured with different models: a score of the one says nothing in the other, so their scores and photos cannot be compared.";
  if (!isSameSpace(first, second)) return "Both search in different ways: their scores mean different things, and no photo is decided by both.";
  return P ? null : "Of the first no scores were kept, so it is not known which photos change sides.";
}

export function Compare({ gallery, record, other }) {
  const found = useCall((signal) => Promise.all([get(at(gallery, record.id), { signal }), get(at(gallery, other), { signal }), pointsOf(gallery, record.id, signal)]), [gallery, record.id, other], { refreshes: false });
  const P = useMemo(() => (found.value?.[2] ? prepared(found.value[2]) : null), [found.value]);
  const back = html`<div class="row"><${Button} onClick=${() => setParams({ with: null })}>Back to the history<//></div>`;
  if (!found.value) return html`${back}${found.error ? html`<${Fault} error=${found.error} again=${found.again} />` : html`<${Waiting} />`}`;
  const [{ record: first }, { record: second }] = found.value;
  const cannot = whyNot(first, second, P);
  return html`${back}<div class="calibrate-pair"><${One} record=${first} /><${One} record=${second} /></div>
    ${cannot ? html`<p class="soft">${cannot}</p>`
      : html`<p class="soft">On what the first was measured with, from its score to that of the second:</p><${Sides} gallery=${gallery} source=${first.source} P=${P} from=${first.threshold} to=${second.threshold} />`}`;
}
