// Search: what is searched for beside what was found.
import { at, get, useCall } from "../../lib/api.js";
import { html, useEffect, useRef } from "../../lib/html.js";
import { galleryOf } from "../../lib/galleries.js";
import { thumbnail } from "../../lib/pictures.js";
import { href, setParams } from "../../lib/router.js";
import { may } from "../../lib/session.js";
import { short } from "../../lib/text.js";
import { Button } from "../../parts/field.js";
import { Empty, Fault, tell, Waiting } from "../../parts/notice.js";
import { Picture } from "../../parts/picture.js";
import { Asking, useAnswers, whyNotKept } from "./asking.js";
import { Options } from "./options.js";
import { Query } from "./query.js";
import { Results } from "./results.js";
import { useSearch } from "./state.js";
import { Share, Verdict } from "./verdict.js";
import { Why } from "./why.js";

export const title = "Search";
export const needs = "search";

const N_TRIED = 8;
// What the address says is explained: the query, or a photo that was found.
const OF_QUERY = "query", OF_ITEM = "item ";

// Photos of the gallery to try a search with.
function Try({ gallery, onSearch }) {
  const { value } = useCall((signal) => get(at(gallery, "/items"), { query: { size: N_TRIED }, signal }), [gallery]);
  return html`<p>Take a photo of a thing: the answer says whether this gallery has it, and what comes nearest.</p>
    ${value?.items.length > 0 && html`<div class="search-try"><h2>Or try it with a photo of this gallery</h2>
      <ul>${value.items.map((one) => html`<li key=${one.id}><button type="button" class="search-picture" onClick=${() => onSearch(one.id)} aria-label=${`Search with ${short(one.label ?? one.id, 60)}, ${short(one.id, 60)}`}>
        <${Picture} path=${thumbnail(gallery, one.id)} /></button></li>`)}</ul></div>`}`;
}

const Nothing = ({ gallery }) => html`<${Empty} title="No photos to search among yet" text="This gallery is empty: add photos of the things that it shall find.">
  ${may("write", gallery) && html`<a class="button main" href=${href("add", gallery)}>Add photos</a>`}<//>`;

// Somebody put another version in force while this page was open.
function useVersion(answer) {
  const seen = useRef(null);
  useEffect(() => {
    if (!answer) return;
    if (seen.current !== null && answer.version !== seen.current) tell("A newer version of this gallery is searched now.");
    seen.current = answer.version;
  }, [answer?.version]);
}

function Found({ gallery, params, search, options }) {
  const { query, answer, isWaiting } = search;
  const answers = useAnswers(gallery, answer.search_id);
  const cannot = whyNotKept({ query, answer, params });
  const isAsked = !cannot && answer.verdict !== null;
  const explain = (what) => setParams({ why: what });
  const isWhy = params.why === OF_QUERY;
  const item = params.why?.startsWith(OF_ITEM) ? params.why.slice(OF_ITEM.length) : null;
  return html`
    <${Verdict} gallery=${gallery} answer=${answer}>
      <${Button} onClick=${() => explain(isWhy ? null : OF_QUERY)} aria-expanded=${isWhy ? "true" : "false"}>Why?<//>
      <${Share} query=${query} answer=${answer} /><//>
    ${isAsked && html`<${Asking} gallery=${gallery} answers=${answers} hasResults=${answer.matches.length > 0} />`}
    ${cannot && html`<p class="soft small">${cannot}</p>`}
    ${(isWhy || item) && html`<${Why} gallery=${gallery} query=${query} params=${params} item=${item} onClose=${() => explain(null)} />`}
    ${options}
    <${Results} gallery=${gallery} answer=${answer} answers=${answers} onSearch=${search.searchItem} onWhy=${(id) => explain(OF_ITEM + id)} isOld=${isWaiting} />`;
}

export function Place({ gallery, params }) {
  const search = useSearch(gallery, params);
  const { query, answer, error, isWaiting, wait } = search;
  useVersion(answer);
  // What can be chosen by stands beside the first answer: before it nothing waits for it.
  const keys = useCall((signal) => (answer || params.filter ? get(at(gallery, "/metadata"), { signal, tries: 1 }) : null), [gallery, Boolean(answer || params.filter)], { refreshes: false });
  const isEmpty = galleryOf(gallery)?.n_items === 0;
  const options = html`<${Options} gallery=${gallery} params=${params} answer=${answer} keys=${keys.value?.keys ?? []} />`;
  const waiting = wait > 0 ? `Many are searching: trying again in ${wait} ${wait === 1 ? "second" : "seconds"}…` : "Searching…";
  return html`<div class="search">
    <section class="search-query" aria-label="What is searched for">
      <h1>${title}</h1>
      <${Query} path=${search.picture} name=${search.name} onFile=${search.searchFile} onClear=${search.clear} />
    </section>
    <section class="search-found" aria-label="What was found" aria-busy=${isWaiting ? "true" : "false"}>
      ${isWaiting && html`<${Waiting} text=${waiting} />`}
      ${!isWaiting && html`<${Fault} error=${error} again=${search.again} />`}
      ${answer && html`<${Found} gallery=${gallery} params=${params} search=${search} options=${options} />`}
      ${!answer && params.filter && options}
      ${!query && (isEmpty ? html`<${Nothing} gallery=${gallery} />` : html`<${Try} gallery=${gallery} onSearch=${search.searchItem} />`)}
    </section>
  </div>`;
}
