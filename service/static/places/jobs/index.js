// What runs, and what ran.
import { html } from "../../lib/html.js";

export const title = "Jobs";
export const needs = "admin";

export const Place = () => html`<div class="head"><h1>${title}</h1><p>What runs, and what ran.</p></div>`;
