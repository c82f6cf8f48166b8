// A photo in full size with all that is known of it.
import { html, useState } from "../../lib/html.js";
import { original, thumbnail } from "../../lib/pictures.js";
import { href } from "../../lib/router.js";
import { short, valueText, visible } from "../../lib/text.js";
import { Dialog } from "../../parts/dialog.js";
import { Button } from "../../parts/field.js";
import { Picture } from "../../parts/picture.js";

// An absolute path: what was uploaded has but a name, and no file to show.
const IS_FILE = /^(?:\/|[a-z]:[\\/]|\\\\)/i;
// Only an address of the web is one that a browser may follow.
const IS_WEB = /^https?:\/\//i;
const MOST_FIELDS = 60;

export function Fields({ metadata, most = MOST_FIELDS }) {
  const values = Object.entries(metadata ?? {}).filter(([, value]) => value !== null);
  if (!values.length) return null;
  return html`<dl class="search-fields">${values.slice(0, most).map(([key, value]) => html`<div key=${key}>
    <dt><bdi>${short(key, 40)}</bdi></dt><dd><bdi>${short(valueText(value), most === MOST_FIELDS ? 400 : 40)}</bdi></dd></div>`)}</dl>`;
}

// A long text can be read whole.
function Whole({ text }) {
  const [isWhole, show] = useState(false);
  const cut = short(text, 200), all = visible(text);
  return html`<bdi>${isWhole ? all : cut}</bdi>${cut !== all && !isWhole && html` <${Button} kind="quiet" onClick=${() => show(true)}>Show all<//>`}`;
}

export function Look({ gallery, found, onClose, onSearch, onWhy }) {
  const [isSmall, setSmall] = useState(!IS_FILE.test(found.uri ?? ""));
  const isWeb = IS_WEB.test(found.uri ?? "");
  const title = short(found.label ?? found.id, 80);
  const does = (what) => () => { onClose(); what(found.id); };
  return html`<${Dialog} title=${title} onClose=${onClose} wide=${true}>
    <div class="search-look">
      <div>
        <${Picture} key=${isSmall} className="search-full" path=${(isSmall ? thumbnail : original)(gallery, found.id)} alt=${title} onMissing=${() => setSmall(true)} />
        ${isSmall && html`<p class="soft small">Only this small picture is kept here${isWeb ? "" : ", not the file itself"}.</p>`}
      </div>
      <div class="stack">
        <dl class="search-fields">
          <div><dt>Label</dt><dd>${found.label === null ? "none" : html`<${Whole} text=${found.label} />`}</dd></div>
          <div><dt>Name</dt><dd><${Whole} text=${found.id} /></dd></div>
          ${found.uri && html`<div><dt>From</dt><dd><${Whole} text=${found.uri} /></dd></div>`}
        </dl>
        <${Fields} metadata=${found.metadata} />
        ${isWeb && html`<p><a href=${found.uri} target="_blank" rel="noopener noreferrer">Open the original on the web</a></p>`}
        <div class="row">
          <${Button} kind="main" onClick=${does(onSearch)}>Search with this photo<//>
          <${Button} onClick=${does(onWhy)}>Why was it found?<//>
          <a class="button" href=${href("gallery", gallery, { item: found.id })}>In the gallery</a>
        </div>
      </div>
    </div>
  <//>`;
}
