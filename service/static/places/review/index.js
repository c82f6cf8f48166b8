// Review: what searches showed, said by a person with one key an answer; and what is known by that.
import { admin, get, useCall } from "../../lib/api.js";
import { html } from "../../lib/html.js";
import { setParams } from "../../lib/router.js";
import { number } from "../../lib/text.js";
import { Fault, Waiting } from "../../parts/notice.js";
import { Tabs } from "../../parts/tabs.js";
import { Inbox } from "./inbox.js";
import { Kept } from "./kept.js";
import { Known } from "./known.js";

export const title = "Review";
export const needs = "admin";

const INBOX = "next";
const VIEWS = [[INBOX, "Next question"], ["no_match", "No match"], ["unsure", "Not sure"], ["wrong", "Wrong matches"], ["all", "All searches"]];

export function Place({ gallery, params }) {
  const view = VIEWS.some(([one]) => one === params.shown) ? params.shown : INBOX;
  const known = useCall((signal) => get(admin(gallery, "/answers"), { signal }), [gallery]);
  const n = known.value?.n_answered;
  return html`<div class="head"><h1>${title}</h1>
      ${n !== undefined && html`<span class="soft" role="status">${number(n)} ${n === 1 ? "answer" : "answers"}</span>`}
      <p>Somebody searched for these things. Say what each one is: that tells how well this gallery is searched.</p></div>
    <${Tabs} label="Which searches" value=${view} tabs=${VIEWS} onChange=${(shown) => setParams({ shown: shown === INBOX ? null : shown })} />
    <div class="review">
      <section class="review-asked" aria-label="Searches">
        ${view === INBOX
          ? html`<${Inbox} gallery=${gallery} isNoneKept=${known.value?.n_kept === 0} onAnswer=${known.again} />`
          : html`<${Kept} key=${view} gallery=${gallery} shown=${view === "all" ? null : view} onAnswer=${known.again} />`}
      </section>
      <aside class="review-known card" aria-label="What is known now">
        <h2>What is known now</h2>
        <${Fault} error=${known.error} again=${known.again} />
        ${known.value ? html`<${Known} gallery=${gallery} known=${known.value} onChange=${known.again} />` : !known.error && html`<${Waiting} />`}
      </aside>
    </div>`;
}
