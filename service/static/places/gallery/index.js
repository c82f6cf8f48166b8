// What this gallery holds.
import { html } from "../../lib/html.js";

export const title = "Photos";
export const needs = "search";

export const Place = () => html`<div class="head"><h1>${title}</h1><p>What this gallery holds.</p></div>`;
