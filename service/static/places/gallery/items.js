// The photos of a gallery in a grid that scrolls through all of them, and those that a word is about.
import { html, useEffect, useRef, useState } from "../../lib/html.js";
import { refreshGalleries } from "../../lib/galleries.js";
import { thumbnail } from "../../lib/pictures.js";
import { href, setParams } from "../../lib/router.js";
import { may } from "../../lib/session.js";
import { number, short } from "../../lib/text.js";
import { Button, Field } from "../../parts/field.js";
import { Grid } from "../../parts/grid.js";
import { Empty, Fault, Waiting } from "../../parts/notice.js";
import { Picture } from "../../parts/picture.js";
import { Item } from "./item.js";
import { usePages } from "./pages.js";
import { Picking, usePicked } from "./several.js";

const PAUSE = 250;
const ROW = 224;

const quoted = (text) => `'${text.replaceAll("'", "''")}'`;
const anywhere = (text) => quoted(`%${text.replace(/[\\%_]/g, "\\$&")}%`);
// Signs that a name may hold are signs here, too.
const filterOf = (text) => (text ? `label LIKE ${anywhere(text)} OR id LIKE ${anywhere(text)}` : "");

function Find({ text }) {
  const [typed, type] = useState(text);
  const last = useRef(text);
  useEffect(() => {
    if (text !== last.current) { last.current = text; type(text); }
  }, [text]);
  useEffect(() => {
    const timer = setTimeout(() => {
      const wanted = typed.trim();
      if (wanted !== last.current) { last.current = wanted; setParams({ find: wanted || null, item: null }); }
    }, PAUSE);
    return () => clearTimeout(timer);
  }, [typed]);
  return html`<${Field} label="Find by label or name">${(control) => html`<input type="search" dir="auto" autocomplete="off" spellcheck=${false} maxlength="200"
    value=${typed} onInput=${(event) => type(event.target.value)} ...${control} />`}<//>`;
}

function Cell({ gallery, item, isPicked, isPicking, onOpen, onPick }) {
  const press = (event) => (isPicking ? onPick(event.shiftKey) : onOpen());
  const name = item.label ?? item.id;
  return html`<button type="button" class=${`gallery-item ${isPicked ? "is-picked" : ""}`} aria-pressed=${isPicking ? String(isPicked) : undefined} onClick=${press}>
    <${Picture} path=${thumbnail(gallery, item.id)} />
    <span class="gallery-name"><bdi>${short(name, 60)}</bdi></span>
    ${isPicking && html`<span class="gallery-mark" aria-hidden="true">${isPicked ? "✓" : ""}</span>`}
  </button>`;
}

export function Items({ gallery, found, params }) {
  const text = params.find ?? "";
  const pages = usePages(gallery, filterOf(text), found.revision);
  const picking = usePicked(pages.itemAt);
  const [open, setOpen] = useState(null);
  const gone = () => { pages.again(); refreshGalleries(); };
  const mayWrite = may("write", gallery);
  const close = () => { setOpen(null); if (params.item) setParams({ item: null }); };
  const id = open === null ? params.item : pages.itemAt(open)?.id;
  if (!found.n_items && !text) {
    return html`<${Empty} title="Nothing in it yet" text=${found.takes === "images" ? "Add photos, and they can be searched at once." : "This gallery takes ready embeddings, which programs send."}>
      ${mayWrite && found.takes === "images" && html`<a class="button main" href=${href("add", gallery)}>Add photos</a>`}<//>`;
  }
  const step = (by) => {
    if (open === null || open + by < 0 || open + by >= pages.n) return;
    pages.load(open + by, open + by + 1);
    setOpen(open + by);
    setParams({ item: pages.itemAt(open + by)?.id });
  };
  return html`
    <div class="gallery-bar"><${Find} text=${text} />
      ${picking.picked ? html`<${Picking} gallery=${gallery} picking=${picking} onChanged=${gone} />`
        : html`<div class="row"><p class="soft gallery-n" role="status">${text && pages.n !== null ? `${number(pages.n)} found` : ""}</p>
          ${mayWrite && pages.n > 0 && html`<${Button} onClick=${picking.begin}>Choose several<//>`}</div>`}</div>
    <${Fault} error=${pages.error} again=${pages.again} />
    ${pages.n === null && !pages.error && html`<${Waiting} />`}
    ${pages.n === 0 && html`<${Empty} title=${`Nothing has “${short(text, 60)}” in its label or name`} />`}
    ${pages.n > 0 && html`<${Grid} n=${pages.n} itemAt=${pages.itemAt} load=${pages.load} rowHeight=${ROW} label="Photos"
      cell=${(item, i) => html`<${Cell} gallery=${gallery} item=${item} isPicking=${picking.picked !== null} isPicked=${picking.picked?.has(item.id) ?? false}
        onOpen=${() => { setOpen(i); setParams({ item: item.id }); }} onPick=${(isRow) => picking.toggle(i, isRow)} />`} />`}
    ${id && html`<${Item} key=${id} gallery=${gallery} id=${id} onClose=${close} onStep=${open === null ? null : step}
      onChanged=${(item) => { if (open !== null) pages.put(open, item); }} onGone=${() => { close(); gone(); }} />`}`;
}
