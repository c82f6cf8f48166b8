// Versions of a gallery: which is searched, and the way back to another.
import { at, get, inWords, post, useCall } from "../../lib/api.js";
import { refreshGalleries } from "../../lib/galleries.js";
import { html, useState } from "../../lib/html.js";
import { may } from "../../lib/session.js";
import { bytes, number, visible, when } from "../../lib/text.js";
import { Dialog } from "../../parts/dialog.js";
import { Button, Tick } from "../../parts/field.js";
import { Fault, tell, Waiting } from "../../parts/notice.js";

const KINDS = { index: "built from its source", compaction: "with what was changed since" };

function Back({ gallery, one, onClose, onDone }) {
  const [isBusy, setBusy] = useState(false);
  const [asBuilt, setAsBuilt] = useState(false);
  const [error, setError] = useState(null);
  const activate = async () => {
    setBusy(true);
    try {
      await post(at(gallery, `/versions/${one.version}/activate`), { query: { as_built: asBuilt } });
      tell(`Version ${one.version} is searched now.`);
      onDone();
    } catch (problem) {
      setError(problem);
      setBusy(false);
    }
  };
  return html`<${Dialog} title=${`Search version ${one.version}?`} onClose=${onClose}>
    <p>From the next search on, all that was changed after it is not seen. The version that is searched now stays, and you can come back to it.</p>
    <${Tick} label="Exactly as it was built, without what was changed while it was searched" checked=${asBuilt} onChange=${setAsBuilt} />
    <${Fault} error=${error} />
    <div class="row end"><${Button} onClick=${onClose}>Cancel<//><${Button} kind="main" busy=${isBusy} onClick=${activate}>Search it<//></div><//>`;
}

function Changes({ gallery, onDone }) {
  const state = useCall((signal) => get(at(gallery, "/compaction"), { signal }), [gallery]);
  const [isBusy, setBusy] = useState(false);
  const n = state.value?.n_changes ?? 0;
  const make = async () => {
    setBusy(true);
    try {
      await post(at(gallery, "/compaction"));
      for (;;) {
        const now = await get(at(gallery, "/compaction"));
        if (now.problem && now.state !== "running") throw new Error(now.problem);
        if (now.state !== "running") break;
        await new Promise((done) => { setTimeout(done, 500); });
      }
      tell("The new version is searched now.");
      onDone();
      state.again();
    } catch (problem) {
      tell(inWords(problem), { kind: "wrong" });
    }
    setBusy(false);
  };
  if (!n) return null;
  return html`<div class="card row gallery-changes"><p>${number(n)} ${n === 1 ? "change is" : "changes are"} in no version yet. ${n === 1 ? "It is" : "They are"} searched all the same.</p>
    ${may("admin", gallery) && html`<${Button} busy=${isBusy} onClick=${make}>Make a version of ${n === 1 ? "it" : "them"}<//>`}</div>`;
}

export function Versions({ gallery }) {
  const found = useCall((signal) => get(at(gallery, "/versions"), { signal }), [gallery]);
  const [asked, ask] = useState(null);
  const done = () => { ask(null); found.again(); refreshGalleries(); };
  if (!found.value) return found.error ? html`<${Fault} error=${found.error} again=${found.again} />` : html`<${Waiting} />`;
  return html`<${Changes} gallery=${gallery} onDone=${done} />
    <${Fault} error=${found.error} again=${found.again} />
    <ul class="gallery-versions">${found.value.versions.map((one) => html`<li key=${one.version} class="card">
      <div><h3>Version ${one.version} ${one.is_active && html`<span class="tag yes"><span aria-hidden="true">✓</span> searched now</span>`}</h3>
        <p class="soft">${when(one.created_at)}, ${KINDS[one.kind] ?? visible(one.kind)}</p></div>
      <p>${one.n_items === null ? html`<span class="no">Its files are damaged.</span>` : `${number(one.n_items)} photos, ${number(one.n_labels ?? 0)} labels`}
        <span class="soft"> · ${bytes(one.derived_bytes + one.own_table_bytes)} of its own</span></p>
      ${one.comparison && html`<p class="soft small" dir="auto">${visible(one.comparison)}</p>`}
      ${!one.is_active && may("admin", gallery) && html`<div class="row end"><${Button} onClick=${() => ask(one)}>Search this one<//></div>`}</li>`)}</ul>
    ${asked && html`<${Back} gallery=${gallery} one=${asked} onClose=${() => ask(null)} onDone=${done} />`}`;
}
