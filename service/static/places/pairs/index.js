// Same or not? A threshold without labels, from what a person says of pairs of photos.
import { admin, del, get, post } from "../../lib/api.js";
import { html, useEffect, useRef, useState } from "../../lib/html.js";
import { pictureUrl, thumbnail } from "../../lib/pictures.js";
import { href } from "../../lib/router.js";
import { number, of100, short } from "../../lib/text.js";
import { Button } from "../../parts/field.js";
import { Interval } from "../../parts/interval.js";
import { Fault, Waiting } from "../../parts/notice.js";
import { Picture } from "../../parts/picture.js";
import { useShortcuts } from "../../parts/shortcuts.js";

export const title = "Same or not?";
export const needs = "admin";

// One step after the other: a key that is pressed meanwhile says nothing.
function useSession(gallery, target) {
  const [shown, show] = useState({ state: null, report: null, error: null, isBusy: false });
  const now = useRef(shown);
  const change = (part) => { now.current = { ...now.current, ...part }; show(now.current); };
  const step = async (work) => {
    if (now.current.isBusy) return;
    change({ isBusy: true });
    try {
      change({ ...(await work()), error: null, isBusy: false });
    } catch (error) {
      change({ error, isBusy: false });
    }
  };
  const path = (rest = "") => admin(gallery, `/labelling${rest}`);
  const begin = () => step(async () => ({ state: await post(path(), { body: target ? { target } : {} }) }));
  useEffect(() => { begin(); }, [gallery, target]);
  const answer = (same) => now.current.state?.questions.length && step(async () => {
    const body = { number: now.current.state.questions[0].number, same };
    return { state: await post(path("/answers"), { body }) };
  });
  const undo = () => now.current.state?.n_answers && step(async () => ({ state: await del(path("/answers/last")) }));
  const finish = () => step(async () => {
    const { record } = await post(path("/finish"));
    return { state: null, report: await get(admin(gallery, `/calibrations/${encodeURIComponent(record.id)}/report`)) };
  });
  return { ...shown, begin, answer, undo, finish };
}

const Photo = ({ gallery, id, alt }) => html`<figure class="card"><${Picture} path=${thumbnail(gallery, id)} alt=${alt} />
  <figcaption class="soft small"><bdi>${short(id, 60)}</bdi></figcaption></figure>`;

function Asked({ gallery, question, isBusy, hasAnswers, answer, undo }) {
  const same = () => answer(true), different = () => answer(false), unsure = () => answer(null);
  useShortcuts({ s: same, arrowright: same, d: different, arrowleft: different, " ": unsure, u: undo, backspace: undo });
  const [first, second] = question.items;
  return html`<section class="pairs-asked" aria-label="Two photos" aria-busy=${isBusy ? "true" : "false"}>
    <div class="pairs-photos"><${Photo} gallery=${gallery} id=${first} alt="First photo" /><${Photo} gallery=${gallery} id=${second} alt="Second photo" /></div>
    <div class="pairs-answers">
      <${Button} kind="no" onClick=${different}>Different <kbd>D</kbd><//>
      <${Button} kind="yes" onClick=${same}>Same <kbd>S</kbd><//>
      <${Button} onClick=${unsure}>I can't tell <kbd>space</kbd><//>
      <${Button} disabled=${!hasAnswers} onClick=${undo}>Take back <kbd>U</kbd><//>
    </div>
  </section>`;
}

function Estimate({ state, isBusy, onFinish }) {
  const { estimate: known, questions, progress } = state;
  const rate = known?.precision;
  return html`<section class="pairs-known card stack" aria-live="polite" aria-label="What is known now">
    <h2>${known ? `Of 100 matches, about ${of100(rate.rate)} will be right` : questions.length ? "Not enough answers yet" : "All pairs were asked about"}</h2>
    ${known && html`<${Interval} label="Right, of all matches:" rate=${rate.rate} low=${rate.low} high=${rate.high} />`}
    <div><p class="small soft" id="pairs-far">How near to enough</p><progress aria-labelledby="pairs-far" max="1" value=${progress}></progress></div>
    <p class="soft" dir="auto">${state.sentence}${known && ` Threshold ${known.threshold.toFixed(3)}, for ${state.target}.`}</p>
    ${known && html`<${Button} kind=${known.is_enough ? "main" : "plain"} busy=${isBusy} onClick=${onFinish}>Finish and use this threshold<//>`}
  </section>`;
}

export function Place({ gallery, params }) {
  const { state, report, error, isBusy, begin, answer, undo, finish } = useSession(gallery, params.target);
  const [question, ...later] = state?.questions ?? [];
  useEffect(() => {
    for (const id of later.flatMap(({ items }) => items)) pictureUrl(thumbnail(gallery, id)).then((url) => { new Image().src = url; }, () => {});
  }, [state]);
  if (report) {
    return html`<div class="head"><h1>${title}</h1><p>Done: searches of this gallery are decided by this threshold from now on.</p></div>
      <section class="pairs-done card stack" role="status"><h2 dir="auto">${report.verdict}</h2><p class="soft" dir="auto">${report.basis}</p>
        <div class="row"><a class="button main" href=${href("search", gallery)}>Search the gallery</a></div></section>`;
  }
  return html`<div class="head"><h1>${title}</h1>
      ${state && html`<span class="soft" role="status">${number(state.n_answers)} ${state.n_answers === 1 ? "answer" : "answers"}</span>`}
      <p>Say of each pair whether both photos show the same thing: whether you would want the one to be found with the other. From your answers follows when a search shows a match.</p></div>
    <${Fault} error=${error} again=${begin} />
    ${!state && !error && html`<${Waiting} text="Drawing pairs…" />`}
    ${state && html`<div class="pairs">
      ${question && html`<${Asked} gallery=${gallery} question=${question} isBusy=${isBusy} hasAnswers=${state.n_answers > 0} answer=${answer} undo=${undo} />`}
      <${Estimate} state=${state} isBusy=${isBusy} onFinish=${finish} />
    </div>`}`;
}
