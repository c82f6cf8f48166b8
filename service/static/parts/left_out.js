// What was not taken, and why: the same reason once, with all that it is about.
import { html, useState } from "../lib/html.js";
import { number, short } from "../lib/text.js";
import { Button } from "./field.js";

const FIRST = 5;

function Group({ reason, names }) {
  const [isWhole, setWhole] = useState(false);
  const shown = isWhole ? names : names.slice(0, FIRST);
  return html`<li><p dir="auto"><strong>${reason}</strong> <span class="soft">${number(names.length)} ${names.length === 1 ? "file" : "files"}</span></p>
    <ul>${shown.map((name, place) => html`<li key=${place}><bdi>${short(name, 120)}</bdi></li>`)}</ul>
    ${names.length > FIRST && html`<${Button} kind="quiet" onClick=${() => setWhole(!isWhole)}>${isWhole ? "Show fewer" : `Show all ${number(names.length)}`}<//>`}
  </li>`;
}

// files: [{id, reason}]
export function LeftOut({ files, title = "Left out" }) {
  if (!files.length) return null;
  const groups = Map.groupBy ? Map.groupBy(files, (one) => one.reason) : grouped(files);
  return html`<section class="left-out" aria-label=${title}><h3>${title}: ${number(files.length)}</h3>
    <ul>${[...groups].map(([reason, those]) => html`<${Group} key=${reason} reason=${reason} names=${those.map((one) => one.id)} />`)}</ul>
  </section>`;
}

function grouped(files) {
  const groups = new Map();
  for (const one of files) groups.set(one.reason, [...(groups.get(one.reason) ?? []), one]);
  return groups;
}
