// Photos with the name of what they show: a folder for each thing, or photos of one thing.
import { html, useState } from "../../lib/html.js";
import { number, short } from "../../lib/text.js";
import { Button, Field, useId } from "../../parts/field.js";

const SHOWN = 12;
const isPhoto = (file) => file.type.startsWith("image/") || /\.(jpe?g|png|webp|bmp|tiff?|heic|heif|avif|gif)$/i.test(file.name);

// "photos/mug/1.jpg" -> "mug"; null without a folder of its own.
function folderOf(file) {
  const parts = (file.webkitRelativePath || file.name).split("/");
  return parts.length > 2 ? parts[parts.length - 2] : parts.length === 2 ? parts[0] : null;
}

export function formOf(photos, options = {}) {
  const form = new FormData();
  for (const { file, label } of photos) {
    form.append("image", file, file.name);
    form.append("label", label);
  }
  for (const [name, value] of Object.entries(options)) form.append(name, value);
  return form;
}

// `photos` are [{file, label}].
export function Photos({ photos, onChange }) {
  const id = useId();
  const [label, setLabel] = useState("");
  const take = (event, labelOf) => {
    const found = [...event.target.files].filter(isPhoto).map((file) => ({ file, label: labelOf(file) })).filter((one) => one.label);
    event.target.value = "";
    onChange([...photos, ...found]);
  };
  const counts = new Map();
  for (const one of photos) counts.set(one.label, (counts.get(one.label) ?? 0) + 1);
  return html`<div class="calibrate-photos stack">
    <div class="row">
      <label class="button calibrate-pick"><input class="unseen" type="file" webkitdirectory multiple onChange=${(event) => take(event, folderOf)} />Choose a folder of folders</label>
      <span class="soft small">The name of a folder says what its photos show.</span>
    </div>
    <div class="calibrate-one">
      <${Field} label="Or photos of one thing">${(control) => html`<input type="text" dir="auto" placeholder="What they show" value=${label} onInput=${(event) => setLabel(event.target.value)} ...${control} />`}<//>
      <label class=${`button calibrate-pick ${label.trim() ? "" : "off"}`} for=${`${id}-photos`}>Choose photos</label>
      <input id=${`${id}-photos`} class="unseen" type="file" accept="image/*" multiple disabled=${!label.trim()} aria-label="Photos of this thing" onChange=${(event) => take(event, () => label.trim())} />
    </div>
    ${photos.length > 0 && html`<div class="row" role="status">
      <span>${number(photos.length)} photos of ${number(counts.size)} ${counts.size === 1 ? "thing" : "things"}:</span>
      ${[...counts].slice(0, SHOWN).map(([name, n]) => html`<span key=${name} class="tag"><bdi>${short(name, 40)}</bdi> · ${number(n)}</span>`)}
      ${counts.size > SHOWN && html`<span class="soft">and ${number(counts.size - SHOWN)} more</span>`}
      <${Button} kind="quiet" onClick=${() => onChange([])}>Empty<//>
    </div>`}
  </div>`;
}
