// The files that a job could not use, by page, each with its reason.
import { get, inWords } from "../../lib/api.js";
import { html, useEffect, useRef, useState } from "../../lib/html.js";
import { number, short } from "../../lib/text.js";
import { Button } from "../../parts/field.js";
import { Fault } from "../../parts/notice.js";

const SIZE = 100;
const FEW = 20;

export function Failures({ job }) {
  const { failures: first, failed } = job.progress;
  const [more, add] = useState({ failures: [], next: 0, error: null, isBusy: false });
  const stop = useRef();
  useEffect(() => () => stop.current?.abort(), []);
  const load = async () => {
    stop.current = new AbortController();
    const { signal } = stop.current;
    add((old) => ({ ...old, isBusy: true, error: null }));
    try {
      const query = { after: more.next, size: SIZE };
      const page = await get(`v1/jobs/${encodeURIComponent(job.id)}/failures`, { query, signal });
      add((old) => ({ failures: [...old.failures, ...page.failures], next: page.next, error: null, isBusy: false }));
    } catch (error) {
      if (!signal.aborted) add((old) => ({ ...old, error: inWords(error), isBusy: false }));
    }
  };
  const shown = more.failures.length > first.length ? more.failures : first;
  const isMore = more.next !== null && failed > shown.length && shown.length >= Math.min(FEW, failed);
  return html`<section class="card stack"><h2>${number(failed)} ${failed === 1 ? "file" : "files"} could not be used</h2>
    <ul class="jobs-failures">${shown.map((one, place) => html`<li key=${place}>
      <bdi>${short(one.path || one.id, 200)}</bdi><span class="soft" dir="auto">${short(one.reason, 300)}</span></li>`)}</ul>
    ${more.next === null && failed > shown.length && html`<p class="soft">The first ${number(shown.length)} are kept.</p>`}
    <${Fault} error=${more.error} />
    ${isMore && html`<div class="row"><${Button} busy=${more.isBusy} onClick=${load}>Show more<//></div>`}
  </section>`;
}
