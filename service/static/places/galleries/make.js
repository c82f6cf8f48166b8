// A new gallery: photos or a folder are dropped, it gets a name, and is searched as soon as they are in.
import { at, get, inWords, post, put } from "../../lib/api.js";
import { galleries, galleryOf, refreshGalleries } from "../../lib/galleries.js";
import { html, useEffect, useState } from "../../lib/html.js";
import { href } from "../../lib/router.js";
import { may, whyNot } from "../../lib/session.js";
import { useStore } from "../../lib/store.js";
import { number } from "../../lib/text.js";
import { Adding, beginAdding } from "../../parts/adding.js";
import { Chosen, useChosen } from "../../parts/chosen.js";
import { Drop } from "../../parts/drop.js";
import { Button, Field } from "../../parts/field.js";
import { Fault } from "../../parts/notice.js";

const MOST = 64;
const LEAST_LABELS = 2;

// "Café Größen 2" -> "cafe-grossen-2": names stand in addresses.
const nameOf = (text) => text.normalize("NFKD").replaceAll("ß", "ss").toLowerCase().replace(/\p{M}/gu, "")
  .replace(/[^a-z0-9_]+/g, "-").replace(/^[-_]+|-+$/g, "").slice(0, MOST);

const suggested = ([first]) => (first?.path.includes("/") ? nameOf(first.path.split("/")[0]) : "");

function Naming({ chosen, onMade }) {
  const [typed, type] = useState(() => suggested(chosen.good));
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState(null);
  const all = useStore(galleries);
  const name = nameOf(typed);
  const taken = name && (galleryOf(name, all) || all.problems[name]);
  const wrong = taken ? `There is a gallery called ${name}. Choose another name, or add photos to that one.` : null;
  const make = async (event) => {
    event.preventDefault();
    if (!name || taken || isBusy || !chosen.good.length) return;
    setBusy(true);
    setError(null);
    try {
      await put(`v1/galleries/${name}`);
      onMade(name);
    } catch (problem) {
      setError(problem);
      setBusy(false);
    }
  };
  const hint = name && name !== typed ? `It becomes ${name}: small letters, digits and dashes, as it stands in addresses.` : "Such as shoes, or shop-2.";
  return html`<form class="stack galleries-naming" onSubmit=${make}>
    <${Field} label="Name of the gallery" hint=${hint} error=${wrong}>${(control) => html`<input type="text" autocomplete="off" autocapitalize="off" spellcheck=${false} maxlength="200"
      value=${typed} onInput=${(event) => type(event.target.value)} ...${control} />`}<//>
    <${Fault} error=${error} />
    <div class="row end"><${Button} type="submit" kind="main" busy=${isBusy} disabled=${!name || Boolean(taken) || !chosen.good.length}>
      Make it of ${number(chosen.good.length)} ${chosen.good.length === 1 ? "photo" : "photos"}<//></div>
  </form>`;
}

// What was added one by one is made one version, which can be calibrated.
function useVersion(name) {
  const [begins, begin] = useState(false);
  const [problem, setProblem] = useState(null);
  const [isReady, ready] = useState(false);
  useEffect(() => {
    if (!begins) return undefined;
    const stop = new AbortController();
    const path = at(name, "/compaction");
    const look = async () => {
      await post(path, { signal: stop.signal });
      for (;;) {
        const { state, problem: why } = await get(path, { signal: stop.signal });
        if (state !== "running") {
          if (why) throw new Error(why);
          break;
        }
        await new Promise((done) => { setTimeout(done, 500); });
        stop.signal.throwIfAborted();
      }
      ready(true);
      await refreshGalleries(stop.signal);
    };
    look().catch((error) => { if (!stop.signal.aborted) setProblem(inWords(error)); });
    return () => stop.abort();
  }, [begins]);
  return { begin: () => begin(true), begins, isReady, problem };
}

function Made({ name, files }) {
  const version = useVersion(name);
  const labels = new Set(files.map((one) => one.label).filter(Boolean)).size;
  const done = ({ added, unchanged, replaced }) => { if (added || unchanged || replaced) version.begin(); };
  return html`<div class="head"><h1>${name}</h1></div>
    <${Adding} gallery=${name} onDone=${done}>
      <a class="button main" href=${href("search", name)}>Search in it</a>
      <a class="button" href=${href("gallery", name)}>Look at it</a>
      ${labels >= LEAST_LABELS && version.isReady && html`<a class="button" href=${href("calibrate", name)}>Measure how sure a match is</a>`}
      ${version.begins && !version.isReady && !version.problem && html`<span class="soft" role="status">It can be searched already. Getting it ready to be measured…</span>`}
    <//>
    <${Fault} error=${version.problem} />`;
}

export function Make({ isFirst, onBegin }) {
  const chosen = useChosen();
  const [made, setMade] = useState(null);
  const take = (files) => {
    onBegin?.();
    chosen.take(files);
  };
  const begin = (name) => {
    beginAdding(name, chosen.taken, chosen.leftOut);
    setMade({ name, files: chosen.taken });
  };
  if (made) return html`<div class="galleries-make stack"><${Made} ...${made} /></div>`;
  if (!may("write")) return html`<div class="head"><h1>New gallery</h1><p>${whyNot("write")}</p></div>`;
  const isChosen = chosen.good.length + chosen.leftOut.length > 0;
  return html`<div class="galleries-make stack">
    <div class="head"><h1>${isFirst ? "Make your first gallery" : "New gallery"}</h1>
      <p>A gallery holds the photos that are searched. Search with another photo, and the answer says whether the same thing is in it.</p></div>
    ${isChosen ? html`<div class="card stack"><${Chosen} chosen=${chosen} />${chosen.good.length > 0 && html`<${Naming} chosen=${chosen} onMade=${begin} />`}</div>`
      : html`<${Drop} onFiles=${take} multiple=${true} folder=${true} camera=${true} label="Photos for the gallery">
        <h2><span class="drop-with-mouse">Drop photos or a folder here</span><span class="drop-with-touch">Choose photos to begin with</span></h2><p>With a folder for each thing, such as <strong>mug</strong> and <strong>teapot</strong>, its name says what the photos in it show.</p><//>`}
    ${!isFirst && !isChosen && html`<div class="row"><a class="button quiet" href=${href("galleries")}>Back to all galleries</a></div>`}
  </div>`;
}
