// Choose how sure a match has to be.
import { html } from "../../lib/html.js";

export const title = "Calibrate";
export const needs = "admin";

export const Place = () => html`<div class="head"><h1>${title}</h1><p>Choose how sure a match has to be.</p></div>`;
