// Say what searches should have found: that tells how well this gallery is searched.
import { html } from "../../lib/html.js";

export const title = "Review";
export const needs = "admin";

export const Place = () => html`<div class="head"><h1>${title}</h1><p>Say what searches should have found: that tells how well this gallery is searched.</p></div>`;
