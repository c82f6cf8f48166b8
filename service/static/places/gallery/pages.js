// Items of a gallery by their number, fetched in pages as they are looked at.
import { at, get } from "../../lib/api.js";
import { useEffect, useRef, useState } from "../../lib/html.js";

const SIZE = 100;
const MOST_PAGES = 60;

// `n` is null until it is known. Pages that are scrolled past before they came are not waited for.
export function usePages(gallery, filter, revision) {
  const pages = useRef(new Map()), old = useRef(new Map()), under = useRef(new Map());
  const [shown, show] = useState({ n: null, error: null, turn: 0 });
  const [round, setRound] = useState(0);

  const fetchPage = (page) => {
    const stop = new AbortController();
    under.current.set(page, stop);
    const query = { at: page * SIZE, size: SIZE, filter: filter || undefined };
    get(at(gallery, "/items"), { query, signal: stop.signal }).then(({ items, n_items: n }) => {
      under.current.delete(page);
      pages.current.delete(page);
      pages.current.set(page, items);
      if (pages.current.size > MOST_PAGES) pages.current.delete(pages.current.keys().next().value);
      show((old) => ({ n, error: null, turn: old.turn + 1 }));
    }).catch((error) => {
      if (stop.signal.aborted) return;
      under.current.delete(page);
      show((old) => ({ ...old, error }));
    });
  };

  const load = (from, to) => {
    const first = Math.floor(from / SIZE), last = Math.floor(Math.max(from, to - 1) / SIZE);
    for (const [page, stop] of under.current) {
      if (page < first || page > last) { stop.abort(); under.current.delete(page); }
    }
    for (let page = first; page <= last; page += 1) if (!pages.current.has(page) && !under.current.has(page)) fetchPage(page);
  };

  const isFirst = useRef(true);
  useEffect(() => {
    pages.current = new Map();
    old.current = new Map();
    show({ n: null, error: null, turn: 0 });
    fetchPage(0);
    return () => {
      for (const stop of under.current.values()) stop.abort();
      under.current = new Map();
    };
  }, [gallery, filter, round]);
  // What changed elsewhere is fetched again; until it comes, what was known is shown.
  useEffect(() => {
    if (!isFirst.current) {
      old.current = pages.current;
      pages.current = new Map();
      show((one) => ({ ...one, turn: one.turn + 1 }));
    }
    isFirst.current = false;
  }, [revision]);

  const itemAt = (i) => (pages.current.get(Math.floor(i / SIZE)) ?? old.current.get(Math.floor(i / SIZE)))?.[i % SIZE];
  // What was changed here is seen at once, and fetched again.
  const put = (i, item) => {
    const page = pages.current.get(Math.floor(i / SIZE));
    if (page) page[i % SIZE] = item;
    show((old) => ({ ...old, turn: old.turn + 1 }));
  };
  return { ...shown, itemAt, load, put, again: () => setRound((one) => one + 1) };
}
