// Photos on their way into a gallery: progress file by file, then what was taken, what was not, and why.
import { inWords } from "../lib/api.js";
import { numbered } from "../lib/files.js";
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { number, short } from "../lib/text.js";
import { upload } from "../lib/uploads.js";
import { Button } from "./field.js";
import { LeftOut } from "./left_out.js";
import { Fault, tell } from "./notice.js";
import { Progress } from "./progress.js";

const NOTHING = { added: 0, replaced: 0, unchanged: 0, failures: [], taken: [], left: [], stopped: null };
const photos = (n) => `${number(n)} ${n === 1 ? "photo" : "photos"}`;
const were = (n) => (n === 1 ? "was" : "were");

function summary({ added, replaced, unchanged }) {
  const parts = [];
  if (added) parts.push(`${photos(added)} ${were(added)} added.`);
  if (replaced) parts.push(`${photos(replaced)} ${were(replaced)} replaced.`);
  if (unchanged) parts.push(`${photos(unchanged)} ${were(unchanged)} there already.`);
  return parts.join(" ") || "No photo was added.";
}

// What a round brought, together with those before it.
const together = (old, round) => ({
  added: old.added + round.added, replaced: old.replaced + round.replaced, unchanged: old.unchanged + round.unchanged,
  failures: [...old.failures, ...round.failures.filter((one) => one.type !== "item-exists")],
  taken: round.failures.filter((one) => one.type === "item-exists"),
  left: round.left, stopped: round.stopped,
});

function useRounds(gallery, files, onDone) {
  const [told, setTold] = useState(NOTHING);
  const [progress, setProgress] = useState({ done: 0, failed: 0, total: files.length, name: null, pause: null });
  const [isRunning, setRunning] = useState(false);
  const stop = useRef(null), began = useRef(0);
  const run = async (those, onConflict = "error") => {
    stop.current = new AbortController();
    const { signal } = stop.current;
    began.current = Date.now();
    setTold((old) => ({ ...old, taken: [], left: [], stopped: null }));
    setRunning(true);
    const round = await upload({ gallery, files: those, onConflict, signal, onProgress: (next) => { if (stop.current?.signal === signal) setProgress(next); } });
    // Who went elsewhere is told by a note.
    if (stop.current === null) return;
    setTold((old) => together(old, round));
    setRunning(false);
    onDone(round);
  };
  useEffect(() => {
    run(files);
    return () => {
      const last = stop.current;
      stop.current = null;
      last?.abort();
    };
  }, []);
  const ms = Date.now() - began.current, n = progress.done + progress.failed;
  const secondsLeft = ms > 2000 && n > 8 ? (ms / 1000 / n) * (progress.total - n) : null;
  return { told, progress, isRunning, run, halt: () => stop.current?.abort(), secondsLeft, pass: () => setTold((old) => ({ ...old, taken: [] })) };
}

function useWarning(isRunning) {
  const last = useRef(isRunning);
  last.current = isRunning;
  useEffect(() => {
    const warn = (event) => { if (last.current) event.preventDefault(); };
    addEventListener("beforeunload", warn);
    return () => {
      removeEventListener("beforeunload", warn);
      if (last.current) tell("Adding stopped, as you left it. Choose the same photos again to go on: none comes twice.", { kind: "wrong" });
    };
  }, []);
}

function Taken({ taken, run, pass }) {
  const n = taken.length;
  const both = () => run(taken.map((one) => ({ ...one, id: numbered(one.id) })));
  return html`<section class="card stack" aria-label="Names that are taken"><h3>${photos(n)} ${n === 1 ? "has the name of another one that is" : "have the names of others that are"} there</h3>
    <p class="soft"><bdi>${short(taken[0].id, 100)}</bdi>${n > 1 ? ` and ${number(n - 1)} more` : ""}</p>
    <div class="row"><${Button} onClick=${() => run(taken, "replace")}>Replace what is there<//><${Button} onClick=${both}>Keep both<//>
      <${Button} kind="quiet" onClick=${pass}>Leave ${n === 1 ? "it" : "them"} out<//></div></section>`;
}

// Begins at once. `children` are ways to go on, shown at the end.
export function Adding({ gallery, files, leftOut = [], onDone = () => {}, children }) {
  const { told, progress, isRunning, run, halt, secondsLeft, pass } = useRounds(gallery, files, onDone);
  useWarning(isRunning);
  if (isRunning) {
    const text = progress.pause ? `Waiting: ${progress.pause}` : `Adding ${short(progress.name ?? "photos", 60)}`;
    return html`<section class="adding card stack" aria-label="Adding photos">
      <h2>Adding ${photos(progress.total)}</h2>
      <${Progress} done=${progress.done + progress.failed} total=${progress.total} text=${text} secondsLeft=${secondsLeft} />
      <div class="row end"><${Button} onClick=${halt}>Stop<//></div></section>`;
  }
  const isStopped = told.stopped !== null;
  const isOwn = told.stopped?.name === "AbortError";
  return html`<section class="adding stack" aria-label="What was added">
    <div class="card stack"><h2 role="status">${summary(told)}</h2>
      ${isStopped && !isOwn && html`<${Fault} error=${inWords(told.stopped)} />`}
      ${isStopped && html`<div class="row"><p>${photos(told.left.length)} ${were(told.left.length)} not sent.</p><${Button} kind="main" onClick=${() => run(told.left)}>Go on<//></div>`}
      ${children && html`<div class="row">${children}</div>`}</div>
    ${told.taken.length > 0 && html`<${Taken} taken=${told.taken} run=${run} pass=${pass} />`}
    <${LeftOut} files=${[...told.failures, ...leftOut]} />
  </section>`;
}
