// Jobs: begin one, and follow it live.
import { get, post } from "./api.js";
import { follow } from "./events.js";
import { useEffect, useState } from "./html.js";
import { number } from "./text.js";
import { JOBS } from "./words.js";

export const isFinal = (job) => JOBS.states[job.state]?.isFinal ?? false;

// The job that begins; a problem "job-conflict" has the id of the one that is under way as `members.job`.
export const begin = (path, { body, form } = {}) => post(path, { body, form });

// The job as it is at every moment, until it ends; `error` says why it cannot be followed.
export function useJob(id) {
  const [shown, show] = useState({ id: null, job: null, error: null });
  useEffect(() => {
    if (!id) return undefined;
    const stop = new AbortController();
    const tell = (job) => { if (!stop.signal.aborted) show({ id, job, error: null }); };
    const fail = (error) => { if (!stop.signal.aborted) show((old) => ({ id, job: old.id === id ? old.job : null, error })); };
    const path = `v1/jobs/${encodeURIComponent(id)}`;
    get(path, { signal: stop.signal }).then((job) => {
      tell(job);
      return isFinal(job) ? null : follow(`${path}/events`, { signal: stop.signal, onEvent: (_name, data) => tell(data) });
    }).catch(fail);
    return () => stop.abort();
  }, [id]);
  return shown.id === id ? { job: shown.job, error: shown.error } : { job: null, error: null };
}

// "Reading photos: 120 of 400"
export function stageInWords(job) {
  const { stage, stage_done: done, stage_total: total } = job.progress;
  if (job.state === "queued") return JOBS.states.queued.text;
  if (isFinal(job)) return JOBS.states[job.state].text;
  if (job.cancel_requested) return "Stopping after what is under way";
  if (!stage) return "Begins";
  const named = JOBS.stages[stage] ?? `${stage[0].toUpperCase()}${stage.slice(1)}`;
  return total > 0 ? `${named}: ${number(done)} of ${number(total)}` : named;
}
