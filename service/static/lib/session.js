// Who asks: what the key of this tab may, and what the server says where there is none.
import { get, inWords, post, Problem } from "./api.js";
import { galleryOf } from "./galleries.js";
import { dropKey, headers, keepKey, key, refusals } from "./key.js";
import { store } from "./store.js";
import { SCOPES } from "./words.js";

// state is "starting", "open", "asks" (for a key) or "away"; `me` is what `v1/me` answers.
export const session = store({ state: "starting", key: null, me: null, note: null });

const asks = (note) => session.set({ state: "asks", key: null, me: null, note });

// What a command opened the page with gets it a key, once; it is sent to nobody else, and not kept.
async function redeem(token) {
  try {
    keepKey((await post("label/key", { body: { token }, tries: 1 })).key);
  } catch (error) {
    // A page that was loaded again has the key already.
    if (!key.get()) throw error;
  }
}

export async function start(token = null) {
  session.set({ state: "starting", key: key.get(), me: null, note: null });
  try {
    if (token) await redeem(token);
    session.set({ state: "open", key: key.get(), me: await get("v1/me"), note: null });
  } catch (error) {
    if (error.status === 401) asks(key.get() ? "The server does not know this key." : "This server asks for a key.");
    else if (error.status === 404 && token) asks(inWords(error));
    else session.set({ state: "away", key: key.get(), me: null, note: inWords(error) });
  }
}

// What this key may; a problem of status 401 where it is none.
export async function useKey(given) {
  // What a header cannot hold is no key.
  if (!/^[\x21-\x7e]+$/.test(given)) throw new Problem(0, "no-key", "A key has letters, digits and signs, without spaces.");
  const me = await get("v1/me", { headers: headers(given) });
  keepKey(given);
  session.set({ state: "open", key: given, me, note: null });
  return me;
}

export async function forget() {
  dropKey();
  await start();
}

refusals.on(() => {
  if (session.get().state === "open") asks(key.get() ? "The server does not know this key any more." : "This server asks for a key.");
});

export function may(scope, gallery = null) {
  const { me } = session.get();
  if (!me) return false;
  // Of the galleries the server lists those alone that the key is for.
  const covers = gallery === null || me.galleries === null || me.galleries.includes(gallery) || galleryOf(gallery) !== undefined;
  return covers && (scope === null || me.scopes.includes(scope));
}

export const whyNot = (scope) => `The key of this page may not do this: it needs the right to ${SCOPES[scope].may}.`;
