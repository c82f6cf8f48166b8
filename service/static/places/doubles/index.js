// Photos that are there more than once.
import { html } from "../../lib/html.js";

export const title = "Doubles";
export const needs = "admin";

export const Place = () => html`<div class="head"><h1>${title}</h1><p>Photos that are there more than once.</p></div>`;
