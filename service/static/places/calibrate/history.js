// All calibrations, what was in force when, and the way back.
import { admin, inWords, post } from "../../lib/api.js";
import { html, useState } from "../../lib/html.js";
import { setParams } from "../../lib/router.js";
import { number, of100, short, when } from "../../lib/text.js";
import { ask } from "../../parts/dialog.js";
import { Button } from "../../parts/field.js";
import { tell } from "../../parts/notice.js";
import { inWordsOf } from "./targets.js";

export const SOURCES = { leave_one_out: "with its own photos", queries: "with new photos", searches: "with answers to searches", answers: "with answers about pairs", by_hand: "set by hand" };
const FIRST = 20;

// What a record says in one line, with what photos of another day will show.
export function sentenceOf({ promised: { fnir, fpir } }) {
  const parts = [];
  if (fnir) parts.push(`of 100 things you have ${of100(1 - fnir.high)} to ${of100(1 - fnir.low)} are found`);
  if (fpir) parts.push(`of 100 you lack ${of100(fpir.low)} to ${of100(fpir.high)} get a match`);
  const said = parts.join(", ");
  return said ? `${said[0].toUpperCase()}${said.slice(1)}.` : "No rates are known.";
}

function Row({ gallery, one, record, inForce, changed, isBefore }) {
  const [isBusy, setBusy] = useState(false);
  const activate = async () => {
    const text = `A match then needs a score of ${one.threshold.toFixed(4)}. ${sentenceOf(one)}`;
    if (!(await ask({ title: "Put this calibration in force?", text, yes: "Put in force" }))) return;
    setBusy(true);
    try {
      await post(admin(gallery, `/calibrations/${encodeURIComponent(one.id)}/activate`));
      tell("It is in force from the next search on.");
      changed();
    } catch (error) {
      tell(inWords(error), { kind: "wrong" });
    }
    setBusy(false);
  };
  const isShown = one.id === record.id;
  return html`<li class="card calibrate-row">
    <div><p><strong>${when(one.created_at)}</strong>, ${SOURCES[one.source] ?? one.source}
      ${one.is_active && html` <span class="tag yes"><span aria-hidden="true">✓</span> in force</span>`}${isBefore && html` <span class="tag">before this</span>`}</p>
      <p>${one.target ? inWordsOf(one.target) : "No target"} <span class="soft">· score ${one.threshold.toFixed(4)} · ${number(one.n_items)} photos, version ${one.version}</span></p>
      <p class="soft small">${sentenceOf(one)}</p>
      ${inForce && one.bundle !== inForce.bundle && html`<p class="soft small">Measured with another model than what is in force.</p>`}
      ${inForce && one.pipeline !== inForce.pipeline && html`<p class="soft small">Searches in another way: <bdi>${short(one.pipeline, 120)}</bdi></p>`}</div>
    <div class="row">
      <${Button} disabled=${isShown} onClick=${() => setParams({ id: one.id, view: null })}>${isShown ? "Shown" : "Look"}<//>
      ${!isShown && one.source !== "by_hand" && record.source !== "by_hand" && html`<${Button} kind="quiet" onClick=${() => setParams({ with: one.id })}>Compare<//>`}
      ${!one.is_active && html`<${Button} kind="quiet" busy=${isBusy} onClick=${activate}>Put in force<//>`}
    </div>
  </li>`;
}

export function History({ gallery, record, inForce, changed, all }) {
  const [most, setMost] = useState(FIRST);
  const [isBusy, setBusy] = useState(false);
  const { calibrations, activations } = all;
  const named = new Map(calibrations.map((one) => [one.id, one]));
  const own = inForce ? activations.filter((one) => named.get(one.calibration)?.pipeline === inForce.pipeline) : [];
  const before = own.length > 1 ? own[own.length - 2].calibration : null;
  const back = async () => {
    if (!(await ask({ title: "Go back to the calibration before?", text: "What was in force before the present one decides again, from the next search on.", yes: "Go back" }))) return;
    setBusy(true);
    try {
      const { record: now } = await post(admin(gallery, "/calibrations/roll_back"), { body: {} });
      tell(`Back: a match needs a score of ${now.threshold.toFixed(4)} again.`);
      changed();
    } catch (error) {
      tell(inWords(error), { kind: "wrong" });
    }
    setBusy(false);
  };
  return html`<div class="stack">
    ${before && html`<div class="row"><${Button} busy=${isBusy} onClick=${back}>Back to the one before<//></div>`}
    <ul class="stack calibrate-rows">${calibrations.slice(0, most).map((one) => html`<${Row} key=${one.id} gallery=${gallery} one=${one} record=${record} inForce=${inForce} changed=${changed} isBefore=${one.id === before && !one.is_active} />`)}</ul>
    ${calibrations.length > most && html`<${Button} onClick=${() => setMost(most + 5 * FIRST)}>Show more<//>`}
    <h2>In force since</h2>
    ${activations.length ? html`<ol class="calibrate-events">${[...activations].reverse().slice(0, most).map((one, place) => html`<li key=${place}><span class="soft">${when(one.at) || "at some time"}</span>
      <span>${one.kind === "roll_back" ? "back to" : "put in force:"} ${named.has(one.calibration) ? `score ${named.get(one.calibration).threshold.toFixed(4)}, of ${when(named.get(one.calibration).created_at)}` : "one that is gone"}</span></li>`)}</ol>`
      : html`<p class="soft">Nothing was put in force yet.</p>`}
  </div>`;
}
