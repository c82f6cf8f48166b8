// How to search: by photo or product, in what order, how many, and among which.
import { keyName, kindOf } from "../../lib/filters.js";
import { html } from "../../lib/html.js";
import { setParams } from "../../lib/router.js";
import { short } from "../../lib/text.js";
import { Choice } from "../../parts/field.js";
import { Filter } from "./filter.js";
import { limitOf, LIMITS } from "./state.js";

const ORDERS = [["", "best first"], ["added desc", "newest first"], ["added", "oldest first"], ["label", "by label"]];
const WORDS = { number: ["lowest first", "highest first"], date: ["earliest first", "latest first"], boolean: ["no first", "yes first"], text: ["A to Z", "Z to A"] };

function ordersOf(keys, sort) {
  const found = [...ORDERS];
  for (const { field, kinds } of keys) {
    const [up, down] = WORDS[kindOf(kinds)];
    found.push([field, `${keyName(field)}: ${up}`], [`${field} desc`, `${keyName(field)}: ${down}`]);
  }
  // What the address asks for is shown, whether it was offered or not.
  return !sort || found.some(([one]) => one === sort) ? found : [...found, [sort, short(sort, 40)]];
}

export function Options({ gallery, params, answer, keys }) {
  const by = params.by ?? (answer?.groups ? "label" : "photo");
  const limit = limitOf(params);
  const limits = [...new Set([...LIMITS, limit])].sort((some, other) => some - other).map((n) => [String(n), String(n)]);
  return html`<div class="search-options">
    <div class="search-by" role="group" aria-label="What is decided">
      ${[["photo", "By photo"], ["label", "By product"]].map(([one, text]) => html`<button key=${one} type="button" class="button" aria-pressed=${by === one ? "true" : "false"}
        onClick=${() => setParams({ by: one })}>${text}</button>`)}
    </div>
    <${Choice} label="Order" value=${params.sort ?? ""} options=${ordersOf(keys, params.sort)} onChange=${(sort) => setParams({ sort })} />
    <${Choice} label="Show" value=${String(limit)} options=${limits} onChange=${(n) => setParams({ limit: Number(n) === LIMITS[0] ? null : n })} />
    <${Filter} gallery=${gallery} text=${params.filter ?? ""} keys=${keys} onChange=${(filter) => setParams({ filter })} />
  </div>`;
}
