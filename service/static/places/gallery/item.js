// One photo: what is known of it, and what can be done with it.
import { at, del, get, inWords, patch, useCall } from "../../lib/api.js";
import { html, useState } from "../../lib/html.js";
import { original, thumbnail } from "../../lib/pictures.js";
import { href } from "../../lib/router.js";
import { may } from "../../lib/session.js";
import { short } from "../../lib/text.js";
import { ask, Dialog } from "../../parts/dialog.js";
import { Button } from "../../parts/field.js";
import { LabelSearch } from "../../parts/labels.js";
import { Fault, tell, Waiting } from "../../parts/notice.js";
import { Picture } from "../../parts/picture.js";
import { Details } from "./details.js";

const LONG = 200;
const STEPS = { ArrowLeft: -1, ArrowRight: 1 };

function Label({ gallery, item, onChanged }) {
  const [isOpen, open] = useState(false);
  const change = async (label) => {
    const before = item.label;
    const set = async (to) => onChanged(await patch(at(gallery, "/item"), { query: { id: item.id }, body: { label: to } }));
    try {
      await set(label);
      open(false);
      tell(label === null ? "It has no label now." : `Its label is ${short(label, 60)} now.`, { undo: () => set(before) });
    } catch (error) {
      tell(inWords(error), { kind: "wrong" });
    }
  };
  return html`<div class="gallery-label"><h3>${item.label === null ? html`<span class="soft">No label</span>` : html`<bdi>${short(item.label, LONG)}</bdi>`}</h3>
    ${may("write", gallery) && !isOpen && html`<${Button} kind="quiet" onClick=${() => open(true)}>${item.label === null ? "Give it one" : "Change"}<//>`}</div>
    ${isOpen && html`<div class="stack card"><${LabelSearch} gallery=${gallery} mayBeNew=${true} label="What does it show?" onChoose=${change} />
      <div class="row end">${item.label !== null && html`<${Button} kind="quiet" onClick=${() => change(null)}>Take the label away<//>`}<${Button} onClick=${() => open(false)}>Leave it<//></div></div>`}`;
}

export function Item({ gallery, id, onClose, onStep, onChanged, onGone }) {
  const found = useCall((signal) => get(at(gallery, "/item"), { query: { id }, signal }), [gallery, id], { refreshes: false });
  const [changed, change] = useState(null);
  const [isFull, setFull] = useState(false);
  const item = changed ?? found.value;
  const set = (next) => { change(next); onChanged(next); };
  const remove = async () => {
    if (!(await ask({ title: "Remove this photo?", text: "No search finds it any more. It does not come back when its folder is indexed again.", yes: "Remove", isDanger: true }))) return;
    try {
      await del(at(gallery, "/item"), { query: { id } });
      tell("The photo was removed.");
      onGone();
    } catch (error) {
      tell(inWords(error), { kind: "wrong" });
    }
  };
  const full = () => setFull(true);
  const small = () => {
    if (!isFull) return;
    setFull(false);
    tell("Only the small picture is kept here.", { kind: "wrong" });
  };
  const step = (event) => {
    const by = STEPS[event.key];
    if (by && onStep && !event.target.closest("input")) onStep(by);
  };
  return html`<${Dialog} title=${short(id, 80)} wide=${true} onClose=${onClose}><div class="gallery-one" onKeyDown=${step}>
    <div class="stack"><${Picture} className=${isFull ? "" : "gallery-small"} path=${isFull ? original(gallery, id) : thumbnail(gallery, id)} alt=${short(item?.label ?? id, 80)} onMissing=${small} />
      <div class="row">${onStep && html`<${Button} onClick=${() => onStep(-1)}>Before<//><${Button} onClick=${() => onStep(1)}>Next<//>`}
        ${!isFull && html`<${Button} kind="quiet" onClick=${full}>Full size<//>`}</div></div>
    <div class="stack">
      <${Fault} error=${found.error} again=${found.again} />
      ${!item && !found.error && html`<${Waiting} />`}
      ${item && html`<${Label} gallery=${gallery} item=${item} onChanged=${set} /><${Details} gallery=${gallery} item=${item} onChanged=${set} />
        <div class="row"><a class="button main" href=${href("search", gallery, { item: id })}>Search with it</a>
          ${may("write", gallery) && html`<${Button} onClick=${remove}>Remove<//>`}</div>`}
    </div></div><//>`;
}
