// What a gallery takes on the disk, and the end of it.
import { at, del, get, inWords, useCall } from "../../lib/api.js";
import { refreshGalleries } from "../../lib/galleries.js";
import { html, useState } from "../../lib/html.js";
import { go } from "../../lib/router.js";
import { may } from "../../lib/session.js";
import { bytes, number } from "../../lib/text.js";
import { Dialog } from "../../parts/dialog.js";
import { Button, Field } from "../../parts/field.js";
import { Fault, tell, Waiting } from "../../parts/notice.js";

const PARTS = [
  ["table_bytes", "Photos in small, and what is searched by"],
  ["versions_bytes", "Versions"],
  ["calibrations_bytes", "Calibrations"],
  ["searches_bytes", "Searches that are kept, with answers"],
  ["other_bytes", "Other files"],
];

function Use({ value }) {
  return html`<div class="card stack"><div class="row gallery-sum"><h2>${bytes(value.bytes)}</h2><span class="soft small">${bytes(value.free_bytes)} are free on this disk</span></div>
    <div class="gallery-use" aria-hidden="true">${PARTS.map(([name]) => html`<i key=${name} class=${`gallery-${name}`} style=${{ width: `${(100 * value[name]) / Math.max(1, value.bytes)}%` }}></i>`)}</div>
    <dl class="gallery-uses">${PARTS.map(([name, text]) => html`<div key=${name}><dt><i class=${`gallery-${name}`} aria-hidden="true"></i>${text}</dt><dd>${bytes(value[name])}</dd></div>`)}</dl></div>`;
}

function Deleting({ found, onClose }) {
  const [typed, type] = useState("");
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState(null);
  const { name, n_items: n } = found;
  const remove = async (event) => {
    event.preventDefault();
    if (typed !== name || isBusy) return;
    setBusy(true);
    try {
      await del(at(name), { query: { confirm: name } });
      tell(`The gallery ${name} was deleted.`);
      onClose();
      go("galleries");
      await refreshGalleries();
    } catch (problem) {
      setError(inWords(problem));
      setBusy(false);
    }
  };
  return html`<${Dialog} title=${`Delete ${name}?`} onClose=${onClose}><form onSubmit=${remove}>
    <p>All ${number(n)} photos in it, its versions, calibrations and kept searches go for good. The files that it was made of stay where they are.</p>
    <${Field} label=${`Type ${name} to delete it`}>${(control) => html`<input type="text" autocomplete="off" autocapitalize="off" spellcheck=${false} value=${typed} onInput=${(event) => type(event.target.value)} ...${control} />`}<//>
    <${Fault} error=${error} />
    <div class="row end"><${Button} onClick=${onClose}>Cancel<//><${Button} type="submit" kind="danger" busy=${isBusy} disabled=${typed !== name}>Delete it<//></div></form><//>`;
}

export function Storage({ gallery, found }) {
  const use = useCall((signal) => get(at(gallery, "/storage"), { signal }), [gallery]);
  const [isAsked, ask] = useState(false);
  return html`<div class="stack gallery-narrow">
    <${Fault} error=${use.error} again=${use.again} />
    ${use.value ? html`<${Use} value=${use.value} />` : !use.error && html`<${Waiting} text="Adding it up…" />`}
    ${may("admin", gallery) && html`<div class="row"><${Button} onClick=${() => ask(true)}>Delete this gallery<//></div>`}
    ${isAsked && html`<${Deleting} found=${found} onClose=${() => ask(false)} />`}</div>`;
}
