// What persons say of searches, in words.
import { html } from "../../lib/html.js";
import { short } from "../../lib/text.js";
import { VERDICTS } from "../../lib/words.js";

export const GOT = { match: "It got a match.", unsure: "The answer was not sure.", no_match: "It got no match." };
export const GETS = { match: "It gets a match.", unsure: "The answer is not sure.", no_match: "It gets no match." };

export function saidInWords({ kind, label, item_id: id }) {
  if (kind === "absent") return "We don't have it";
  if (kind === "unsure") return "Can't tell";
  if (kind === "wrong") return `The match ${short(id, 60)} is wrong`;
  return `It is ${short(label ?? id, 80)}`;
}

export function VerdictTag({ verdict }) {
  const known = VERDICTS[verdict];
  return known && html`<span class=${`tag ${known.kind}`}><span aria-hidden="true">${known.mark}</span> ${known.text}</span>`;
}
