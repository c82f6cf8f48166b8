// Search: what is searched for beside what was found.
import { at, post, useCall } from "../../lib/api.js";
import { html, useEffect, useState } from "../../lib/html.js";
import { thumbnail } from "../../lib/pictures.js";
import { go, setParams } from "../../lib/router.js";
import { Fault, Waiting } from "../../parts/notice.js";
import { Query } from "./query.js";
import { Results, Verdict } from "./results.js";

export const title = "Search";
export const needs = "search";

const LIMIT = 12;

function search(gallery, { item, file, filter, limit, by }, signal) {
  if (!item && !file) return null;
  const options = {
    include_candidates: true,
    limit: /^[1-9]\d{0,3}$/.test(limit ?? "") ? Number(limit) : LIMIT,
    ...(filter ? { filter } : {}),
    ...(by === "label" ? { group_by: "label" } : {}),
  };
  if (item) return post(at(gallery, "/search"), { body: { item_id: item, ...options }, signal });
  const form = new FormData();
  form.append("image", file);
  for (const [name, value] of Object.entries(options)) form.append(name, value);
  return post(at(gallery, "/search"), { form, signal });
}

// A photo that was taken from this device, as an address of this tab.
function useUrl(file) {
  const [url, setUrl] = useState(null);
  useEffect(() => {
    if (!file) return undefined;
    const made = URL.createObjectURL(file);
    setUrl(made);
    return () => { URL.revokeObjectURL(made); setUrl(null); };
  }, [file]);
  return file ? url : null;
}

export function Place({ gallery, params }) {
  const [file, setFile] = useState(null);
  const { item = null, filter, limit, by } = params;
  const used = item ? null : file;
  const url = useUrl(used);
  const found = useCall((signal) => search(gallery, { item, file: used, filter, limit, by }, signal), [gallery, item, used, filter, limit, by], { refreshes: false });
  const choose = (given) => {
    setFile(given);
    setParams({ item: null });
  };
  const isAsked = Boolean(item || used);
  const isWaiting = isAsked && found.isLoading;
  return html`<div class="search">
    <section class="search-query" aria-label="What is searched for">
      <h1>${title}</h1>
      <${Query} path=${item ? thumbnail(gallery, item) : url} name=${item ?? used?.name ?? null} onFile=${choose} />
    </section>
    <section class="search-found" aria-label="What was found" aria-busy=${isWaiting ? "true" : "false"}>
      ${isWaiting && html`<${Waiting} text="Searching…" />`}
      ${isAsked && !isWaiting && html`<${Fault} error=${found.error} again=${found.again} />`}
      ${isAsked && !isWaiting && found.value && html`<${Verdict} answer=${found.value} />
        <${Results} gallery=${gallery} answer=${found.value} onSearch=${(id) => go("search", gallery, { ...params, item: id })} />`}
      ${!isAsked && html`<p class="soft">Take a photo of a thing: the answer says whether this gallery has it, and what comes nearest.</p>`}
    </section>
  </div>`;
}
