// Finds a label of a gallery by what is typed.
import { at, get, useCall } from "../lib/api.js";
import { html, useEffect, useState } from "../lib/html.js";
import { number, short } from "../lib/text.js";
import { Field } from "./field.js";
import { Fault } from "./notice.js";

const PAUSE = 150;
const MOST = 12;

function useRested(value, ms = PAUSE) {
  const [rested, rest] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => rest(value), ms);
    return () => clearTimeout(timer);
  }, [value]);
  return rested;
}

export function LabelSearch({ gallery, onChoose, mayBeNew = false, label = "Label" }) {
  const [typed, type] = useState("");
  const like = useRested(typed.trim());
  const found = useCall((signal) => get(at(gallery, "/labels"), { query: { like, size: MOST }, signal }), [gallery, like], { refreshes: false });
  const labels = found.value?.labels ?? [];
  const isKnown = labels.some((one) => one.label === like);
  const choose = (event) => {
    event.preventDefault();
    // What was typed since then is not what is shown.
    if (like !== typed.trim() || !found.value) return;
    if (isKnown) onChoose(like);
    else if (labels.length) onChoose(labels[0].label);
    else if (mayBeNew && like) onChoose(like);
  };
  return html`<form class="labels" onSubmit=${choose}>
    <${Field} label=${label}>${(control) => html`<input type="search" autocomplete="off" spellcheck=${false} dir="auto" value=${typed}
      onInput=${(event) => type(event.target.value)} ...${control} />`}<//>
    <${Fault} error=${found.error} again=${found.again} />
    <div class="row" aria-live="polite">
      ${labels.map((one) => html`<button key=${one.label} type="button" class="button chip" onClick=${() => onChoose(one.label)}>
        <bdi>${short(one.label, 60)}</bdi> <span class="soft">${number(one.n_items)}</span></button>`)}
      ${mayBeNew && like && found.value && !isKnown && html`<button type="button" class="button chip" onClick=${() => onChoose(like)}>
        New: <bdi>${short(like, 60)}</bdi></button>`}
      ${found.value && !labels.length && !mayBeNew && html`<p class="soft">There is no such label.</p>`}
    </div>
  </form>`;
}
