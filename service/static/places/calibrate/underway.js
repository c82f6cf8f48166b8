// The job that works on this gallery now, from its beginning to its end.
import { del, get, inWords, useCall } from "../../lib/api.js";
import { html, useEffect, useRef, useState } from "../../lib/html.js";
import { isFinal, stageOf, useJob } from "../../lib/jobs.js";
import { href } from "../../lib/router.js";
import { sentence } from "../../lib/text.js";
import { JOBS } from "../../lib/words.js";
import { Button } from "../../parts/field.js";
import { Fault, tell } from "../../parts/notice.js";
import { Progress } from "../../parts/progress.js";

// {job, follow(id), last}: one that was under way when the page came is followed too.
export function useUnderway(gallery, onEnd) {
  const [id, follow] = useState(null);
  const [last, setLast] = useState(null);
  const ended = useRef(onEnd);
  ended.current = onEnd;
  const there = useCall((signal) => get("v1/jobs", { query: { gallery, size: 20 }, signal }), [gallery]);
  const running = there.value?.jobs.find((one) => !isFinal(one))?.id ?? null;
  useEffect(() => { if (running) follow((now) => now ?? running); }, [running]);
  const { job, error } = useJob(id);
  useEffect(() => {
    if (!job || !isFinal(job)) return;
    setLast(job);
    follow(null);
    there.again();
    if (job.state === "succeeded" && job.kind === "calibrate") {
      tell(job.result?.is_active ? "Calibrated: searches are decided by it from now on." : "Calibrated: look at it, and put it in force where it suits you.");
    }
    ended.current(job);
  }, [job]);
  return { job, error, isBusy: id !== null, follow: (next) => { setLast(null); follow(next); }, last };
}

export function Underway({ gallery, underway }) {
  const { job, error, last, isBusy } = underway;
  const cancel = async () => {
    try {
      await del(`v1/jobs/${encodeURIComponent(job.id)}`);
    } catch (problem) {
      tell(inWords(problem), { kind: "wrong" });
    }
  };
  const of = (one) => JOBS.kinds[one.kind] ?? one.kind;
  if (isBusy) {
    return html`<section class="card calibrate-job" aria-label="Under way">
      <${Fault} error=${error} />
      ${job && html`<${Progress} done=${job.progress.stage_done} total=${job.progress.stage_total} text=${`${of(job)} · ${stageOf(job)}`} />
        <div class="row end"><a class="button quiet" href=${href("jobs", null, { id: job.id })}>Details</a>
          <${Button} onClick=${cancel} disabled=${job.cancel_requested}>Stop<//></div>`}
    </section>`;
  }
  if (!last || last.gallery !== gallery) return null;
  if (last.state === "failed") return html`<${Fault} error=${`${of(last)} failed. ${sentence(last.problem ?? "nobody knows why")}`} />`;
  if (last.state === "cancelled") return html`<p class="soft" role="status">${of(last)} was stopped. Nothing was changed.</p>`;
  const said = last.kind === "calibrate" && last.result?.objection;
  return said ? html`<section class="card calibrate-said" role="status"><p dir="auto"><strong>It is not in force yet.</strong> ${said}</p></section>` : null;
}
