// What can follow of the last answer: its photo joins the gallery, or what it wrongly got is looked at and set aside.
import { admin, at, del, get, inWords, post } from "../../lib/api.js";
import { html, useState } from "../../lib/html.js";
import { may, whyNot } from "../../lib/session.js";
import { sentence, short } from "../../lib/text.js";
import { askText } from "../../parts/dialog.js";
import { Button } from "../../parts/field.js";
import { tell } from "../../parts/notice.js";
import { saidInWords } from "./words.js";

export function Last({ gallery, question, kept }) {
  const [told, setTold] = useState([]);
  const [busy, setBusy] = useState(null);
  const [isAdded, setAdded] = useState(false);
  const [culprit, setCulprit] = useState(null);
  const [isAside, setAside] = useState(false);
  const best = question.candidates[0];
  const isWrong = question.verdict === "match" && best && kept.kind !== "unsure" && (kept.kind === "absent" || best.label !== kept.label);
  const search = encodeURIComponent(kept.search_id);
  const step = (name, work) => async () => {
    setBusy(name);
    try {
      await work();
    } catch (error) {
      tell(inWords(error), { kind: "wrong" });
    }
    setBusy(null);
  };
  const add = step("add", async () => {
    const { added, passed } = await post(admin(gallery, "/answers/items"), { body: { search_ids: [kept.search_id] } });
    setAdded(true);
    if (added.length) tell("The photo is in the gallery now.", { undo: async () => { await del(admin(gallery, `/searches/${search}/item`)); setAdded(false); } });
    else if (passed.length) setTold((all) => [...all, `It was not added: ${sentence(passed[0].reason)}`]);
  });
  const explain = step("why", async () => {
    const { sentence: text, carrier } = await get(admin(gallery, `/searches/${search}/why`), { query: { id: best.id } });
    setTold((all) => [...all, sentence(text)]);
    setCulprit(carrier?.id ?? false);
  });
  const aside = step("aside", async () => {
    const reason = await askText({ title: "Set it aside", label: "Why? Others will read it.", yes: "Set it aside" });
    if (reason === null) return;
    await post(at(gallery, "/set-aside"), { body: { ids: [culprit], reason } });
    setAside(true);
    tell("Nothing finds it until it is brought back.", { undo: async () => { await del(at(gallery, "/set-aside"), { query: { id: culprit } }); setAside(false); } });
  });
  return html`<section class="review-last card" aria-live="polite" aria-label="The last answer">
    <p><span class="yes" aria-hidden="true">✓</span> <strong dir="auto">${saidInWords(kept)}</strong>${isWrong && html` <span class="soft">It got a match with <bdi>${short(best.label ?? best.id, 60)}</bdi>.</span>`}</p>
    ${kept.disagrees && html`<p class="unsure" dir="auto">Of this one ${sentence(kept.disagrees).replace(/^./, (one) => one.toLowerCase())}</p>`}
    ${told.map((one) => html`<p key=${one} dir="auto">${one}</p>`)}
    <div class="row">
      ${kept.label && question.has_picture && !isAdded && html`<${Button} busy=${busy === "add"} onClick=${add}>Add this photo to the gallery<//>`}
      ${isWrong && culprit === null && html`<${Button} busy=${busy === "why"} onClick=${explain}>Why did it match?<//>`}
      ${culprit && !isAside && (may("write", gallery)
        ? html`<${Button} busy=${busy === "aside"} onClick=${aside}>Set <bdi>${short(culprit, 40)}</bdi> aside<//>`
        : html`<p class="soft">${whyNot("write")}</p>`)}
    </div>
  </section>`;
}
