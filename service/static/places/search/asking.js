// What a person says of a search: this is it, this is not it, none of these, the gallery has it as that.
import { at, del, inWords, post } from "../../lib/api.js";
import { html, useEffect, useRef, useState } from "../../lib/html.js";
import { short } from "../../lib/text.js";
import { Dialog } from "../../parts/dialog.js";
import { Button } from "../../parts/field.js";
import { LabelSearch } from "../../parts/labels.js";
import { tell } from "../../parts/notice.js";

const NONE = { whole: null, wrong: {} };

// Why nothing can be said of this search; null where it can.
export function whyNotKept({ query, answer, params }) {
  if (answer.search_id) return null;
  if (query.item) return "This search is for a photo of the gallery itself, so there is nothing to tell it.";
  if (params.filter) return "A search with a filter is not kept, so you cannot say what is right here. Take the filter away first.";
  return "This search was not kept, so you cannot say here what is right. Whoever runs the server turns that on with the setting keep_searches; of many searches at once it keeps some.";
}

// `said` is what this page said of the search: {whole: {kind, item, label, number}, wrong: {id: number}}.
export function useAnswers(gallery, search) {
  const [said, say] = useState(NONE);
  const [isBusy, setBusy] = useState(false);
  const now = useRef(search);
  now.current = search;
  useEffect(() => say(NONE), [gallery, search]);
  const change = (next) => { if (now.current === search) say(next); };
  const give = async (answer, note, kept) => {
    if (isBusy) return;
    setBusy(true);
    try {
      const given = await post(at(gallery, "/answers"), { body: { search_id: search, ...answer } });
      change((old) => kept(old, given.number));
      const undo = async () => {
        await del(at(gallery, `/answers/${given.number}`));
        change((old) => ({
          whole: old.whole?.number === given.number ? null : old.whole,
          wrong: Object.fromEntries(Object.entries(old.wrong).filter(([, number]) => number !== given.number)),
        }));
      };
      tell([note, given.disagrees && `But ${given.disagrees}.`].filter(Boolean).join(" "), { undo });
    } catch (error) {
      tell(inWords(error), { kind: "wrong" });
    }
    setBusy(false);
  };
  const whole = (whole) => (old, number) => ({ ...old, whole: { ...whole, number } });
  return {
    said,
    isBusy,
    isIt: (id) => give({ item_id: id }, "Noted: this is it.", (old, number) => ({ whole: { kind: "item", item: id, number }, wrong: { ...old.wrong, [id]: undefined } })),
    isNotIt: (id) => give({ wrong: id }, "Noted: this is something else. It is not shown for this photo any more.", (old, number) => ({ ...old, wrong: { ...old.wrong, [id]: number } })),
    isAbsent: () => give({ absent: true }, "Noted: the gallery does not have it.", whole({ kind: "absent" })),
    isUnsure: () => give({ unsure: true }, "Noted: it cannot be told.", whole({ kind: "unsure" })),
    isLabel: (label) => give({ label }, `Noted: it is “${short(label, 40)}”.`, whole({ kind: "label", label })),
  };
}

const Said = ({ whole }) => {
  const words = { item: "You said which photo it is.", absent: "You said that the gallery does not have it.", unsure: "You said that it cannot be told." };
  return html`<p class="search-noted"><span class="mark yes" aria-hidden="true">✓</span>
    ${whole.kind === "label" ? html`<span>You said that it is <bdi>${short(whole.label, 60)}</bdi>.</span>` : words[whole.kind]}</p>`;
};

// The question at the verdict.
export function Asking({ gallery, answers, hasResults }) {
  const [isOpen, open] = useState(false);
  const { said, isBusy, isAbsent, isUnsure, isLabel } = answers;
  const choose = (label) => { open(false); isLabel(label); };
  return html`<div class="search-asking">
    <p><strong>Is this right?</strong> <span class="soft">Your answer shows how good this gallery is.</span></p>
    ${said.whole && html`<${Said} whole=${said.whole} />`}
    <div class="row">
      <${Button} busy=${isBusy} onClick=${() => open(true)}>We have it: …<//>
      <${Button} busy=${isBusy} onClick=${isAbsent}>${hasResults ? "None of these" : "We do not have it"}<//>
      <${Button} kind="quiet" busy=${isBusy} onClick=${isUnsure}>Cannot tell<//>
    </div>
    ${isOpen && html`<${Dialog} title="We have it as …" onClose=${() => open(false)}>
      <${LabelSearch} gallery=${gallery} onChoose=${choose} label="Label of the thing in your photo" /><//>`}
  </div>`;
}

// The question at a result.
export function AskingOf({ found, answers }) {
  const { said, isBusy, isIt, isNotIt } = answers;
  const isRight = said.whole?.item === found.id, isWrong = said.wrong[found.id] !== undefined;
  const button = (text, mark, kind, isSaid, does) => html`<button type="button" class=${`button ${isSaid ? kind : ""}`} aria-pressed=${isSaid ? "true" : "false"}
    aria-busy=${isBusy ? "true" : undefined} onClick=${does}><span class="mark" aria-hidden="true">${mark}</span>${text}</button>`;
  return html`<div class="search-right" role="group" aria-label=${`Is this right? ${short(found.label ?? found.id, 60)}`}>
    ${button("Right", "✓", "yes", isRight, () => isIt(found.id))}${button("Wrong", "✕", "no", isWrong, () => isNotIt(found.id))}
  </div>`;
}
