// Start a job: what it does is said before it is begun.
import { admin, at, get, Problem } from "../../lib/api.js";
import { galleries } from "../../lib/galleries.js";
import { html, useState } from "../../lib/html.js";
import { begin } from "../../lib/jobs.js";
import { go, href } from "../../lib/router.js";
import { useStore } from "../../lib/store.js";
import { short } from "../../lib/text.js";
import { Dialog } from "../../parts/dialog.js";
import { Button, Choice, Field, Tick } from "../../parts/field.js";
import { Fault } from "../../parts/notice.js";

// What is checked is what decides searches now.
async function checkOf(gallery) {
  const { threshold } = await get(at(gallery));
  if (!threshold?.calibration) throw new Problem(0, "not-calibrated", "nothing was promised for this gallery yet: calibrate it first");
  return `/calibrations/${encodeURIComponent(threshold.calibration)}/check`;
}

// What each needs to be told, and what it is for; `path` where its address is not its name.
const KINDS = {
  reindex: {
    text: "Build again",
    about: "Makes a new version of the gallery. The old one is searched until it is there.",
    body: ({ source, waits }) => ({ source: source.trim() || null, activate: waits ? "manual" : "automatic" }),
  },
  duplicates: {
    text: "Look for doubles",
    about: "Finds photos that are there twice, also smaller or saved again. Nothing is removed.",
    body: () => ({}),
  },
  check: {
    text: "Check what was promised",
    about: "Tries with the answers of Review whether what was promised still holds. Nothing is changed by it.",
    body: () => ({ answers: true }),
    path: checkOf,
  },
};

const Reindex = ({ asked: { source, waits }, change }) => html`
  <${Field} label="Take over photos from" hint="A folder that the server may read. Leave it empty to build from the photos that are there.">${(control) => html`
    <input type="text" dir="auto" autocomplete="off" spellcheck=${false} value=${source} onInput=${(event) => change({ source: event.target.value })} ...${control} />`}<//>
  <${Tick} label="Compare it first, and let me decide" checked=${waits} onChange=${(value) => change({ waits: value })} />`;

export function Begin({ gallery, onClose }) {
  const list = useStore(galleries).list ?? [];
  const [asked, set] = useState({ gallery: gallery ?? list[0]?.name, kind: "reindex", source: "", waits: false });
  const [error, setError] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const change = (part) => { setError(null); set((old) => ({ ...old, ...part })); };
  const { kind } = asked;
  const { about, body, path = () => `/${kind}` } = KINDS[kind];
  const start = async (event) => {
    event.preventDefault();
    if (isBusy) return;
    setBusy(true);
    setError(null);
    try {
      const job = await begin(admin(asked.gallery, await path(asked.gallery)), { body: body(asked) });
      onClose();
      go("jobs", null, { id: job.id });
    } catch (problem) {
      setError(problem);
      setBusy(false);
    }
  };
  const other = error?.type === "job-conflict" && error.members.job;
  return html`<${Dialog} title="Start a job" onClose=${onClose}><form onSubmit=${start}>
    <${Choice} label="Gallery" value=${asked.gallery} options=${list.map(({ name }) => [name, short(name, 60)])} onChange=${(value) => change({ gallery: value })} />
    <${Choice} label="Job" value=${kind} options=${Object.entries(KINDS).map(([one, { text }]) => [one, text])} onChange=${(value) => change({ kind: value })} />
    <p class="soft">${about}</p>
    ${kind === "reindex" && html`<${Reindex} asked=${asked} change=${change} />`}
    ${kind === "check" && html`<p><a href=${href("calibrate", asked.gallery, { view: "check" })}>Check with new photos</a></p>`}
    <${Fault} error=${error} />
    <div class="row end">${other && html`<a class="button quiet" href=${href("jobs", null, { id: other })} onClick=${onClose}>Show that job</a>`}
      <${Button} onClick=${onClose}>Cancel<//>
      <${Button} type="submit" kind="main" busy=${isBusy}>Start<//></div>
  </form><//>`;
}
