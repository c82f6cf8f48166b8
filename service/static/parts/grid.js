// A grid of many things, of which only those near the window are drawn. It scrolls with the page.
import { html, useEffect, useLayoutEffect, useRef, useState } from "../lib/html.js";

const GAP = 12;
const SPARE_ROWS = 2;
const PAUSE = 60;
// Browsers draw nothing far below this: what is higher is scrolled in larger steps.
const HIGHEST = 12_000_000;
const STEPS = { ArrowLeft: () => -1, ArrowRight: () => 1, ArrowUp: (columns) => -columns, ArrowDown: (columns) => columns };

function shape(width, { n, minWidth, rowHeight }) {
  const columns = Math.max(1, Math.floor((width + GAP) / (minWidth + GAP)));
  const rows = Math.ceil(n / columns);
  return { columns, rows, whole: rows * rowHeight, height: Math.min(rows * rowHeight, HIGHEST) };
}

// Rows that are seen: the first, the one after the last, and by how much rows are moved where not all fit.
function seen(box, { rows, whole, height }, rowHeight) {
  const view = innerHeight;
  const scrolled = Math.min(Math.max(0, -box.top), Math.max(0, height - view));
  const top = whole > height ? scrolled * ((whole - view) / (height - view)) : scrolled;
  const first = Math.max(0, Math.floor(top / rowHeight) - SPARE_ROWS);
  const end = Math.min(rows, Math.ceil((top + view - Math.max(0, box.top)) / rowHeight) + SPARE_ROWS);
  return { first, end, shift: scrolled - top };
}

// `itemAt(i)` is undefined until `load(from, to)` brought it; `cell(item, i)` is drawn for it.
export function Grid({ n, itemAt, load, cell, minWidth = 152, rowHeight = 220, label }) {
  const place = useRef(), wanted = useRef(null), last = useRef();
  const [width, setWidth] = useState(0);
  const [{ first, end, shift }, see] = useState({ first: 0, end: 0, shift: 0 });
  const at = shape(width, { n, minWidth, rowHeight });
  last.current = { at, load };

  useLayoutEffect(() => {
    const look = () => setWidth(place.current.clientWidth);
    const watch = new ResizeObserver(look);
    look();
    watch.observe(place.current);
    return () => watch.disconnect();
  }, []);

  useLayoutEffect(() => {
    let frame = null;
    const look = () => {
      frame = null;
      const next = seen(place.current.getBoundingClientRect(), last.current.at, rowHeight);
      see((old) => (old.first === next.first && old.end === next.end && old.shift === next.shift ? old : next));
    };
    const soon = () => { frame ??= requestAnimationFrame(look); };
    const stop = new AbortController();
    addEventListener("scroll", soon, { passive: true, signal: stop.signal });
    addEventListener("resize", soon, { signal: stop.signal });
    look();
    return () => { stop.abort(); cancelAnimationFrame(frame); };
  }, [n, width, rowHeight]);

  const from = first * at.columns, to = Math.min(n, end * at.columns);
  useEffect(() => {
    // What is only passed by is not asked for.
    const timer = setTimeout(() => { if (to > from) last.current.load(from, to); }, PAUSE);
    return () => clearTimeout(timer);
  }, [from, to, load]);

  const focus = (i) => place.current.querySelector(`[data-i="${i}"] :is(a, button)`)?.focus();
  useEffect(() => {
    if (wanted.current === null || wanted.current < from || wanted.current >= to) return;
    focus(wanted.current);
    wanted.current = null;
  });
  const step = (event) => {
    const by = STEPS[event.key]?.(at.columns);
    const now = event.target.closest("[data-i]")?.dataset.i;
    if (by === undefined || now === undefined) return;
    // Keys may be quicker than what scrolls.
    const next = (wanted.current ?? Number(now)) + by;
    if (next < 0 || next >= n) return;
    event.preventDefault();
    if (next < from || next >= to) {
      wanted.current = next;
      scrollBy({ top: Math.sign(by) * rowHeight });
    } else {
      focus(next);
    }
  };

  const cells = [];
  for (let i = from; i < to; i += 1) {
    const row = Math.floor(i / at.columns), column = i % at.columns, item = itemAt(i);
    const style = {
      top: `${row * rowHeight + shift}px`, left: `calc(${(100 * column) / at.columns}% + ${(GAP * column) / at.columns}px)`,
      width: `calc(${100 / at.columns}% - ${(GAP * (at.columns - 1)) / at.columns}px)`, height: `${rowHeight - GAP}px`,
    };
    cells.push(html`<li key=${i} data-i=${i} aria-setsize=${n} aria-posinset=${i + 1} style=${style}>
      ${item === undefined ? html`<span class="grid-empty"></span>` : cell(item, i)}</li>`);
  }
  return html`<ul class="grid" ref=${place} aria-label=${label} onKeyDown=${step} style=${{ height: `${at.height}px` }}>${cells}</ul>`;
}
