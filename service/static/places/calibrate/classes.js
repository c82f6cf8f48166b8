// How differently things fare: one thing's curve, and what goes wrong with it most.
import { admin, get, useCall } from "../../lib/api.js";
import { html, useMemo, useState } from "../../lib/html.js";
import { ofLabel, prepared } from "../../lib/points.js";
import { number, percent, short, visible } from "../../lib/text.js";
import { Field } from "../../parts/field.js";
import { Fault } from "../../parts/notice.js";
import { Plot } from "../../parts/plot.js";
import { Worst } from "./worst.js";

const MOST = 8;
const mean = (values) => values.reduce((sum, one) => sum + one, 0) / values.length;

// The last space is the one that decides; others are on the way there.
const lastOf = (utilities) => utilities.final ?? Object.values(utilities)[0] ?? null;

function Curve({ label, found }) {
  const place = found.labels.indexOf(label);
  const [x, lines] = useMemo(() => {
    // Scores rise where distances fall.
    const order = [...found.distances.keys()].reverse();
    const all = order.map((at) => mean(found.values.map((row) => row[at])));
    const own = place < 0 ? null : order.map((at) => found.values[place][at]);
    return [order.map((at) => 1 - found.distances[at]), [...(own ? [{ name: short(label, 40), values: own, color: "s2" }] : []), { name: "The mean of all", values: all, color: "s1" }]];
  }, [found, label]);
  return html`<${Plot} title="How well it is told from others, by score" x=${x} lines=${lines} height=${200} />
    ${place < 0 && html`<p class="soft small">Of this one alone no curve is known: it has too few photos.</p>`}`;
}

function examplesOf(details) {
  const one = (isRight) => ({ query, item, query_label: label, item_label: itemLabel, score }) => ({ query, item, label, itemLabel, score, isRight });
  return { missed: details.false_rejects.map(one(true)), taken: details.false_accepts.map(one(false)) };
}

export function Classes({ gallery, record, details }) {
  const [typed, type] = useState("");
  const [label, choose] = useState(null);
  const points = useCall((signal) => get(admin(gallery, `/calibrations/${encodeURIComponent(record.id)}/points`), { signal }), [gallery, record.id], { refreshes: false });
  const P = useMemo(() => (points.value ? prepared(points.value) : null), [points.value]);
  const found = lastOf(details.utilities);
  const labels = useMemo(() => (found ? found.labels : [...new Set([...details.false_rejects, ...details.false_accepts].map((one) => one.query_label))]), [details]);
  const like = typed.trim().toLowerCase();
  const shown = labels.filter((one) => one.toLowerCase().includes(like)).slice(0, MOST);
  const wrong = label === null || !P ? examplesOf(details) : ofLabel(P, label, record.threshold);
  const utility = (one) => (found ? mean(found.values[found.labels.indexOf(one)]) : null);
  return html`<section class="card stack calibrate-classes"><h2>Thing by thing</h2>
    <p class="soft small">The worst stand first. Choose one to see its curve and what goes wrong with it.</p>
    <${Field} label="Find a thing">${(control) => html`<input type="search" autocomplete="off" dir="auto" value=${typed} onInput=${(event) => type(event.target.value)} ...${control} />`}<//>
    <div class="row" role="group" aria-label="Things">
      <button type="button" class="button chip" aria-pressed=${label === null ? "true" : "false"} onClick=${() => choose(null)}>All</button>
      ${shown.map((one) => html`<button key=${one} type="button" class="button chip" aria-pressed=${label === one ? "true" : "false"} onClick=${() => choose(one)}><bdi>${short(one, 40)}</bdi>
        ${found && html`<span class="soft">${percent(utility(one))}</span>`}</button>`)}
      ${!shown.length && html`<p class="soft">There is no such thing here.</p>`}
    </div>
    <${Fault} error=${points.error} again=${points.again} />
    ${label !== null && found && html`<${Curve} label=${label} found=${found} />`}
    <${Worst} key=${label ?? ""} gallery=${gallery} source=${record.source} title=${label === null ? "Not found, the worst first" : html`Not found, of <bdi>${visible(short(label, 60))}</bdi>`} pairs=${wrong.missed} />
    <${Worst} key=${`${label ?? ""} taken`} gallery=${gallery} source=${record.source} title="Taken for something else, the worst first" pairs=${wrong.taken} />
    ${label !== null && !P?.mates && html`<p class="soft small">This calibration was kept without its photos: calibrate again to see those of one thing.</p>`}
    <p class="soft small">${number(labels.length)} things were measured. What you mend here counts from the next calibration on.</p>
  </section>`;
}
