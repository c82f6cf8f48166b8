// One job: how far it is, what it made or why it failed, and the files that it could not use.
import { del, get, inWords, post, useCall } from "../../lib/api.js";
import { html, useState } from "../../lib/html.js";
import { isFinal, stageOf, useJob } from "../../lib/jobs.js";
import { href } from "../../lib/router.js";
import { lasting, number, sentence, short, valueText, when } from "../../lib/text.js";
import { JOBS } from "../../lib/words.js";
import { ask } from "../../parts/dialog.js";
import { Button } from "../../parts/field.js";
import { Fault, tell, Waiting } from "../../parts/notice.js";
import { Progress } from "../../parts/progress.js";
import { Failures } from "./failures.js";
import { Log } from "./log.js";

const RESUMABLE = "reindex";
// Where what a job made is looked at.
const MADE = {
  calibrate: { text: "Show the calibration", to: ({ gallery, result }) => href("calibrate", gallery, { id: result.calibration }) },
  check: { text: "Show the calibration", to: ({ gallery }) => href("calibrate", gallery) },
  duplicates: { text: "Show the doubles", to: ({ gallery, result }) => href("doubles", gallery, { record: result.duplicates }) },
  reindex: { text: "Show the photos", to: ({ gallery }) => href("gallery", gallery) },
};
// What is not given, and what is more than a value, says nothing to who looks.
const isTold = (value) => value !== null && value !== undefined && value !== "" && value !== false && typeof value !== "object";

// "n_failed" -> "Failed"
const named = (field) => {
  const words = field.replace(/^(?:n|is)_/, "").replaceAll("_", " ");
  return `${words[0]?.toUpperCase() ?? ""}${words.slice(1)}`;
};

const Facts = ({ facts }) => html`<dl class="jobs-facts">${facts.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd><bdi>${value}</bdi></dd></div>`)}</dl>`;

function Values({ title, values }) {
  const shown = Object.entries(values ?? {}).filter(([, value]) => isTold(value));
  if (!shown.length) return null;
  return html`<details class="card"><summary>${title}</summary>
    <${Facts} facts=${shown.map(([field, value]) => [short(named(field), 60), short(typeof value === "number" && Number.isInteger(value) ? number(value) : valueText(value), 400)])} />
  </details>`;
}

function facts(job) {
  const { total, done, failed, skipped } = job.progress;
  const from = job.started_at && new Date(job.started_at), to = job.finished_at && new Date(job.finished_at);
  return [
    ["Asked for", when(job.created_at)],
    from && ["Begun", when(job.started_at)],
    to && ["Ended", when(job.finished_at)],
    from && to && ["Took", lasting((to - from) / 1000)],
    total > 0 && ["Photos", `${number(done)} of ${number(total)}`],
    skipped > 0 && ["Known from before", number(skipped)],
    failed > 0 && ["Could not be used", number(failed)],
    job.attempt > 1 && ["Tries", number(job.attempt)],
  ].filter(Boolean);
}

function Actions({ job, onChange }) {
  const [isBusy, setBusy] = useState(false);
  const does = async (work) => {
    setBusy(true);
    try {
      onChange(await work());
    } catch (error) {
      tell(inWords(error), { kind: "wrong" });
    } finally {
      setBusy(false);
    }
  };
  const path = `v1/jobs/${encodeURIComponent(job.id)}`;
  const cancel = async () => {
    const text = `What it has done so far is not used.${job.kind === RESUMABLE ? " You can go on with it later." : ""}`;
    if (await ask({ title: "Cancel this job?", text, yes: "Cancel the job", no: "Let it run", isDanger: true })) await does(() => del(path));
  };
  const made = job.state === "succeeded" && job.result && MADE[job.kind];
  return html`<div class="row">
    ${!isFinal(job) && html`<${Button} busy=${isBusy} disabled=${job.cancel_requested} onClick=${cancel}>${job.cancel_requested ? "Stopping…" : "Cancel this job"}<//>`}
    ${job.state === "cancelled" && job.kind === RESUMABLE && html`<${Button} kind="main" busy=${isBusy} onClick=${() => does(() => post(`${path}/resume`))}>Go on with it<//>`}
    ${made && html`<a class="button main" href=${made.to(job)}>${made.text}</a>`}
  </div>`;
}

export const State = ({ job }) => {
  const { text, kind } = JOBS.states[job.state] ?? { text: job.state, kind: "plain" };
  return html`<span class=${`tag ${kind}`}>${text}</span>`;
};

function Shown({ job, onChange }) {
  const { progress, problem } = job;
  return html`<div class="stack jobs-one">
    <section class="card stack">
      <div class="row"><${State} job=${job} /><a href=${href("gallery", job.gallery)}><bdi>${short(job.gallery, 100)}</bdi></a></div>
      ${!isFinal(job) && html`<${Progress} done=${progress.stage_done} total=${progress.stage_total} text=${stageOf(job)} secondsLeft=${progress.seconds_left} />`}
      ${problem && html`<${Fault} error=${`It failed. ${sentence(short(problem, 1000))}`} />`}
      ${job.result?.sentence && html`<p dir="auto">${short(job.result.sentence, 1000)}</p>`}
      <${Facts} facts=${facts(job)} />
      <${Actions} job=${job} onChange=${onChange} />
    </section>
    ${progress.failed > 0 && html`<${Failures} job=${job} />`}
    <${Log} job=${job} />
    <${Values} title="What it made" values=${job.state === "succeeded" ? job.result : null} />
    <${Values} title="What was asked for" values=${job.request} />
  </div>`;
}

function Following({ id, onChange }) {
  const { job, error } = useJob(id);
  if (!job) return error ? html`<${Fault} error=${error} />` : html`<${Waiting} />`;
  return html`<${Fault} error=${error} /><${Shown} job=${job} onChange=${onChange} />`;
}

export function One({ id }) {
  const first = useCall((signal) => get(`v1/jobs/${encodeURIComponent(id)}`, { signal }), [id], { refreshes: false });
  // One that goes on is followed anew.
  const [turn, setTurn] = useState(0);
  return html`<div class="head"><h1>${first.value ? JOBS.kinds[first.value.kind] ?? first.value.kind : "Job"}</h1>
    <a class="button quiet" href=${href("jobs")}>All jobs</a></div>
    <${Following} key=${turn} id=${id} onChange=${() => setTurn((n) => n + 1)} />`;
}
