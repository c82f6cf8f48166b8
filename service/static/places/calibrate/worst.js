// Pairs that were decided wrongly, and what a person can do about each photo.
import { at, del, inWords, patch, post } from "../../lib/api.js";
import { html, useState } from "../../lib/html.js";
import { thumbnail } from "../../lib/pictures.js";
import { href } from "../../lib/router.js";
import { may, whyNot } from "../../lib/session.js";
import { number, short } from "../../lib/text.js";
import { ask, Dialog } from "../../parts/dialog.js";
import { Button } from "../../parts/field.js";
import { LabelSearch } from "../../parts/labels.js";
import { tell } from "../../parts/notice.js";
import { Picture } from "../../parts/picture.js";
import { Query } from "./sides.js";

const FIRST = 6;
const itemAt = (gallery, id) => `${at(gallery, "/item")}?id=${encodeURIComponent(id)}`;

// One photo of the gallery, with what can be done about it.
function Photo({ gallery, id, label, done, onDone, mayWrite }) {
  const [isAsking, ask_] = useState(false);
  const change = async (next) => {
    ask_(false);
    try {
      await patch(itemAt(gallery, id), { body: { label: next } });
      onDone(id, `is “${short(next, 40)}” now`);
      tell(`The label is “${short(next, 60)}” now.`, { undo: async () => { await patch(itemAt(gallery, id), { body: { label } }); onDone(id, null); } });
    } catch (error) {
      tell(inWords(error), { kind: "wrong" });
    }
  };
  const remove = async () => {
    if (!(await ask({ title: "Remove this photo?", text: `“${short(id, 100)}” is not found any more.`, yes: "Remove", isDanger: true }))) return;
    try {
      await del(itemAt(gallery, id));
      onDone(id, "removed");
      tell("The photo is removed.");
    } catch (error) {
      tell(inWords(error), { kind: "wrong" });
    }
  };
  return html`<div class="calibrate-photo">
    <a href=${href("search", gallery, { item: id })} title="Search with this photo"><${Picture} path=${thumbnail(gallery, id)} alt=${short(label ?? id, 60)} /></a>
    <p class="small"><bdi>${short(label ?? "no label", 40)}</bdi></p>
    ${done ? html`<p class="small yes" role="status">✓ ${done}</p>` : mayWrite && html`<div class="calibrate-does">
      <button type="button" class="button quiet" onClick=${() => ask_(true)}>Label is wrong</button>
      <button type="button" class="button quiet" onClick=${remove}>Remove</button></div>`}
    ${isAsking && html`<${Dialog} title="What does it show?" onClose=${() => ask_(false)}>
      <div class="calibrate-ask"><${Picture} path=${thumbnail(gallery, id)} alt="" /><${LabelSearch} gallery=${gallery} onChoose=${change} mayBeNew=${true} label="The right label" /></div><//>`}
  </div>`;
}

// Another photo of a thing helps to find it.
function AddPhoto({ gallery, label }) {
  const [isBusy, setBusy] = useState(false);
  const take = async (event) => {
    const files = [...event.target.files];
    event.target.value = "";
    if (!files.length || isBusy) return;
    setBusy(true);
    const form = new FormData();
    for (const file of files) {
      form.append("image", file, file.name);
      form.append("id", `${label}/${file.name}`);
      form.append("label", label);
    }
    try {
      const answer = await post(at(gallery, "/items"), { form });
      const refused = answer.refused?.length ?? 0;
      const n = files.length - refused;
      if (n) tell(`${number(n)} ${n === 1 ? "photo is" : "photos are"} added to “${short(label, 60)}”.`);
      if (refused) tell(`${number(refused)} could not be added: ${answer.refused[0].reason}`, { kind: "wrong" });
    } catch (error) {
      tell(inWords(error), { kind: "wrong" });
    }
    setBusy(false);
  };
  return html`<label class=${`button quiet calibrate-pick ${isBusy ? "off" : ""}`}><input class="unseen" type="file" accept="image/*" multiple disabled=${isBusy} onChange=${take} />Add a photo of <bdi>${short(label, 30)}</bdi></label>`;
}

export function Worst({ gallery, source, title, pairs }) {
  const [most, setMost] = useState(FIRST);
  const [done, setDone] = useState({});
  const mayWrite = may("write", gallery);
  const onDone = (id, text) => setDone((old) => ({ ...old, [id]: text }));
  const shared = { gallery, mayWrite, onDone };
  return html`<div class="stack"><h3>${title}</h3>
    ${!pairs.length && html`<p class="soft small">None.</p>`}
    ${pairs.length > 0 && !mayWrite && html`<p class="soft small">${whyNot("write")}</p>`}
    <ul class="calibrate-worst">${pairs.slice(0, most).map((one) => html`<li key=${`${one.query} ${one.item}`}>
      <div class="calibrate-two">
        ${source === "leave_one_out" && one.query !== null ? html`<${Photo} ...${shared} id=${one.query} label=${one.label} done=${done[one.query]} />`
          : html`<div class="calibrate-photo"><${Query} gallery=${gallery} source=${source} id=${one.query} label=${one.label} /><p class="small"><bdi>${short(one.label ?? "", 40)}</bdi></p></div>`}
        ${one.item !== null && html`<${Photo} ...${shared} id=${one.item} label=${one.itemLabel} done=${done[one.item]} />`}
      </div>
      <div class="row"><span class="soft small">score ${one.score.toFixed(3)}</span>${mayWrite && one.isRight && one.label && html`<${AddPhoto} gallery=${gallery} label=${one.label} />`}</div>
    </li>`)}</ul>
    ${pairs.length > most && html`<${Button} onClick=${() => setMost(most + 2 * FIRST)}>Show more<//>`}
  </div>`;
}
