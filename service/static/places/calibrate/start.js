// Start a calibration: what is asked for, and what it is measured with.
import { admin, at, get, inWords, post } from "../../lib/api.js";
import { html, useEffect, useRef, useState } from "../../lib/html.js";
import { begin } from "../../lib/jobs.js";
import { href, setParams } from "../../lib/router.js";
import { number } from "../../lib/text.js";
import { Button, Choice, Tick } from "../../parts/field.js";
import { Fault } from "../../parts/notice.js";
import { Progress } from "../../parts/progress.js";
import { formOf, Photos } from "./photos.js";
import { problemOf, Targets, targetText, usual } from "./targets.js";

const SOURCES = [["gallery", "The photos of this gallery"], ["photos", "New photos"], ["answers", "Answers to searches"]];
const HINTS = {
  gallery: "Each photo is searched for as if it were not there, and once more as if nothing like it were. No work for you.",
  photos: "Photos taken on another day, as people will take them: the best measure. A folder for each thing, also for some that you lack.",
  answers: "What was said in Review about searches that were really made.",
};
const PAUSE = 700;
const wait = (ms, signal) => new Promise((done) => { setTimeout(done, ms); signal.addEventListener("abort", done); });

// Changes since the last version are not measured: they are made one first.
export async function settled(gallery, signal, onProgress) {
  let now = await get(at(gallery, "/compaction"), { signal });
  if (!now.n_changes && now.state !== "running") return;
  if (now.state !== "running") now = await post(at(gallery, "/compaction"), { signal });
  while (!signal.aborted && now.state === "running") {
    onProgress(now);
    await wait(PAUSE, signal);
    now = await get(at(gallery, "/compaction"), { signal });
  }
  if (now.problem) throw new Error(`the latest changes could not be made searchable for good: ${now.problem}`);
}

export function Start({ gallery, underway, onClose }) {
  const [target, setTarget] = useState(usual());
  const [source, setSource] = useState("gallery");
  const [photos, setPhotos] = useState([]);
  const [isSure, setSure] = useState(false);
  const [waits, setWaits] = useState(false);
  const [state, setState] = useState({ isBusy: false, step: null, error: null });
  const stop = useRef(null);
  useEffect(() => () => stop.current?.abort(), []);
  const canBeSure = target.name !== "precision";
  const isReady = !problemOf(target.name, target.text) && (source !== "photos" || photos.length > 0);
  const start = async (event) => {
    event.preventDefault();
    if (state.isBusy || !isReady) return;
    const { signal } = stop.current = new AbortController();
    setState({ isBusy: true, step: null, error: null });
    try {
      await settled(gallery, signal, (step) => setState((old) => ({ ...old, step })));
      const options = { target: targetText(target), ...(canBeSure && isSure ? { sure: "95%" } : {}), ...(waits ? { activate: false } : {}) };
      const asked = source === "photos" ? { form: formOf(photos, options) } : { body: { ...options, ...(source === "answers" ? { answers: true } : {}) } };
      underway.follow((await begin(admin(gallery, "/calibrations"), asked)).id);
      setState({ isBusy: false, step: null, error: null });
      setParams({ view: null, id: null });
    } catch (error) {
      if (signal.aborted) return;
      if (error.type === "job-conflict" && error.members.job) underway.follow(error.members.job);
      setState({ isBusy: false, step: null, error });
    }
  };
  const lacksLabels = /label/.test(state.error?.detail ?? "") && state.error?.status === 422;
  return html`<form class="card stack calibrate-start" onSubmit=${start}>
    <h2>${onClose ? "Calibrate again" : "Not measured yet"}</h2>
    ${!onClose && html`<p class="soft">Nobody knows yet how often a match in this gallery is right. Vicinal finds out by trying, and chooses the score that holds what you ask for.</p>`}
    <${Targets} value=${target} onChange=${setTarget} />
    <${Choice} label="Measured with" value=${source} options=${SOURCES} onChange=${setSource} />
    <p class="soft small">${HINTS[source]}</p>
    ${source === "photos" && html`<${Photos} photos=${photos} onChange=${setPhotos} />`}
    ${canBeSure && html`<${Tick} label="Hold it surely, also for things that nobody has measured (needs more of them)" checked=${isSure} onChange=${setSure} />`}
    <${Tick} label="Let me look before searches use it" checked=${waits} onChange=${setWaits} />
    ${state.step && html`<${Progress} done=${state.step.done} total=${state.step.total} text="First the latest changes become part of what is measured" />`}
    <${Fault} error=${state.error && inWords(state.error)} />
    ${lacksLabels && html`<p>Photos need labels to be measured by. <a href=${href("gallery", gallery)}>Give photos labels</a>, or <a href=${href("pairs", gallery)}>answer questions about pairs of photos</a>.</p>`}
    <div class="row end">
      ${onClose && html`<${Button} onClick=${onClose}>Cancel<//>`}
      <${Button} kind="main" type="submit" busy=${state.isBusy || underway.isBusy} disabled=${!isReady}>Calibrate${source === "photos" && photos.length ? ` with ${number(photos.length)} photos` : ""}<//>
    </div>
  </form>`;
}
