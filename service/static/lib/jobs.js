// Jobs: begin one, and follow it live.
import { get, post } from "./api.js";
import { follow } from "./events.js";
import { useEffect, useState } from "./html.js";
import { rest } from "./server.js";
import { number } from "./text.js";
import { JOBS } from "./words.js";

const LONGEST = 30_000;

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
    const { signal } = stop;
    const path = `v1/jobs/${encodeURIComponent(id)}`;
    const watch = async () => {
      const job = await get(path, { signal });
      tell(job);
      if (!isFinal(job)) await follow(`${path}/events`, { signal, onEvent: (_name, data) => tell(data) });
    };
    (async () => {
      for (let isWatched = true; isWatched && !signal.aborted;) {
        isWatched = await watch().then(() => false, (error) => { fail(error); return error.type === "away"; });
        if (isWatched) await rest(LONGEST, signal);
      }
    })();
    return () => stop.abort();
  }, [id]);
  return shown.id === id ? { job: shown.job, error: shown.error } : { job: null, error: null };
}

// "Reading photos"
export function stageOf(job) {
  const { stage } = job.progress;
  if (job.state === "queued") return JOBS.states.queued.text;
  if (isFinal(job)) return JOBS.states[job.state].text;
  if (job.cancel_requested) return "Stopping after what is under way";
  if (!stage) return "Begins";
  return JOBS.stages[stage] ?? `${stage[0].toUpperCase()}${stage.slice(1)}`;
}

// "Reading photos: 120 of 400"
export function stageInWords(job) {
  const { stage_done: done, stage_total: total } = job.progress;
  const isCounted = job.state === "running" && !job.cancel_requested && total > 0;
  return isCounted ? `${stageOf(job)}: ${number(done)} of ${number(total)}` : stageOf(job);
}
