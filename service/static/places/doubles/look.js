// Looking for doubles: begins, says how far it is and how long it takes, and can be stopped.
import { admin, del, get, inWords } from "../../lib/api.js";
import { html, useEffect, useState } from "../../lib/html.js";
import { begin, isFinal, stageInWords, useJob } from "../../lib/jobs.js";
import { href } from "../../lib/router.js";
import { of100, sentence } from "../../lib/text.js";
import { Button, Tick } from "../../parts/field.js";
import { Empty, Fault, tell } from "../../parts/notice.js";
import { Progress } from "../../parts/progress.js";

// How sure a look for changed copies can be at most, where that is less than was asked for and they were left out.
export const surest = ({ options, threshold }) => (options.near && threshold?.value === null && threshold.best_precision ? Math.floor(100 * threshold.best_precision) / 100 : null);

export function Look({ gallery, latest, onFound }) {
  const isFirst = !latest, best = latest && surest(latest);
  const [id, setId] = useState(null);
  const [near, setNear] = useState(true);
  const [isBusy, setBusy] = useState(false);
  const [other, setOther] = useState(null);
  const { job, error } = useJob(id);
  // One that was begun elsewhere, or before this page was opened.
  useEffect(() => {
    const stop = new AbortController();
    get("v1/jobs", { query: { gallery, size: 20 }, signal: stop.signal }).then(({ jobs }) => {
      const running = jobs.find((one) => one.kind === "duplicates" && !isFinal(one));
      if (running) setId(running.id);
    }, () => {});
    return () => stop.abort();
  }, [gallery]);
  useEffect(() => { if (job?.state === "succeeded") { setId(null); onFound(); } }, [job?.state]);
  const start = async (options = {}) => {
    setBusy(true);
    setOther(null);
    try {
      setId((await begin(admin(gallery, "/duplicates"), { body: { near, ...options } })).id);
    } catch (problem) {
      if (problem.type === "job-conflict" && problem.members.job) setOther(problem);
      else tell(inWords(problem), { kind: "wrong" });
    }
    setBusy(false);
  };
  const cancel = async () => {
    try {
      await del(`v1/jobs/${encodeURIComponent(id)}`);
    } catch (problem) {
      tell(inWords(problem), { kind: "wrong" });
    }
  };
  if (job && !isFinal(job)) {
    const { stage_done: done, stage_total: total, seconds_left: left } = job.progress;
    return html`<section class="doubles-running card stack" aria-label="Looking for doubles">
      <h2>Looking for doubles</h2><${Progress} done=${done} total=${total} text=${stageInWords(job).split(":")[0]} secondsLeft=${left} />
      <div class="row end"><a class="button quiet" href=${href("jobs", null, { id })}>More about it</a><${Button} disabled=${job.cancel_requested} onClick=${cancel}>Stop<//></div></section>`;
  }
  const controls = html`<div class="row doubles-begin">
    <${Button} kind=${isFirst ? "main" : "plain"} busy=${isBusy || (id !== null && !job && !error)} onClick=${() => start()}>${isFirst ? "Look for doubles" : "Look again"}<//>
    <${Tick} label="Also changed copies: smaller, cropped, turned" checked=${near} onChange=${setNear} />
  </div>`;
  return html`
    ${job?.state === "failed" && html`<${Fault} error=${`The look failed. ${sentence(job.problem)}`} again=${() => start()} />`}
    ${job?.state === "cancelled" && html`<p class="soft" role="status">The look was stopped.</p>`}
    ${other && html`<div class="fault" role="alert"><span class="mark" aria-hidden="true">✕</span><p>${inWords(other)}</p><a class="button" href=${href("jobs", null, { id: other.members.job })}>See that job</a></div>`}
    <${Fault} error=${error} />
    ${isFirst ? html`<${Empty} title="Nobody has looked for doubles here yet" text="It may take a minute. Nothing is deleted by it.">${controls}<//>` : controls}
    ${best && html`<section class="card stack" role="status"><p>Smaller, cropped and turned copies are left out: among these photos, only about ${of100(best)} of 100 that would be shown really are copies.</p>
      <div class="row"><${Button} kind="main" busy=${isBusy} onClick=${() => start({ near: true, precision: best })}>Show them all the same<//></div></section>`}`;
}
