// Fields of forms, and buttons. Each has a name that is seen, and what is wrong stands below it.
import { html, useMemo } from "../lib/html.js";

let made = 0;
export const useId = () => useMemo(() => `f${(made += 1)}`, []);

// `children` is a function of what the control itself needs: html`<${Field} label="Name">${(a) => html`<input ...${a} />`}<//>`
export function Field({ label, hint = null, error = null, children }) {
  const id = useId();
  const told = [hint && `${id}-hint`, error && `${id}-error`].filter(Boolean).join(" ") || undefined;
  const control = { id, "aria-describedby": told, "aria-invalid": error ? "true" : undefined };
  return html`<div class="field">
    <label for=${id}>${label}</label>
    ${typeof children === "function" ? children(control) : children}
    ${hint && html`<p class="hint" id=${`${id}-hint`}>${hint}</p>`}
    ${error && html`<p class="wrong" id=${`${id}-error`} role="alert">${error}</p>`}
  </div>`;
}

// One of few: `options` are [value, text].
export function Choice({ label, value, options, onChange, ...others }) {
  const id = useId();
  return html`<div class="field choice">
    <label for=${id}>${label}</label>
    <select id=${id} value=${value} onChange=${(event) => onChange(event.target.value)} ...${others}>
      ${options.map(([one, text]) => html`<option key=${one} value=${one} selected=${one === value}>${text}</option>`)}
    </select>
  </div>`;
}

export const Tick = ({ label, checked, onChange, ...others }) => html`<label class="tick">
  <input type="checkbox" checked=${checked} onChange=${(event) => onChange(event.target.checked)} ...${others} /><span>${label}</span>
</label>`;

// kind is "plain", "main" (one a view), "danger" or "quiet"; while it is busy it cannot be pressed again.
export function Button({ kind = "plain", busy = false, onClick, children, type = "button", disabled = false, ...others }) {
  const press = (event) => { if (!busy) onClick?.(event); };
  return html`<button type=${type} class=${`button ${kind}`} disabled=${disabled} aria-busy=${busy ? "true" : undefined}
    aria-disabled=${busy ? "true" : undefined} onClick=${press} ...${others}>${children}</button>`;
}
