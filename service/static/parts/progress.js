// How far something is.
import { html } from "../lib/html.js";
import { lasting, number } from "../lib/text.js";
import { useId } from "./field.js";

export function Progress({ done, total, text, secondsLeft = null }) {
  const id = useId();
  const known = total > 0;
  const left = secondsLeft === null || secondsLeft === undefined ? "" : `, ${lasting(secondsLeft)} left`;
  return html`<div class="progress">
    <p id=${id} dir="auto">${text}</p>
    <progress aria-labelledby=${id} max=${known ? total : undefined} value=${known ? Math.min(done, total) : undefined}></progress>
    <p class="soft">${known ? `${number(done)} of ${number(total)}${left}` : left.slice(2)}</p>
  </div>`;
}
