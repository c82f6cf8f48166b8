// What calls notice of the server: whether it answers, and whether the galleries that were listed are all there.
import { store } from "./store.js";

export const isAway = store(false);
// Counts how often a gallery was asked for that is not there any more.
export const losses = store(0);

// Resolves when the server answers again, after `ms`, or when `signal` stops it.
export const rest = (ms, signal) => new Promise((done) => {
  const over = () => { clearTimeout(timer); off(); signal?.removeEventListener("abort", over); done(); };
  const timer = setTimeout(over, ms);
  const off = isAway.on((away) => { if (!away) over(); });
  signal?.addEventListener("abort", over, { once: true });
});
