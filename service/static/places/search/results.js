// What was found: the matches, and apart from them what is just below.
import { html, useState } from "../../lib/html.js";
import { number, short } from "../../lib/text.js";
import { AskingOf } from "./asking.js";
import { Look } from "./look.js";
import { Bar, Result } from "./result.js";

// A product with its best photos.
function Group({ group, threshold, mayBeAsked, answers, ...others }) {
  const [best] = group.items;
  return html`<li class="search-group card">
    <div class="search-group-head">
      <h4><bdi>${short(group.group ?? best?.id ?? "", 80)}</bdi></h4>
      <span class="soft small">${number(group.n_items)} ${group.n_items === 1 ? "photo" : "photos"}</span>
    </div>
    <${Bar} score=${group.score} margin=${group.margin} threshold=${threshold} />
    <ol class="search-results">${group.items.map((one) => html`<${Result} key=${one.id} found=${one} threshold=${null} isGrouped=${true} answers=${answers} ...${others} />`)}</ol>
    ${mayBeAsked && best && html`<${AskingOf} found=${best} answers=${answers} />`}
  </li>`;
}

// Photos with their copies behind them, where the better one is shown too.
function collapsed(found) {
  const shown = new Map(found.map((one) => [one.id, []]));
  const first = found.filter((one) => !shown.has(one.copy_of) || one.copy_of === one.id);
  for (const one of found) if (!first.includes(one)) shown.get(one.copy_of).push(one);
  return first.map((one) => [one, shown.get(one.id)]);
}

function Photos({ found, ...others }) {
  const [open, setOpen] = useState(new Set());
  const toggle = (id) => setOpen((old) => { const next = new Set(old); if (!next.delete(id)) next.add(id); return next; });
  return html`<ol class="search-results">${collapsed(found).map(([one, copies]) => html`
    <${Result} key=${one.id} found=${one} nCopies=${copies.length} isOpen=${open.has(one.id)} onCopies=${() => toggle(one.id)} ...${others} />
    ${open.has(one.id) && copies.map((copy) => html`<${Result} key=${copy.id} found=${copy} isCopy=${true} ...${others} />`)}`)}</ol>`;
}

function Part({ title, hint, found, isGrouped, mayBeAsked, answers, ...others }) {
  if (!found.length) return null;
  return html`<section class="search-part" aria-label=${title}>
    <div class="search-part-head"><h3>${title}</h3>${hint && html`<p class="soft small">${hint}</p>`}</div>
    ${isGrouped
      ? html`<ol class="search-groups">${found.map((one) => html`<${Group} key=${`${one.group} ${one.items[0]?.id}`} group=${one} mayBeAsked=${mayBeAsked} answers=${answers} ...${others} />`)}</ol>`
      : html`<${Photos} found=${found} mayBeAsked=${mayBeAsked} answers=${answers} ...${others} />`}
  </section>`;
}

const counted = (n, isGrouped) => {
  const [one, many] = isGrouped ? ["matching product", "matching products"] : ["match", "matches"];
  return `${number(n)} ${n === 1 ? one : many}`;
};

export function Results({ gallery, answer, answers, onSearch, onWhy, isOld }) {
  const [looked, look] = useState(null);
  const isGrouped = answer.groups !== null;
  const matches = isGrouped ? answer.groups : answer.matches;
  const below = isGrouped ? answer.candidate_groups : answer.candidates;
  const others = { gallery, answers, onSearch, onWhy, onLook: look, isGrouped, mayBeAsked: answer.search_id !== null, threshold: answer.threshold.value };
  const isUndecided = answer.verdict === null;
  return html`<div class=${`search-found-all ${isOld ? "is-old" : ""}`}>
    <${Part} title=${counted(matches.length, isGrouped)} found=${matches} ...${others} />
    <${Part} title=${isUndecided ? "Most alike" : "Below the threshold"} found=${below}
      hint=${isUndecided ? null : "Alike, but not enough to be called a match."} ...${others} />
    ${!matches.length && !below.length && html`<p class="soft">Nothing in this gallery can be compared with it${answer.n_searched ? "" : ": no photo fits the filter"}.</p>`}
    ${looked && html`<${Look} gallery=${gallery} found=${looked} onClose=${() => look(null)} onSearch=${onSearch} onWhy=${onWhy} />`}
  </div>`;
}

