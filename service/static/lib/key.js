// The key stays in this tab alone: it is in no address, and is gone with the tab.
import { store } from "./store.js";

const NAME = "vicinal-api-key";

// Counts how often the server refused who asks: the page then asks for a key.
export const refusals = store(0);
export const key = store(sessionStorage.getItem(NAME));

export const headers = (sent = key.get()) => (sent ? { "X-API-Key": sent } : {});

export function keepKey(given) {
  sessionStorage.setItem(NAME, given);
  key.set(given);
}

export function dropKey() {
  sessionStorage.removeItem(NAME);
  key.set(null);
}
