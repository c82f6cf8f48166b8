// A gallery in a card: what it looks like, what it holds, and how far it can be relied on.
import { at, get } from "../../lib/api.js";
import { html, useEffect, useRef, useState } from "../../lib/html.js";
import { thumbnail } from "../../lib/pictures.js";
import { href } from "../../lib/router.js";
import { number, short, visible, when } from "../../lib/text.js";
import { STANDINGS } from "../../lib/words.js";
import { Picture } from "../../parts/picture.js";

const N_PICTURES = 4;
// What has to be done something about is said in full.
const LOUD = ["unsure", "broken", "drifting", "unusable"];

// Of different labels where there are such; else of different places in the gallery.
function different(items) {
  const seen = new Set();
  const first = items.filter(({ label }) => label !== null && !seen.has(label) && seen.add(label));
  return [...first, ...items.filter((one) => !first.includes(one))].slice(0, N_PICTURES);
}

// Of many galleries those that come into view ask for their pictures.
function useSeen() {
  const place = useRef();
  const [isSeen, see] = useState(false);
  useEffect(() => {
    const watch = new IntersectionObserver(([one]) => { if (one.isIntersecting) { see(true); watch.disconnect(); } }, { rootMargin: "200px" });
    watch.observe(place.current);
    return () => watch.disconnect();
  }, []);
  return [place, isSeen];
}

function usePictures({ name, n_items: n, revision, takes }, isSeen) {
  const [items, setItems] = useState([]);
  useEffect(() => {
    if (!isSeen || takes !== "images" || n === 0) { setItems([]); return undefined; }
    const stop = new AbortController();
    // From a few places: neighbors in a gallery are mostly of one label.
    const places = [...new Set(Array.from({ length: N_PICTURES }, (_, i) => Math.floor((i * n) / N_PICTURES)))];
    const asked = places.map((place) => get(at(name, "/items"), { query: { at: place, size: 1 }, signal: stop.signal }));
    Promise.all(asked).then((pages) => setItems(different(pages.flatMap((page) => page.items))), () => {});
    return () => stop.abort();
  }, [name, n, revision, takes, isSeen]);
  return items;
}

export function Standing({ standing, promise }) {
  const { text, mark, kind } = STANDINGS[standing.word];
  return html`${promise && html`<p class="galleries-promise">${promise}</p>`}
    <p><span class=${`tag ${kind}`} title=${standing.sentence}><span aria-hidden="true">${mark}</span> ${text}</span></p>
    ${LOUD.includes(standing.word) && html`<p class="small" dir="auto">${visible(standing.sentence)}</p>`}`;
}

export function Card({ gallery }) {
  const { name, n_items: n, n_labels: labels, version, changed_at: changed, aliases, takes } = gallery;
  const [place, isSeen] = useSeen();
  const pictures = usePictures(gallery, isSeen);
  const things = takes === "images" ? ["photo", "photos"] : ["item", "items"];
  const facts = [
    `${number(n)} ${n === 1 ? things[0] : things[1]}`,
    labels > 0 && `${number(labels)} ${labels === 1 ? "label" : "labels"}`,
  ].filter(Boolean);
  return html`<li class="card galleries-card" ref=${place}>
    <a href=${href("search", name)} class="galleries-link">
      <span class=${`galleries-pictures of-${pictures.length}`} aria-hidden="true">${pictures.map(({ id }) => html`<${Picture} key=${id} path=${thumbnail(name, id)} />`)}
        ${!pictures.length && html`<span class="soft small">${n === 0 ? "Nothing in it yet" : ""}</span>`}</span>
      <h2><bdi>${visible(name)}</bdi></h2></a>
    <div class="galleries-words">
      <p>${facts.join(" · ")}</p>
      <${Standing} standing=${gallery.standing} promise=${gallery.promise_in_short} />
      ${aliases.length > 0 && html`<p class="soft small">Also called ${aliases.map((one, place) => html`${place > 0 && ", "}<bdi key=${one}>${short(one, 40)}</bdi>`)}</p>`}
      <p class="soft small">Version ${version}${changed && `, changed ${when(changed)}`}</p>
    </div>
  </li>`;
}
