// The galleries that there are, for all parts of the page at once.
import { get } from "./api.js";
import { store } from "./store.js";

// `list` is null until they are known; `problems` says by name why one cannot be opened.
export const galleries = store({ list: null, problems: {}, error: null });

export async function refreshGalleries(signal) {
  try {
    const { galleries: list, problems } = await get("v1/galleries", { signal });
    galleries.set({ list, problems: problems ?? {}, error: null });
  } catch (error) {
    if (!signal?.aborted) galleries.set((old) => ({ ...old, error }));
  }
}

// The one that has a name or an alias; undefined where there is none, or they are not known yet.
export const galleryOf = (name, { list } = galleries.get()) => list?.find((one) => one.name === name || one.aliases.includes(name));
