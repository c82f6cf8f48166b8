// What asks before anything else goes on. The browser keeps the focus inside, and Escape closes it.
import { html, useLayoutEffect, useRef, useState } from "../lib/html.js";
import { store, useStore } from "../lib/store.js";
import { Button, Field, useId } from "./field.js";
import { Icon } from "./icon.js";

export function Dialog({ title, onClose, children, wide = false }) {
  const place = useRef();
  const id = useId();
  // Before anything is pressed: keys of the place are silent from here on.
  useLayoutEffect(() => {
    const opened = place.current, before = document.activeElement;
    opened.showModal();
    return () => {
      opened.close();
      before?.focus?.();
    };
  }, []);
  const cancel = (event) => { event.preventDefault(); onClose(); };
  // A press beside it closes it, unless it began inside.
  const press = (event) => { if (event.target === place.current) onClose(); };
  return html`<dialog ref=${place} class=${wide ? "dialog wide" : "dialog"} aria-labelledby=${id} onCancel=${cancel} onMouseDown=${press}>
    <div class="inside">
      <h2 id=${id} dir="auto">${title}</h2>
      ${children}
      <button type="button" class="button quiet small" aria-label="Close" onClick=${onClose}><${Icon} name="close" /></button>
    </div>
  </dialog>`;
}

const asked = store([]);

function put(question) {
  return new Promise((done) => {
    const answer = (value) => {
      asked.set((all) => all.filter((one) => one !== shown));
      done(value);
    };
    const shown = { ...question, answer };
    asked.set((all) => [...all, shown]);
  });
}

// Whether it shall be done.
export const ask = ({ title, text, yes, no = "Cancel", isDanger = false }) => put({ title, text, yes, no, isDanger });

// A text that is not empty; null where it was left.
export const askText = ({ title, label, value = "", yes = "Save", no = "Cancel" }) => put({ title, label, value, yes, no });

function Question({ title, text, label, value, yes, no, isDanger, answer }) {
  const isText = label !== undefined;
  const [given, give] = useState(value);
  const none = isText ? null : false;
  const done = (event) => {
    event.preventDefault();
    if (!isText) answer(true);
    else if (given.trim()) answer(given.trim());
  };
  return html`<${Dialog} title=${title} onClose=${() => answer(none)}>
    <form onSubmit=${done}>
      ${text && html`<p dir="auto">${text}</p>`}
      ${isText && html`<${Field} label=${label}>${(control) => html`<input type="text" dir="auto" autofocus value=${given} ...${control}
        onInput=${(event) => give(event.target.value)} />`}<//>`}
      <div class="row end">
        <${Button} autofocus=${isDanger} onClick=${() => answer(none)}>${no}<//>
        <${Button} type="submit" autofocus=${!isDanger && !isText} kind=${isDanger ? "danger" : "main"} disabled=${isText && !given.trim()}>${yes}<//>
      </div>
    </form>
  <//>`;
}

export function Dialogs() {
  const all = useStore(asked);
  return all.map((one) => html`<${Question} key=${one} ...${one} />`);
}
