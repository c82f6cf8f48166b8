// Views of one place, of which one is shown.
import { html, useRef } from "../lib/html.js";

const STEPS = { ArrowLeft: -1, ArrowRight: 1 };

export function Tabs({ value, tabs, onChange, label = "Views" }) {
  const place = useRef();
  const step = (event) => {
    const by = STEPS[event.key];
    if (!by) return;
    event.preventDefault();
    const now = tabs.findIndex(([one]) => one === value);
    const next = (now + by + tabs.length) % tabs.length;
    onChange(tabs[next][0]);
    place.current.children[next].focus();
  };
  return html`<div class="tabs" role="tablist" aria-label=${label} ref=${place} onKeyDown=${step}>
    ${tabs.map(([one, text]) => html`<button key=${one} type="button" role="tab" aria-selected=${one === value ? "true" : "false"}
      tabindex=${one === value ? 0 : -1} onClick=${() => onChange(one)}>${text}</button>`)}
  </div>`;
}
