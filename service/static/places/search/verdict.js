// The verdict of a search with its reason, and the address to send it to somebody.
import { html, useState } from "../../lib/html.js";
import { href } from "../../lib/router.js";
import { may } from "../../lib/session.js";
import { number, of100, sentence, short } from "../../lib/text.js";
import { THRESHOLDS, VERDICTS } from "../../lib/words.js";
import { Dialog } from "../../parts/dialog.js";
import { Button, Field } from "../../parts/field.js";

const UNDECIDED = { text: "Not decided", mark: "–", kind: "plain" };
const score = (value) => value.toFixed(3);

function inShort({ verdict, threshold, matches, candidates, groups, candidate_groups: below }) {
  const [best] = [...(groups ?? matches), ...(below ?? candidates)].sort((some, other) => other.score - some.score);
  const named = best && (best.label ?? best.group ?? best.id);
  const name = best && html`<bdi>${short(named, 60)}</bdi>`;
  if (!best) return html`Nothing here can be compared with it.`;
  if (verdict === null) return html`Most alike is ${name}, with a score of ${score(best.score)}.`;
  const line = score(threshold.value);
  if (verdict === "match") return html`It is ${name}: the score ${score(best.score)} is ${score(best.margin ?? best.score - threshold.value)} above the threshold of ${line}.`;
  if (verdict === "unsure") return html`It may be ${name}: the score ${score(best.score)} lies just below the threshold of ${line}.`;
  return html`Nothing reaches the threshold of ${line}. Most alike is ${name}, with a score of ${score(best.score)}.`;
}

function State({ gallery, threshold, n }) {
  const known = THRESHOLDS[threshold.drift && threshold.state === "current" ? "drift" : threshold.state];
  return html`${known && html`<p class=${known.kind ?? "soft"}>${known.text} ${known.way && may("admin", gallery) && html`<a href=${href(known.place ?? "calibrate", gallery)}>${known.way}</a>`}</p>`}
    ${threshold.note && !threshold.drift && html`<p class="soft">The filter leaves ${number(n)} ${n === 1 ? "photo" : "photos"}. The threshold was measured with all of them: among fewer, wrong matches come at most as often.</p>`}`;
}

const byChance = (p) => `Of 100 things that this gallery lacks, ${of100(p)} would score as high.`;

export function Verdict({ gallery, answer, children }) {
  const { text, mark, kind } = VERDICTS[answer.verdict] ?? UNDECIDED;
  const { threshold, verdict, p_value: p, left_out: out } = answer;
  return html`<div class=${`search-verdict ${kind}`} role="status">
    <h2><span class="mark" aria-hidden="true">${mark}</span> ${text}</h2>
    <p>${inShort(answer)}</p>
    ${answer.reason && html`<p class="soft" dir="auto">${sentence(short(answer.reason, 300))}</p>`}
    ${verdict !== "match" && p !== null && verdict !== null && html`<p class="soft">${byChance(p)}</p>`}
    ${out.length > 0 && html`<p class="soft">${out.length === 1 ? "One photo is" : `${number(out.length)} photos are`} left out: somebody said that this is something else.</p>`}
    <${State} gallery=${gallery} threshold=${threshold} n=${answer.n_searched} />
    <div class="row">${children}</div>
  </div>`;
}

// What an address leads to, in words.
function leadsTo({ query, answer }) {
  if (query.item) return "Whoever opens it, with access to this server, sees the same search.";
  if (query.search || answer.search_id) return "Whoever opens it, with access to this server, sees your photo and the same search, for as long as the server keeps it.";
  return "Your photo is on this device alone: this search is not kept, so that the address leads to the gallery and not to your photo.";
}

export function Share({ query, answer }) {
  const [isOpen, open] = useState(false);
  const [note, setNote] = useState(null);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(location.href);
      setNote("Copied.");
    } catch {
      setNote("The browser does not let this page copy: mark the address and copy it.");
    }
  };
  const close = () => { open(false); setNote(null); };
  return html`<${Button} onClick=${() => open(true)}>Share<//>
    ${isOpen && html`<${Dialog} title="Address of this search" onClose=${close}>
      <p>${leadsTo({ query, answer })}</p>
      <${Field} label="Address">${(control) => html`<input type="text" readonly value=${location.href} onFocus=${(event) => event.target.select()} ...${control} />`}<//>
      <div class="row end"><p role="status" class="soft">${note}</p><${Button} kind="main" onClick=${copy}>Copy<//></div><//>`}`;
}
