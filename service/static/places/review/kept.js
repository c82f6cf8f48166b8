// Searches that were kept, of one kind: one is answered by itself, many at once.
import { admin, at, del, get, inWords, post } from "../../lib/api.js";
import { html, useEffect, useRef, useState } from "../../lib/html.js";
import { keptPicture } from "../../lib/pictures.js";
import { number, sentence, short, when } from "../../lib/text.js";
import { Dialog } from "../../parts/dialog.js";
import { Button } from "../../parts/field.js";
import { Empty, Fault, tell, Waiting } from "../../parts/notice.js";
import { Picture } from "../../parts/picture.js";
import { Batch } from "./batch.js";
import { Question } from "./question.js";
import { GOT, saidInWords, VerdictTag } from "./words.js";

const SIZE = 48;
const NONE = {
  no_match: ["Nobody was told “no match”", "Searches that find nothing come here."],
  unsure: ["No answer was unsure", "Searches that are near the threshold come here."],
  wrong: ["No match was called wrong", "What people say is wrong comes here."],
};

function Search({ gallery, search, isMarked, onMark, onOpen }) {
  const name = `Search of ${when(search.at)}`;
  return html`<li class=${isMarked ? "review-kept is-marked" : "review-kept"}>
    <button type="button" onClick=${onOpen} aria-label=${`${name}: say what it is`}>
      ${search.has_picture ? html`<${Picture} path=${keptPicture(gallery, search.id)} />` : html`<span class="picture missing">no picture</span>`}
    </button>
    <label class="tick"><input type="checkbox" checked=${isMarked} aria-label=${`Mark ${name}`} onClick=${(event) => onMark(event.target.checked, event.shiftKey)} />
      <span><${VerdictTag} verdict=${search.verdict} /> <span class="soft small">${when(search.at)}</span></span></label>
    <ul class="review-answers">${search.answers.map((one) => html`<li key=${one.number} dir="auto">${saidInWords(one)}${one.is_hint && " (does not count)"}</li>`)}
      ${!search.answers.length && html`<li class="soft">Not answered yet</li>`}</ul>
  </li>`;
}

// What is there so far, and what is said of it without loading all of it again.
function useSearches(gallery, shown) {
  const [found, set] = useState({ list: null, next: null, error: null, isLoading: false });
  const stop = useRef(new AbortController());
  const more = async (after) => {
    set((old) => ({ ...old, isLoading: true, error: null }));
    try {
      const page = await get(admin(gallery, "/searches"), { query: { shown, after, size: SIZE }, signal: stop.current.signal });
      set((old) => ({ list: [...(after ? old.list : []), ...page.searches], next: page.next, error: null, isLoading: false }));
    } catch (error) {
      if (!stop.current.signal.aborted) set((old) => ({ ...old, error, isLoading: false }));
    }
  };
  useEffect(() => {
    stop.current = new AbortController();
    more(null);
    return () => stop.current.abort();
  }, [gallery, shown]);
  const change = (f) => set((old) => ({ ...old, list: old.list.map((one) => ({ ...one, answers: f(one) })) }));
  const keep = (given) => change(({ id, answers }) => {
    const own = given.filter((one) => one.search_id === id);
    return [...answers.filter((one) => !own.some(({ by, kind }) => by === one.by && (kind === "wrong") === (one.kind === "wrong"))), ...own];
  });
  const forget = (numbers) => change(({ answers }) => answers.filter((one) => !numbers.has(one.number)));
  return { ...found, more, keep, forget };
}

export function Kept({ gallery, shown, onAnswer }) {
  const { list, next, error, isLoading, more, keep, forget } = useSearches(gallery, shown);
  const [marked, mark] = useState(new Set());
  const [isBusy, setBusy] = useState(false);
  const [opened, open] = useState(null);
  const from = useRef(null);

  const back = async (given) => {
    for (const { number: one } of given) await del(at(gallery, `/answers/${one}`));
    forget(new Set(given.map((one) => one.number)));
    onAnswer();
  };
  const say = async (ids, said) => {
    if (isBusy || !ids.length) return;
    setBusy(true);
    try {
      const given = [], refused = [];
      for (let place = 0; place < ids.length; place += 200) {
        const body = { answers: ids.slice(place, place + 200).map((id) => ({ search_id: id, ...said })) };
        const answer = await post(at(gallery, "/answer-batches"), { body });
        given.push(...answer.given.filter(Boolean));
        refused.push(...answer.refused);
        keep(answer.given.filter(Boolean));
      }
      if (given.length) tell(`${saidInWords(given[0])}: kept for ${number(given.length)} ${given.length === 1 ? "search" : "searches"}.`, { undo: () => back(given) });
      if (refused.length) tell(`${number(refused.length)} could not be kept: ${sentence(refused[0].reason)}`, { kind: "wrong" });
      mark(new Set());
      open(null);
      onAnswer();
    } catch (problem) {
      tell(inWords(problem), { kind: "wrong" });
    }
    setBusy(false);
  };
  // With Shift all from the one before are marked too.
  const set = (place, isOn, isRange) => {
    const [first, last] = isRange && from.current !== null ? [from.current, place].sort((a, b) => a - b) : [place, place];
    from.current = place;
    mark((old) => {
      const all = new Set(old);
      for (const { id } of list.slice(first, last + 1)) isOn ? all.add(id) : all.delete(id);
      return all;
    });
  };
  const [none, why] = NONE[shown] ?? ["No search is kept", "Whoever runs this server can let it keep searches: its setting is keep_searches."];
  return html`<${Fault} error=${error} again=${() => more(list ? next : null)} />
    ${!list && !error && html`<${Waiting} />`}
    ${list?.length === 0 && html`<${Empty} title=${none} text=${why} />`}
    ${list?.length > 0 && html`
      <p class="soft review-hint">Mark those that show the same, and answer once. What you choose yourself counts in the bars from when it is drawn.</p>
      <ul class="review-searches">${list.map((one, place) => html`<${Search} key=${one.id} gallery=${gallery} search=${one} isMarked=${marked.has(one.id)}
        onMark=${(isOn, isRange) => set(place, isOn, isRange)} onOpen=${() => open(one.id)} />`)}</ul>
      <div class="row">
        <${Button} onClick=${() => mark(new Set(marked.size === list.length ? [] : list.map(({ id }) => id)))}>${marked.size === list.length ? "Mark none" : `Mark all ${number(list.length)}`}<//>
        ${next && html`<${Button} busy=${isLoading} onClick=${() => more(next)}>Show more<//>`}
      </div>
      ${marked.size > 0 && html`<${Batch} gallery=${gallery} n=${marked.size} isBusy=${isBusy} onSay=${(said) => say([...marked], said)} onClear=${() => mark(new Set())} />`}`}
    ${opened && html`<${Opened} gallery=${gallery} search=${list.find(({ id }) => id === opened)} isBusy=${isBusy} onSay=${(said) => say([opened], said)} onBack=${back} onClose=${() => open(null)} />`}`;
}

function Opened({ gallery, search, isBusy, onSay, onBack, onClose }) {
  const undo = async () => {
    try {
      await onBack([search.answers.at(-1)]);
    } catch (error) {
      tell(inWords(error), { kind: "wrong" });
    }
  };
  return html`<${Dialog} wide title=${`Search of ${short(when(search.at), 40)}`} onClose=${onClose}>
    <${Question} gallery=${gallery} search=${search} gets=${GOT} note=${sentence(search.note)} isBusy=${isBusy} isInDialog onSay=${onSay} onUndo=${search.answers.length ? undo : null} />
  <//>`;
}
