// Try what was promised with new photos, or with answers to searches; nothing is changed by it.
import { admin, get, useCall } from "../../lib/api.js";
import { html, useState } from "../../lib/html.js";
import { begin } from "../../lib/jobs.js";
import { href } from "../../lib/router.js";
import { number, when } from "../../lib/text.js";
import { Button } from "../../parts/field.js";
import { Fault, Waiting } from "../../parts/notice.js";
import { formOf, Photos } from "./photos.js";

const VERDICTS = { held: ["✓", "yes", "What was promised holds"], unclear: ["?", "unsure", "It cannot be told yet"], broken: ["✕", "no", "What was promised does not hold"] };

function Last({ check }) {
  const [mark, kind, text] = VERDICTS[check.verdict] ?? VERDICTS.unclear;
  return html`<section class=${`card stack calibrate-checked ${kind}`} role="status">
    <h2><span class=${kind} aria-hidden="true">${mark}</span> ${text}</h2>
    <p dir="auto">${check.sentence}</p>
    <p class="soft small">${when(check.checked_at)}, with ${number(check.n_queries)} ${check.source === "searches" ? "answers to searches" : "photos"} of ${number(check.n_labels)} things</p>
    ${check.warnings.map((one) => html`<p key=${one} class="soft small" dir="auto">${one}</p>`)}
  </section>`;
}

export function Check({ gallery, record, underway, turn }) {
  const [photos, setPhotos] = useState([]);
  const [state, setState] = useState({ isBusy: false, error: null });
  const path = admin(gallery, `/calibrations/${encodeURIComponent(record.id)}`);
  const found = useCall((signal) => get(path, { signal }), [path, turn]);
  const start = async (asked) => {
    if (state.isBusy) return;
    setState({ isBusy: true, error: null });
    try {
      underway.follow((await begin(`${path}/check`, asked)).id);
      setPhotos([]);
      setState({ isBusy: false, error: null });
    } catch (error) {
      if (error.type === "job-conflict" && error.members.job) underway.follow(error.members.job);
      setState({ isBusy: false, error });
    }
  };
  const check = found.value?.last_check;
  return html`<div class="stack calibrate-check">
    ${!found.value && (found.error ? html`<${Fault} error=${found.error} again=${found.again} />` : html`<${Waiting} />`)}
    ${check && html`<${Last} check=${check} />`}
    <section class="card stack">
      <h2>${check ? "Check again" : "Does it hold?"}</h2>
      <p class="soft">Take photos of some things that you have and of some that you lack, on another day and as people will take them. Vicinal searches with each, and says whether what was promised holds. Many things count for more than many photos of one.</p>
      <${Photos} photos=${photos} onChange=${setPhotos} />
      <${Fault} error=${state.error} again=${null} />
      <div class="row"><${Button} kind="main" busy=${state.isBusy} disabled=${underway.isBusy || !photos.length} onClick=${() => start({ form: formOf(photos) })}>Check with these photos<//>
        <${Button} kind="quiet" disabled=${state.isBusy || underway.isBusy} onClick=${() => start({ body: { answers: true } })}>Check with answers to searches<//></div>
      <p class="soft small">Answers are given in <a href=${href("review", gallery)}>Review</a>.</p>
    </section>
  </div>`;
}
