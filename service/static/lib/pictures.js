// Pictures: an image element sends no key, so that with one they are fetched and kept as addresses of this tab.
import { at, blob } from "./api.js";
import { key } from "./key.js";

const MOST = 400;
const kept = new Map();

const query = (name, value) => `?${name}=${encodeURIComponent(value)}`;

export const thumbnail = (gallery, id) => at(gallery, `/thumbnail${query("id", id)}`);
export const original = (gallery, id) => at(gallery, `/image${query("id", id)}`);
export const keptPicture = (gallery, searchId) => at(gallery, `/kept/${encodeURIComponent(searchId)}/picture`);

function drop(path) {
  URL.revokeObjectURL(kept.get(path));
  kept.delete(path);
}

// What another key may see is not shown with this one.
key.on(() => { for (const path of [...kept.keys()]) drop(path); });

// Where an image element finds a picture; the oldest of those that were fetched go first. `isFetched` where it did
// not find it by its path: an element asks once, a fetch three times.
export async function pictureUrl(path, signal, isFetched = false) {
  if (!(key.get() || isFetched) || /^(?:blob|data):/.test(path)) return path;
  let url = kept.get(path);
  if (url === undefined) {
    const content = await blob(path, { signal });
    // Who asked for the same meanwhile shows it by the address that there is.
    url = kept.get(path) ?? URL.createObjectURL(content);
  }
  kept.delete(path);
  if (kept.size >= MOST) drop(kept.keys().next().value);
  kept.set(path, url);
  return url;
}
