// The inbox: one search after the other, each the one whose answer teaches most.
import { admin, at, del, get, post } from "../../lib/api.js";
import { html, useEffect, useRef, useState } from "../../lib/html.js";
import { keptPicture, thumbnail } from "../../lib/pictures.js";
import { href } from "../../lib/router.js";
import { sentence } from "../../lib/text.js";
import { Empty, Fault, Waiting } from "../../parts/notice.js";
import { useShortcuts } from "../../parts/shortcuts.js";
import { Last } from "./last.js";
import { preload, Question } from "./question.js";

const AHEAD = 3;

// Questions that are open: `say` answers the first of them, `undo` takes the last answer back and asks it again.
function useInbox(gallery, onAnswer) {
  const [shown, show] = useState({ questions: null, error: null, isBusy: false, given: [], last: null });
  const now = useRef(shown);
  const turn = useRef(0);
  const change = (part) => { now.current = { ...now.current, ...part }; show(now.current); };
  const load = async () => {
    // What was asked for before an answer was given may hold its question.
    const own = (turn.current += 1);
    try {
      const { questions } = await get(admin(gallery, "/answers/next"), { query: { n: AHEAD } });
      if (own === turn.current) change({ questions, error: null });
    } catch (error) {
      if (own === turn.current) change({ error });
    }
  };
  const step = async (work) => {
    if (now.current.isBusy) return;
    change({ isBusy: true });
    try {
      await work();
      change({ error: null });
      onAnswer();
      load();
    } catch (error) {
      change({ error });
    }
    change({ isBusy: false });
  };
  useEffect(() => {
    load();
    return () => { turn.current += 1; };
  }, [gallery]);
  const say = (said) => now.current.questions?.length && step(async () => {
    const [question, ...later] = now.current.questions;
    const kept = await post(at(gallery, "/answers"), { body: { search_id: question.search_id, ...said } });
    change({ questions: later.length ? later : null, given: [...now.current.given, { question, number: kept.number }], last: { question, kept } });
  });
  const undo = () => now.current.given.length && step(async () => {
    const { number, question } = now.current.given.at(-1);
    await del(at(gallery, `/answers/${number}`));
    change({ given: now.current.given.slice(0, -1), last: null, questions: [question, ...(now.current.questions ?? [])] });
  });
  return { ...shown, say, undo, load };
}

const NoneKept = ({ gallery }) => html`<${Empty} title="No search was kept yet" text="Search with photos as people take them: the searches come here to be answered. If none comes, this server keeps no searches. Whoever runs it turns that on with the line keep_searches = 1000 in vicinal.toml, and starts it again.">
  <a class="button main" href=${href("search", gallery)}>Search</a><//>`;

export function Inbox({ gallery, isNoneKept, onAnswer }) {
  const { questions, error, isBusy, given, last, say, undo, load } = useInbox(gallery, onAnswer);
  const question = questions?.[0];
  useEffect(() => {
    for (const one of questions?.slice(1) ?? []) {
      preload([...(one.has_picture ? [keptPicture(gallery, one.search_id)] : []), ...one.candidates.map(({ id }) => thumbnail(gallery, id))]);
    }
  }, [questions]);
  // Where there is no question the last answer can be taken back all the same.
  useShortcuts({ u: undo }, !question);
  const note = question && [question.is_again ? "Asked a second time." : "", sentence(question.note)].filter(Boolean).join(" ");
  const after = last && html`<${Last} key=${last.kept.number} gallery=${gallery} question=${last.question} kept=${last.kept} />`;
  return html`<${Fault} error=${error} again=${load} />
    ${!questions && !error && html`<${Waiting} text="Drawing a search…" />`}
    ${question && html`<${Question} key=${question.search_id} gallery=${gallery} search=${question} note=${note} isBusy=${isBusy} onSay=${say} onUndo=${given.length ? undo : null}>${after}<//>`}
    ${questions && !question && (isNoneKept ? html`<${NoneKept} gallery=${gallery} />` : html`<${Empty} title="There is nothing left to ask about" text="When people search again, their searches come here.">
      ${given.length > 0 && html`<button type="button" class="button" onClick=${undo}>Take the last answer back <kbd>U</kbd></button>`}<//>`)}
    ${!question && after}`;
}
