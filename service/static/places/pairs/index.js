// Say of pairs of photos whether both show the same thing.
import { html } from "../../lib/html.js";

export const title = "Same or not?";
export const needs = "admin";

export const Place = () => html`<div class="head"><h1>${title}</h1><p>Say of pairs of photos whether both show the same thing.</p></div>`;
