// A rate as a bar: the line is where it was measured, the pale part where it may truly be.
import { html } from "../lib/html.js";
import { percent } from "../lib/text.js";

const place = (share) => `${100 * Math.min(1, Math.max(0, share))}%`;

export const Interval = ({ label, rate, low, high, kind = "yes" }) => html`<div class=${`interval ${kind}`}>
  <p><span>${label}</span> <strong>${percent(rate)}</strong> <span class="soft">between ${percent(low)} and ${percent(high)}</span></p>
  <div class="bar" aria-hidden="true">
    <i style=${{ left: place(low), width: `calc(${place(high)} - ${place(low)})` }}></i><b style=${{ left: place(rate) }}></b>
  </div>
</div>`;
