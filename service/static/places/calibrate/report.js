// All that is known of one calibration, as figures that can be looked into.
import { admin, get, useCall } from "../../lib/api.js";
import { html, useMemo, useState } from "../../lib/html.js";
import { number, percent, when } from "../../lib/text.js";
import { Choice } from "../../parts/field.js";
import { Interval } from "../../parts/interval.js";
import { Fault, Waiting } from "../../parts/notice.js";
import { Plot } from "../../parts/plot.js";
import { Classes } from "./classes.js";
import { SOURCES } from "./history.js";
import { expected, holdsFor } from "./holds.js";

const RATES = [
  ["fnir", "Things you have that are missed", "no"], ["fpir", "Things you lack that get a match", "no"], ["precision", "Matches that are right", "yes"],
  ["frr", "Pairs of one thing that are told apart", "no"], ["far", "Pairs of two things that are taken for one", "no"],
];
const SCORES = { searches: [["Best photo of the same thing", "best_mates", "s3"], ["Best photo where there is none", "best_without_mate", "s2"]], pairs: [["Pairs of one thing", "mates", "s3"], ["Pairs of two things", "non_mates", "s2"]] };
const DRIFT = { unknown: ["–", "plain"], none: ["✓", "yes"], slight: ["?", "unsure"], strong: ["✕", "no"] };

const shares = (counts) => {
  const all = counts.reduce((sum, one) => sum + one, 0);
  return counts.map((one) => (all ? one / all : 0));
};

function Scores({ found, threshold }) {
  const [kind, setKind] = useState("searches");
  const kinds = Object.keys(SCORES).filter((one) => SCORES[one].some(([, name]) => found[name].some(Boolean)));
  const shown = kinds.includes(kind) ? kind : kinds[0];
  const [x, lines, range] = useMemo(() => {
    if (!shown) return [[], [], null];
    const middles = found.edges.slice(1).map((edge, place) => (edge + found.edges[place]) / 2);
    const made = SCORES[shown].map(([name, column, color]) => ({ name, values: shares(found[column]), color }));
    const used = middles.filter((_, place) => made.some(({ values }) => values[place] > 0));
    return [middles, made, [Math.max(0, Math.min(used[0], threshold) - 0.03), Math.min(1, Math.max(used.at(-1), threshold) + 0.03)]];
  }, [found, shown, threshold]);
  if (!shown) return null;
  const top = Math.max(...lines.flatMap(({ values }) => values));
  return html`<section class="card stack"><div class="row calibrate-apart"><h2>How far apart the scores lie</h2>
      ${kinds.length > 1 && html`<${Choice} label="Of" value=${shown} options=${[["searches", "searches"], ["pairs", "pairs of photos"]]} onChange=${setKind} />`}</div>
    <p class="soft small">The less the two hills overlap, the better a score can tell them apart. The line is the score that a match needs.</p>
    <${Plot} title="Share of each, by score" x=${x} lines=${lines} range=${range} mark=${threshold} height=${220} yRange=${[0, 1.1 * top]} /></section>`;
}

function Drift({ drift }) {
  const [mark, kind] = DRIFT[drift.level] ?? DRIFT.unknown;
  const has = drift.psi !== null && drift.counts_then?.some(Boolean) && drift.counts_now?.some(Boolean);
  const [x, lines] = useMemo(() => (has ? [drift.counts_then.map((_, place) => place + 1),
    [{ name: "When measured", values: shares(drift.counts_then), color: "s1" }, { name: "Searches since", values: shares(drift.counts_now), color: "s2" }]] : [[], []]), [drift]);
  const says = { none: "Searches look like what was measured.", slight: "Searches look a little unlike what was measured.", strong: "Searches look unlike what was measured: answer some of them in Review, or calibrate with labelled photos like them." };
  return html`<section class="card stack"><h2><span class=${kind} aria-hidden="true">${mark}</span> Searches since</h2>
    <p dir="auto">${says[drift.level] ?? `Nothing can be said yet${drift.reason ? `: ${drift.reason}` : ""}.`}</p>
    ${has && html`<p class="soft small">Without a match: ${percent(drift.no_match_then)} when measured, ${percent(drift.no_match_now)} of ${number(drift.n_queries)} searches since.</p>
      <${Plot} title="Best scores, from the lowest tenth to the highest" x=${x} lines=${lines} height=${180} yRange=${[0, 1.15 * Math.max(...lines.flatMap(({ values }) => values))]} xName="Tenth" />`}</section>`;
}

export function Report({ gallery, record: { id }, turn }) {
  const path = admin(gallery, `/calibrations/${encodeURIComponent(id)}/report`);
  const found = useCall((signal) => get(path, { signal }), [path, turn]);
  if (!found.value) return found.error ? html`<${Fault} error=${found.error} again=${found.again} />` : html`<${Waiting} text="Reading the figures…" />`;
  const { record, verdict, basis, drift, details } = found.value;
  const rates = record.evidence?.rates ?? {};
  return html`<div class="calibrate-report">
    <section class="card stack"><h2>What to expect</h2>
      <p dir="auto">${verdict}</p>${basis && html`<p class="soft" dir="auto">${basis}</p>`}
      ${record.warnings.map((one) => html`<p key=${one} class="small" dir="auto"><span class="unsure" aria-hidden="true">!</span> ${one}</p>`)}
      <p class="soft small">${when(record.created_at)}, ${SOURCES[record.source]}, ${number(record.n_items)} photos, version ${record.version}</p></section>
    ${Object.keys(rates).length > 0 && html`<section class="card stack"><h2>Rates at a score of ${record.threshold.toFixed(4)}</h2>
      ${RATES.map(([name, label, kind]) => rates[name] && html`<div key=${name}><${Interval} label=${label} kind=${kind} ...${expected(record, name)} />
        <p class="soft small">${number(rates[name].n_trials)} tried, of ${number(rates[name].n_labels)} things</p></div>`)}
      <p class="soft small">${holdsFor(record)}</p></section>`}
    ${details && html`<${Scores} found=${details.histograms} threshold=${record.threshold} />`}
    <${Drift} drift=${drift} />
    ${details && html`<${Classes} gallery=${gallery} record=${record} details=${details} />`}
  </div>`;
}
