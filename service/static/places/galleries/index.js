// All galleries; where there is none, the first is made here.
import { galleries, refreshGalleries } from "../../lib/galleries.js";
import { html } from "../../lib/html.js";
import { go, href } from "../../lib/router.js";
import { may, session } from "../../lib/session.js";
import { useStore } from "../../lib/store.js";
import { number, sentence, visible } from "../../lib/text.js";
import { Empty, Fault, Waiting } from "../../parts/notice.js";
import { Card } from "./card.js";
import { Make } from "./make.js";

export const title = "Galleries";
export const needs = "search";

function Broken({ name, reason }) {
  return html`<li class="card galleries-card galleries-broken"><div class="galleries-words"><h2><bdi>${visible(name)}</bdi></h2>
    <p><span class="tag no"><span aria-hidden="true">✕</span> cannot be searched</span></p><p class="small" dir="auto">${sentence(reason)}</p></div></li>`;
}

function Some({ list, problems }) {
  const n = list.reduce((sum, one) => sum + one.n_items, 0);
  return html`<div class="head"><h1>${title}</h1>
      ${may("admin") && html`<a class="button main" href=${href("galleries", null, { make: 1 })}>New gallery</a>`}
      <p>${number(n)} ${n === 1 ? "photo" : "photos"} in ${list.length === 1 ? "one gallery" : `${number(list.length)} galleries`}. Choose one to search in it.</p></div>
    <ul class="galleries-cards">
      ${list.map((one) => html`<${Card} key=${one.name} gallery=${one} />`)}
      ${Object.entries(problems).map(([name, reason]) => html`<${Broken} key=${name} name=${name} reason=${reason} />`)}
    </ul>`;
}

export function Place({ params }) {
  const { list, problems, error } = useStore(galleries);
  const { me } = useStore(session);
  if (!list) return html`<h1 class="unseen">${title}</h1>${error ? html`<${Fault} error=${error} again=${() => refreshGalleries()} />` : html`<${Waiting} />`}`;
  const isNone = !list.length && !Object.keys(problems).length;
  if (params.make && me.scopes.includes("admin")) return html`<${Make} isFirst=${isNone} />`;
  if (!isNone) return html`<${Some} list=${list} problems=${problems} />`;
  if (may("admin")) return html`<${Make} isFirst=${true} onBegin=${() => go("galleries", null, { make: 1 }, { replace: true })} />`;
  return html`<${Empty} level=${1} title="No gallery yet" text="A gallery holds the photos that are searched. Ask whoever runs this server to make one." />`;
}
