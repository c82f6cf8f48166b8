// All galleries.
import { galleries, refreshGalleries } from "../../lib/galleries.js";
import { html } from "../../lib/html.js";
import { href } from "../../lib/router.js";
import { useStore } from "../../lib/store.js";
import { number, visible } from "../../lib/text.js";
import { Empty, Fault, Waiting } from "../../parts/notice.js";

export const title = "Galleries";
export const needs = "search";

function Shown() {
  const { list, problems, error } = useStore(galleries);
  if (!list) return error ? html`<${Fault} error=${error} again=${() => refreshGalleries()} />` : html`<${Waiting} />`;
  const broken = Object.entries(problems);
  if (!list.length && !broken.length) return html`<${Empty} title="No gallery yet" text="A gallery holds the photos that are searched." />`;
  return html`<ul class="galleries-cards">
    ${list.map((one) => html`<li key=${one.name}><a class="card" href=${href("search", one.name)}>
      <h2><bdi>${visible(one.name)}</bdi></h2>
      <p class="soft">${number(one.n_items)} ${one.n_items === 1 ? "photo" : "photos"}</p></a></li>`)}
    ${broken.map(([name, reason]) => html`<li key=${name} class="card"><h2><bdi>${visible(name)}</bdi></h2><p class="no" dir="auto">${visible(reason)}</p></li>`)}
  </ul>`;
}

export const Place = () => html`<div class="head"><h1>${title}</h1></div><${Shown} />`;
