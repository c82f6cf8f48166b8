// What is asked of a threshold, in words around a number of 100.
import { html, useState } from "../../lib/html.js";
import { TARGETS } from "../../lib/words.js";
import { useId } from "../../parts/field.js";

const [LEAST, MOST] = [0.1, 50];

// A number of 100 that a target can hold; of a precision the other side counts.
export function problemOf(name, text) {
  const value = Number(text);
  if (!text.trim() || !Number.isFinite(value)) return "Write a number.";
  const side = name === "precision" ? 100 - value : value;
  const [low, high] = name === "precision" ? [100 - MOST, 100 - LEAST] : [LEAST, MOST];
  return side < LEAST || side > MOST ? `Choose a number from ${low} to ${high}.` : null;
}

// {name, text}: "fpir", "5" is `fpir=5%`.
export const targetText = ({ name, text }) => `${name}=${Number(text)}%`;
export const usual = (name = "fpir") => ({ name, text: String(TARGETS[name].usual) });

// Whether scores of two calibrations mean the same: of one model, searched in one way.
export const isSameSpace = (one, other) => one.bundle === other.bundle && JSON.stringify(one.pipeline) === JSON.stringify(other.pipeline);

// The target of a record, "FPIR 5 %", as a sentence.
export function inWordsOf(target) {
  const [, name, value] = /^(FPIR|FNIR|precision) ([\d.e-]+) %/.exec(target ?? "") ?? [];
  const words = name && TARGETS[name.toLowerCase()];
  return words ? `${words.before} ${Number(value)} ${words.after}` : target;
}

export function Targets({ value, onChange }) {
  const id = useId();
  const [texts, setTexts] = useState(() => ({ ...Object.fromEntries(Object.keys(TARGETS).map((name) => [name, usual(name).text])), [value.name]: value.text }));
  const type = (name, text) => {
    setTexts({ ...texts, [name]: text });
    onChange({ name, text });
  };
  return html`<fieldset class="calibrate-targets"><legend>What matters most to you?</legend>
    ${Object.entries(TARGETS).map(([name, { before, after }]) => {
      const isOn = value.name === name, wrong = isOn ? problemOf(name, texts[name]) : null;
      return html`<div key=${name} class=${`calibrate-target ${isOn ? "on" : ""}`}>
        <input type="radio" id=${`${id}-${name}`} name=${id} checked=${isOn} onChange=${() => onChange({ name, text: texts[name] })} />
        <label for=${`${id}-${name}`}>${before}</label>
        <input type="number" inputmode="decimal" min="0.1" max="99.9" step="any" value=${texts[name]} aria-label=${`${before} … ${after}: number`}
          aria-invalid=${wrong ? "true" : undefined} onFocus=${() => { if (!isOn) onChange({ name, text: texts[name] }); }} onInput=${(event) => type(name, event.target.value)} />
        <span>${after}</span>
        ${wrong && html`<p class="wrong small" role="alert">${wrong}</p>`}
      </div>`;
    })}
  </fieldset>`;
}
