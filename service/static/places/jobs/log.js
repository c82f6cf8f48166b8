// What a job did, line by line.
import { get, useCall } from "../../lib/api.js";
import { html, useEffect, useState } from "../../lib/html.js";
import { isFinal } from "../../lib/jobs.js";
import { short } from "../../lib/text.js";
import { JOBS } from "../../lib/words.js";
import { Fault, Waiting } from "../../parts/notice.js";

const MARKS = { info: "", warning: "!", error: "✕" };
const ENDS = { succeeded: "Done", failed: "Failed", cancelled: "Cancelled", interrupted: "Stopped, to be gone on with", overtaken: "Left to another try" };

const inWords = ({ level, text }) => {
  if (level !== "info") return text;
  const [, attempt] = /^attempt (\d+) begins$/.exec(text) ?? [];
  if (attempt) return attempt === "1" ? "Begun" : `Begun again, try ${attempt}`;
  return ENDS[text] ?? JOBS.stages[text] ?? text;
};
const clock = (at) => new Date(at).toLocaleTimeString("en-GB");

function Lines({ job }) {
  // A new stage has a line; the end of it has one.
  const found = useCall((signal) => get(`v1/jobs/${encodeURIComponent(job.id)}/log`, { signal }), [job.id, job.progress.stage, isFinal(job)]);
  const [last, keep] = useState(null);
  useEffect(() => { if (found.value) keep(found.value.lines); }, [found.value]);
  const lines = found.value?.lines ?? last;
  if (!lines) return found.error ? html`<${Fault} error=${found.error} again=${found.again} />` : html`<${Waiting} />`;
  if (!lines.length) return html`<p class="soft">Nothing is written yet.</p>`;
  return html`<ol class="jobs-log">${lines.map((one, place) => html`<li key=${place} class=${one.level === "error" ? "no" : one.level === "warning" ? "unsure" : ""}>
    <time class="soft" datetime=${one.at}>${clock(one.at)}</time><span dir="auto">${MARKS[one.level] && html`<span aria-hidden="true">${MARKS[one.level]} </span>`}${short(inWords(one), 1000)}</span></li>`)}</ol>`;
}

export function Log({ job }) {
  const [isOpen, open] = useState(false);
  return html`<details class="card" onToggle=${(event) => open(event.currentTarget.open)}><summary>Log</summary>
    ${isOpen && html`<${Lines} job=${job} />`}</details>`;
}
