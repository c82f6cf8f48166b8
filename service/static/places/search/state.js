// What is searched for, and what was answered: the address says all of it but a photo of this device.
import { at, post, Problem, useCall } from "../../lib/api.js";
import { useEffect, useRef, useState } from "../../lib/html.js";
import { keptPicture, thumbnail } from "../../lib/pictures.js";
import { go, setParams } from "../../lib/router.js";

export const LIMITS = [12, 24, 48, 100];
// As long a wait as somebody is told to come again after.
const LONGEST_WAIT = 30;
const NOTHING = { file: null, id: null };

export const limitOf = ({ limit }) => (/^[1-9]\d{0,3}$/.test(limit ?? "") ? Number(limit) : LIMITS[0]);

export function optionsOf(params) {
  const { filter, sort, by } = params;
  const group = { label: "label", photo: "off" }[by];
  return {
    include_candidates: true,
    mark_copies: true,
    limit: limitOf(params),
    ...(filter ? { filter } : {}),
    ...(sort ? { sort_by: sort } : {}),
    ...(group ? { group_by: group } : {}),
  };
}

// One search; what is kept already is not sent again.
export function send(gallery, { item, search, file }, options, signal) {
  const path = at(gallery, "/search");
  if (item) return post(path, { body: { item_id: item, ...options }, signal });
  if (search) return post(path, { body: { search_id: search, ...options }, signal });
  const form = new FormData();
  form.append("image", file);
  for (const [name, value] of Object.entries(options)) form.append(name, value);
  return post(path, { form, signal });
}

const pause = (ms, signal) => new Promise((done, fail) => {
  const timer = setTimeout(done, ms);
  signal.addEventListener("abort", () => { clearTimeout(timer); fail(signal.reason); }, { once: true });
});

// Where too much is asked at once, a second try is made when the server says so, and how long that is is told.
async function patiently(ask, signal, tellWait) {
  try {
    return await ask();
  } catch (error) {
    if (!(error instanceof Problem) || error.status !== 429 || !(error.seconds <= LONGEST_WAIT)) throw error;
    for (let left = error.seconds; left > 0; left -= 1) {
      tellWait(left);
      await pause(1000, signal);
    }
    tellWait(0);
    return await ask();
  }
}

function useUrl(file) {
  const [made, make] = useState({ file: null, url: null });
  useEffect(() => {
    if (!file) return undefined;
    const url = URL.createObjectURL(file);
    make({ file, url });
    return () => URL.revokeObjectURL(url);
  }, [file]);
  return made.file === file ? made.url : null;
}

// The query is {item}, {search} or {file, search}; `key` changes with it alone.
function queryOf({ item, kept }, held) {
  if (item) return { item, key: `item ${item}` };
  if (held.file && (!kept || kept === held.id)) return { file: held.file, search: held.id, key: held.file };
  return kept ? { search: kept, key: `kept ${kept}` } : null;
}

export function useSearch(gallery, params) {
  const [held, hold] = useState(NOTHING);
  const [wait, tellWait] = useState(0);
  const last = useRef({ key: null, answer: null });
  const query = queryOf(params, held);
  const { filter, sort, by } = params;
  const limit = limitOf(params);
  const found = useCall((signal) => {
    tellWait(0);
    return query && patiently(() => send(gallery, query, optionsOf(params), signal), signal, tellWait);
  }, [gallery, query?.key ?? null, filter, sort, by, limit], { refreshes: false });
  const url = useUrl(query?.file ?? null);
  useEffect(() => {
    const id = found.value?.search_id;
    if (!query?.file || !id || held.id) return;
    hold({ file: query.file, id });
    setParams({ kept: id });
  }, [found.value]);
  // While the same thing is searched for in another way, what was found stays on the screen.
  if (found.value) last.current = { key: query?.key, answer: found.value, before: last.current.answer };
  const answer = query && !found.error ? found.value ?? (found.isLoading && last.current.key === query.key ? last.current.answer : null) : null;
  return {
    query,
    answer,
    wait,
    error: query ? found.error : null,
    isWaiting: Boolean(query) && found.isLoading,
    again: found.again,
    name: query?.item ?? query?.file?.name ?? null,
    picture: query?.item ? thumbnail(gallery, query.item) : query?.file ? url : query ? keptPicture(gallery, query.search) : null,
    searchFile: (file) => { hold({ file, id: null }); setParams({ item: null, kept: null, why: null }); },
    searchItem: (id) => go("search", gallery, { ...params, item: id, kept: null, why: null }),
    clear: () => { hold(NOTHING); setParams({ item: null, kept: null, why: null }); },
  };
}
