// Jobs: what runs, and what ran; one of them at its own address.
import { get, useCall } from "../../lib/api.js";
import { galleries } from "../../lib/galleries.js";
import { html, useEffect, useState } from "../../lib/html.js";
import { isFinal, stageOf, useJob } from "../../lib/jobs.js";
import { href, setParams } from "../../lib/router.js";
import { useStore } from "../../lib/store.js";
import { lasting, short, when } from "../../lib/text.js";
import { JOBS } from "../../lib/words.js";
import { Button, Choice } from "../../parts/field.js";
import { Empty, Fault, Waiting } from "../../parts/notice.js";
import { Progress } from "../../parts/progress.js";
import { Begin } from "./begin.js";
import { One, State } from "./job.js";

export const title = "Jobs";
export const needs = "admin";

const EVERY = 5_000;
const MOST = 200;
// Each is followed by a stream of its own, of which a browser opens few to one server.
const MOST_FOLLOWED = 4;
const STATES = Object.entries(JOBS.states).map(([state, { text }]) => [state, text]);

const kindOf = ({ kind }) => JOBS.kinds[kind] ?? kind;
const seconds = ({ started_at: from, finished_at: to }) => (from && to ? (new Date(to) - new Date(from)) / 1000 : null);

const Title = ({ job }) => html`<a class="jobs-title" href=${href("jobs", null, { id: job.id })}>${kindOf(job)} <bdi class="soft">${short(job.gallery, 60)}</bdi></a>`;

const Bar = ({ job }) => html`<${Progress} done=${job.progress.stage_done} total=${job.progress.stage_total} text=${stageOf(job)}
  secondsLeft=${job.progress.seconds_left} />`;

function Followed({ listed, onEnd }) {
  const { job } = useJob(listed.id);
  // Of the list and of the stream, what is newer.
  const now = job && job.revision >= listed.revision ? job : listed;
  useEffect(() => { if (isFinal(now)) onEnd(); }, [isFinal(now)]);
  return html`<${Bar} job=${now} />`;
}

function UnderWay({ jobs, onEnd }) {
  return html`<section class="stack"><h2>Under way</h2><ul class="jobs-under-way">
    ${jobs.map((job, place) => html`<li key=${job.id} class="card stack"><${Title} job=${job} />
      ${place < MOST_FOLLOWED ? html`<${Followed} listed=${job} onEnd=${onEnd} />` : html`<${Bar} job=${job} />`}</li>`)}
  </ul></section>`;
}

function Past({ jobs }) {
  return html`<section class="stack"><h2>Over</h2><ul class="jobs-past card">
    ${jobs.map((job) => html`<li key=${job.id}>
      <div class="jobs-line"><${Title} job=${job} /><${State} job=${job} /></div>
      <p class="soft small">${when(job.finished_at)}${seconds(job) !== null && html`, took ${lasting(seconds(job))}`}</p>
      ${job.problem && html`<p class="small no" dir="auto">${short(job.problem, 200)}</p>`}</li>`)}
  </ul></section>`;
}

function useEvery(ms, does) {
  useEffect(() => {
    const timer = setInterval(() => { if (!document.hidden) does(); }, ms);
    return () => clearInterval(timer);
  }, [ms, does]);
}

function List({ gallery = "", state = "" }) {
  const { list } = useStore(galleries);
  const [isBeginning, begin] = useState(false);
  const found = useCall((signal) => get("v1/jobs", { query: { gallery: gallery || null, state: state || null, size: MOST }, signal }), [gallery, state]);
  useEvery(EVERY, found.again);
  const jobs = found.value?.jobs ?? [];
  const now = jobs.filter((job) => !isFinal(job)), past = jobs.filter(isFinal);
  const names = (list ?? []).map(({ name }) => [name, short(name, 40)]);
  if (gallery && !names.some(([name]) => name === gallery)) names.push([gallery, short(gallery, 40)]);
  return html`<div class="head"><h1>${title}</h1><${Button} kind="main" disabled=${!list?.length} onClick=${() => begin(true)}>Start a job<//></div>
    <div class="row jobs-shown">
      <${Choice} label="Gallery" value=${gallery} options=${[["", "All"], ...names]} onChange=${(value) => setParams({ gallery: value })} />
      <${Choice} label="State" value=${state} options=${[["", "All"], ...STATES]} onChange=${(value) => setParams({ state: value })} />
    </div>
    <div class="stack jobs-list">
      <${Fault} error=${found.error} again=${found.again} />
      ${!found.value && !found.error && html`<${Waiting} />`}
      ${now.length > 0 && html`<${UnderWay} jobs=${now} onEnd=${found.again} />`}
      ${past.length > 0 && html`<${Past} jobs=${past} />`}
      ${found.value && !jobs.length && html`<${Empty} title=${gallery || state ? "No such job" : "No job yet"}
        text=${gallery || state ? "Jobs of other galleries or in other states are not shown." : "What takes long runs as a job: building a gallery again, looking for doubles."} />`}
      ${jobs.length === MOST && html`<p class="soft">The newest ${MOST} are shown.</p>`}
    </div>
    ${isBeginning && html`<${Begin} gallery=${gallery || null} onClose=${() => begin(false)} />`}`;
}

export function Place({ params: { id, ...shown } }) {
  return id ? html`<${One} key=${id} id=${id} />` : html`<${List} ...${shown} />`;
}
