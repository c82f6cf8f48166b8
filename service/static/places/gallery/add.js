// More photos for this gallery.
import { html } from "../../lib/html.js";

export const title = "Add";
export const needs = "write";

export const Place = () => html`<div class="head"><h1>${title}</h1><p>More photos for this gallery.</p></div>`;
