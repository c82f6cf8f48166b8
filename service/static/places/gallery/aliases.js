// Further names of a gallery: programs keep one while the gallery behind it is exchanged.
import { del, get, inWords, put, useCall } from "../../lib/api.js";
import { galleries, galleryOf, refreshGalleries } from "../../lib/galleries.js";
import { html, useState } from "../../lib/html.js";
import { address, go } from "../../lib/router.js";
import { may } from "../../lib/session.js";
import { useStore } from "../../lib/store.js";
import { visible } from "../../lib/text.js";
import { ask } from "../../parts/dialog.js";
import { Button, Field } from "../../parts/field.js";
import { Fault, tell, Waiting } from "../../parts/notice.js";

const path = (name) => `v1/aliases/${encodeURIComponent(name)}`;

function New({ gallery, known, onDone }) {
  const [typed, type] = useState("");
  const [error, setError] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const all = useStore(galleries);
  const name = typed.trim();
  const other = known.find((one) => one.alias === name);
  const isGallery = all.list.some((one) => one.name === name);
  const wrong = isGallery ? `${name} is a gallery itself.` : /^[a-z0-9][a-z0-9_-]{0,63}$/.test(name) || !name ? null : "Small letters, digits, dashes and underscores only.";
  const add = async (event) => {
    event.preventDefault();
    if (!name || wrong || isBusy) return;
    if (other && other.gallery !== gallery && !(await ask({ title: `Take ${name} from ${other.gallery}?`, text: "Who asks for it is answered by this gallery from the next search on.", yes: "Take it" }))) return;
    setBusy(true);
    try {
      await put(path(name), { body: { gallery } });
      tell(`${name} stands for ${gallery} now.`);
      type("");
      setError(null);
      onDone();
    } catch (problem) {
      setError(problem);
    }
    setBusy(false);
  };
  return html`<form class="stack" onSubmit=${add}><div class="gallery-new"><${Field} label="Another name" error=${wrong}>${(control) => html`<input type="text" autocomplete="off" autocapitalize="off" spellcheck=${false} maxlength="64"
    value=${typed} onInput=${(event) => type(event.target.value)} ...${control} />`}<//><${Button} type="submit" busy=${isBusy} disabled=${!name || Boolean(wrong)}>Add it<//></div>
    <${Fault} error=${error} /></form>`;
}

export function Names({ gallery }) {
  const found = useCall((signal) => get("v1/aliases", { signal }), [gallery]);
  const name = galleryOf(gallery, useStore(galleries)).name;
  const mayChange = may("admin", gallery);
  const done = () => { found.again(); refreshGalleries(); };
  const remove = async (alias) => {
    if (!(await ask({ title: `Take the name ${alias} away?`, text: "Who asks for it is told that there is no such gallery. The gallery stays.", yes: "Take it away", isDanger: true }))) return;
    try {
      await del(path(alias));
      tell(`${alias} stands for nothing any more.`, { undo: async () => { await put(path(alias), { body: { gallery: name } }); done(); } });
      if (alias === address.get().gallery) go("gallery", name, { view: "names" }, { replace: true });
      done();
    } catch (error) {
      tell(inWords(error), { kind: "wrong" });
    }
  };
  if (!found.value) return found.error ? html`<${Fault} error=${found.error} again=${found.again} />` : html`<${Waiting} />`;
  const own = found.value.aliases.filter((one) => one.gallery === name);
  return html`<div class="stack gallery-narrow"><p class="soft">Programs may ask for a gallery by another name. Give that name to a newer gallery later, and they search in it without a change of their own.</p>
    ${own.length === 0 ? html`<p>It has no other name.</p>` : html`<ul class="gallery-names">${own.map(({ alias }) => html`<li key=${alias} class="card row"><strong><bdi>${visible(alias)}</bdi></strong>
      ${mayChange && html`<${Button} kind="quiet" onClick=${() => remove(alias)} aria-label=${`Take the name ${alias} away`}>Take away<//>`}</li>`)}</ul>`}
    ${mayChange && html`<${New} gallery=${name} known=${found.value.aliases} onDone=${done} />`}</div>`;
}
