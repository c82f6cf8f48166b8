// Photos on their way into a gallery: progress file by file, then what was taken, what was not, and why.
import { inWords } from "../lib/api.js";
import { numbered } from "../lib/files.js";
import { refreshGalleries } from "../lib/galleries.js";
import { html, useEffect } from "../lib/html.js";
import { href } from "../lib/router.js";
import { store, useStore } from "../lib/store.js";
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

// By gallery: they go on while somebody looks elsewhere, and end with the page alone.
export const uploads = store(new Map());
const change = (gallery, part) => uploads.set((all) => new Map(all).set(gallery, { ...all.get(gallery), ...part }));
const warn = (event) => { if ([...uploads.get().values()].some((one) => one.isRunning)) event.preventDefault(); };

export const endAdding = (gallery) => uploads.set((all) => new Map([...all].filter(([name]) => name !== gallery)));

async function run(gallery, those, onConflict = "error") {
  const stop = new AbortController();
  const { told } = uploads.get().get(gallery);
  const progress = { done: 0, failed: 0, total: those.length, name: null, pause: null };
  change(gallery, { stop, progress, began: Date.now(), isRunning: true, told: { ...told, taken: [], left: [], stopped: null } });
  addEventListener("beforeunload", warn);
  const round = await upload({ gallery, files: those, onConflict, signal: stop.signal, onProgress: (next) => change(gallery, { progress: next }) });
  const all = together(told, round);
  change(gallery, { isRunning: false, told: all });
  refreshGalleries();
  if (uploads.get().get(gallery).isShown) return;
  const isWhole = !all.stopped && !all.failures.length && !all.taken.length;
  tell(`${gallery}: ${summary(all)}${isWhole ? "" : " Not all are in: look at Add."}`, { kind: isWhole ? "done" : "wrong" });
  if (isWhole) endAdding(gallery);
}

export function beginAdding(gallery, files, leftOut = []) {
  change(gallery, { leftOut, told: NOTHING, isShown: true });
  run(gallery, files);
}

// What goes on elsewhere, and the way there.
export const Underway = () => [...useStore(uploads)].filter(([, one]) => one.isRunning && !one.isShown).map(([gallery, { progress }]) => html`
  <p class="underway" key=${gallery}><a href=${href("add", gallery)}>Adding photos to <bdi>${short(gallery, 40)}</bdi></a>: ${number(progress.done + progress.failed)} of ${number(progress.total)}</p>`);

function Taken({ taken, again, pass }) {
  const n = taken.length;
  const both = () => again(taken.map((one) => ({ ...one, id: numbered(one.id) })));
  return html`<section class="card stack" aria-label="Names that are taken"><h3>${photos(n)} ${n === 1 ? "has the name of another one that is" : "have the names of others that are"} there</h3>
    <p class="soft"><bdi>${short(taken[0].id, 100)}</bdi>${n > 1 ? ` and ${number(n - 1)} more` : ""}</p>
    <div class="row"><${Button} onClick=${() => again(taken, "replace")}>Replace what is there<//><${Button} onClick=${both}>Keep both<//>
      <${Button} kind="quiet" onClick=${pass}>Leave ${n === 1 ? "it" : "them"} out<//></div></section>`;
}

// What `beginAdding` began, if anything. `children` are ways to go on, shown at the end.
export function Adding({ gallery, onDone = () => {}, children }) {
  const { told, progress, began, isRunning, leftOut, stop } = useStore(uploads, (all) => all.get(gallery));
  useEffect(() => {
    change(gallery, { isShown: true });
    return () => {
      const last = uploads.get().get(gallery);
      // What was stopped, by a key that ended too, can be gone on with.
      if (last?.isRunning || last?.told.stopped) change(gallery, { isShown: false });
      else endAdding(gallery);
    };
  }, []);
  useEffect(() => { if (!isRunning) onDone(told); }, [isRunning]);
  const again = (those, onConflict) => run(gallery, those, onConflict);
  const ms = Date.now() - began, n = progress.done + progress.failed;
  const secondsLeft = ms > 2000 && n > 8 ? (ms / 1000 / n) * (progress.total - n) : null;
  if (isRunning) {
    const text = progress.pause ? `Waiting: ${progress.pause}` : `Adding ${short(progress.name ?? "photos", 60)}`;
    return html`<section class="adding card stack" aria-label="Adding photos">
      <h2>Adding ${photos(progress.total)}</h2>
      <${Progress} done=${progress.done + progress.failed} total=${progress.total} text=${text} secondsLeft=${secondsLeft} />
      <div class="row end"><${Button} onClick=${() => stop.abort()}>Stop<//></div></section>`;
  }
  const isStopped = told.stopped !== null;
  const isOwn = told.stopped?.name === "AbortError";
  return html`<section class="adding stack" aria-label="What was added">
    <div class="card stack"><h2 role="status">${summary(told)}</h2>
      ${isStopped && !isOwn && html`<${Fault} error=${inWords(told.stopped)} />`}
      ${isStopped && html`<div class="row"><p>${photos(told.left.length)} ${were(told.left.length)} not sent.</p><${Button} kind="main" onClick=${() => again(told.left)}>Go on<//></div>`}
      ${children && html`<div class="row">${children}</div>`}</div>
    ${told.taken.length > 0 && html`<${Taken} taken=${told.taken} again=${again} pass=${() => change(gallery, { told: { ...told, taken: [] } })} />`}
    <${LeftOut} files=${[...told.failures, ...leftOut]} />
  </section>`;
}
