// What happened, said once; and what stands where something else should: a fault, a wait, nothing yet.
import { inWords } from "../lib/api.js";
import { html, useEffect } from "../lib/html.js";
import { store, useStore } from "../lib/store.js";
import { Button } from "./field.js";
import { Icon } from "./icon.js";

const SECONDS = 8;
const MOST = 3;
const notices = store([]);
let made = 0;

const remove = (id) => notices.set((all) => all.filter((one) => one.id !== id));

// A sentence at the edge of the page; with `undo` it can be taken back from there.
export function tell(text, { kind = "done", undo = null } = {}) {
  const id = (made += 1);
  notices.set((all) => [...all.slice(1 - MOST), { id, text, kind, undo }]);
}

function Notice({ id, text, kind, undo }) {
  useEffect(() => {
    // What went wrong stays until it was read.
    if (kind === "wrong") return undefined;
    const timer = setTimeout(() => remove(id), 1000 * (undo ? 2 * SECONDS : SECONDS));
    return () => clearTimeout(timer);
  }, [id]);
  const back = async () => {
    remove(id);
    try {
      await undo();
    } catch (error) {
      tell(inWords(error), { kind: "wrong" });
    }
  };
  return html`<div class=${`notice ${kind}`}>
    <span class="mark" aria-hidden="true">${kind === "wrong" ? "✕" : "✓"}</span><p dir="auto">${text}</p>
    ${undo && html`<${Button} kind="quiet" onClick=${back}>Undo<//>`}
    <button type="button" class="button quiet small" aria-label="Close this note" onClick=${() => remove(id)}><${Icon} name="close" /></button>
  </div>`;
}

export function Notices() {
  const all = useStore(notices);
  return html`<div class="notices" role="status" aria-live="polite">${all.map((one) => html`<${Notice} key=${one.id} ...${one} />`)}</div>`;
}

// What went wrong, and a way to try it again.
export const Fault = ({ error, again = null }) => error && html`<div class="fault" role="alert">
  <span class="mark" aria-hidden="true">✕</span><p dir="auto">${typeof error === "string" ? error : inWords(error)}</p>
  ${again && html`<${Button} onClick=${() => again()}>Try again<//>`}
</div>`;

export const Waiting = ({ text = "Loading…" }) => html`<p class="waiting" role="status"><span class="turning" aria-hidden="true"></span>${text}</p>`;

// `level` is that of its heading: 1 where it is all that the place shows.
export const Empty = ({ title, text = null, children = null, level = 2 }) => html`<div class="empty">
  <${`h${level}`} dir="auto">${title}<//>${text && html`<p>${text}</p>`}${children && html`<div class="row">${children}</div>`}
</div>`;
