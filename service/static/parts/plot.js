// Lines over a score, with the range that each may truly lie in, and a mark that can be moved. The library comes when
// the first plot is drawn.
import { html, useEffect, useLayoutEffect, useRef, useState } from "../lib/html.js";
import { useStore } from "../lib/store.js";
import { percent } from "../lib/text.js";
import { theme } from "../lib/theme.js";
import { Fault } from "./notice.js";

const N_ROWS = 11;
let library = null;

function load() {
  library ??= Promise.all([import("../vendor/uplot.js"), new Promise((done, fail) => {
    const link = document.createElement("link");
    Object.assign(link, { rel: "stylesheet", href: new URL("../vendor/uplot.css", import.meta.url).href, onload: done, onerror: fail });
    document.head.append(link);
  })]).then(([module]) => module.default, () => { library = null; throw new Error("the plot did not load"); });
  return library;
}

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const pale = (value) => `color-mix(in srgb, ${value} 18%, transparent)`;
const written = (value, yPercent) => (value === null || value === undefined ? "not measured" : yPercent ? percent(value) : value.toFixed(2));

function axes(yPercent) {
  const common = { stroke: color("soft"), font: "12px system-ui, sans-serif", ticks: { show: false } };
  const grid = { stroke: color("line"), width: 1 };
  return [
    { ...common, grid: { show: false }, size: 30, space: 70, values: (_, all) => all.map((one) => Number(one.toFixed(3))) },
    { ...common, grid, size: yPercent ? 46 : 40, space: 40, values: (_, all) => all.map((one) => (yPercent ? `${Math.round(100 * one)} %` : Number(one.toFixed(2)))) },
  ];
}

// What the library takes: each line with the two ends of its range, where it has one.
function drawing({ lines, width, height, yPercent, range, yRange }) {
  const series = [{}], columns = [], bands = [];
  for (const { name, values, low, high, color: named } of lines) {
    const stroke = color(named);
    if (low && high) {
      bands.push({ series: [series.length, series.length + 1], fill: pale(stroke) });
      series.push({ stroke: "transparent", width: 0, points: { show: false } }, { stroke: "transparent", width: 0, points: { show: false } });
      columns.push(high, low);
    }
    series.push({ label: name, stroke, width: 2, points: { show: false } });
    columns.push(values);
  }
  const options = {
    width, height, series, bands, axes: axes(yPercent), padding: [8, 8, 0, 0],
    legend: { show: false }, cursor: { show: false }, select: { show: false },
    scales: { x: { time: false, ...(range ? { range: () => range } : {}) }, y: { range: yRange ? () => yRange : undefined } },
  };
  return [options, columns];
}

// The scheme of the device may change while the page is open.
function useScheme() {
  const chosen = useStore(theme);
  const query = matchMedia("(prefers-color-scheme: dark)");
  const [isDark, set] = useState(query.matches);
  useEffect(() => {
    const look = (event) => set(event.matches);
    query.addEventListener("change", look);
    return () => query.removeEventListener("change", look);
  }, []);
  return `${chosen} ${isDark}`;
}

function Table({ title, x, lines, xName, yPercent }) {
  const places = [...new Set([...Array(N_ROWS).keys()].map((n) => Math.round((n * (x.length - 1)) / (N_ROWS - 1))))];
  return html`<div class="unseen"><table><caption>${title}</caption>
    <thead><tr><th scope="col">${xName}</th>${lines.map(({ name }) => html`<th key=${name} scope="col">${name}</th>`)}</tr></thead>
    <tbody>${places.map((place) => html`<tr key=${place}><th scope="row">${x[place]?.toFixed(3)}</th>
      ${lines.map(({ name, values }) => html`<td key=${name}>${written(values[place], yPercent)}</td>`)}</tr>`)}</tbody>
  </table></div>`;
}

// `x` are the places of all `values`; `color` names one of the page's. `mark` is a place that `onMark` may move.
export function Plot({ title, x, lines, mark = null, onMark = null, height = 260, yPercent = true, range = null, yRange = [0, 1], xName = "Score" }) {
  const place = useRef(), plot = useRef(null), line = useRef(), last = useRef(null);
  const [error, fail] = useState(null);
  const scheme = useScheme();
  last.current = { mark, onMark };

  const lay = () => {
    const u = plot.current;
    if (!line.current) return;
    line.current.hidden = !u || mark === null;
    if (!u || last.current.mark === null) return;
    const ratio = devicePixelRatio || 1;
    const left = u.valToPos(last.current.mark, "x") + u.bbox.left / ratio;
    line.current.style.transform = `translateX(${left}px)`;
    line.current.style.height = `${u.bbox.height / ratio}px`;
    line.current.style.top = `${u.bbox.top / ratio}px`;
  };

  useEffect(() => {
    let isGone = false, watch = null;
    load().then((Library) => {
      if (isGone || !place.current) return;
      const [options, columns] = drawing({ lines, width: Math.max(200, place.current.clientWidth), height, yPercent, range, yRange });
      plot.current = new Library(options, [x, ...columns], place.current);
      watch = new ResizeObserver(() => {
        const width = place.current?.clientWidth;
        if (width && Math.abs(width - plot.current.width) > 1) plot.current.setSize({ width, height });
        lay();
      });
      watch.observe(place.current);
      lay();
    }, fail);
    return () => {
      isGone = true;
      watch?.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [x, lines, height, scheme, range?.[0], range?.[1]]);
  useLayoutEffect(lay, [mark, x, lines]);

  const move = (event) => {
    const u = plot.current;
    if (!u || !onMark || (event.type === "pointermove" && !event.buttons)) return;
    const box = u.over.getBoundingClientRect();
    const value = u.posToVal(Math.min(Math.max(event.clientX - box.left, 0), box.width), "x");
    last.current.onMark(value);
  };

  if (error) return html`<${Fault} error=${error} />`;
  return html`<figure class="plot">
    <figcaption><span class="plot-title">${title}</span>
      ${lines.length > 1 && html`<span class="plot-names">${lines.map(({ name, color: named }) => html`<span key=${name}><i style=${{ background: `var(--${named})` }}></i>${name}</span>`)}</span>`}</figcaption>
    <div class=${`plot-place ${onMark ? "can-move" : ""}`} style=${{ minHeight: `${height}px` }} aria-hidden="true" onPointerDown=${move} onPointerMove=${move}>
      <div ref=${place}></div><b class="plot-mark" ref=${line} hidden></b>
    </div>
    <${Table} title=${title} x=${x} lines=${lines} xName=${xName} yPercent=${yPercent} />
  </figure>`;
}
