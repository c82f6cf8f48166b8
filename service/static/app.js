// The frame around all places: name, ways, key, notes; and what stands where a place cannot be shown.
import { Component, html, useEffect, useRef, useState } from "./lib/html.js";
import { galleries, galleryOf, refreshGalleries } from "./lib/galleries.js";
import { address, go, href } from "./lib/router.js";
import { isAway, losses, rest } from "./lib/server.js";
import { may, session, start, whyNot } from "./lib/session.js";
import { useStore } from "./lib/store.js";
import { short } from "./lib/text.js";
import { nextTheme, theme } from "./lib/theme.js";
import { Underway } from "./parts/adding.js";
import { Dialogs } from "./parts/dialog.js";
import { Button } from "./parts/field.js";
import { Icon } from "./parts/icon.js";
import { Empty, Fault, Notices, Waiting } from "./parts/notice.js";
import { loaded, OF_A_GALLERY, ROUTES } from "./routes.js";

const OLD = 30_000;
const BETWEEN_LOOKS = 3_000;
const THEMES = { auto: "as the device", light: "light", dark: "dark" };

const Way = ({ name, gallery = null, now }) => html`<a class="way" href=${href(name, gallery)} aria-current=${now === name ? "page" : undefined}>
  <${Icon} name=${name} /><span>${ROUTES[name].title}</span></a>`;

function Ways({ place, gallery }) {
  return html`<nav class="ways" aria-label="This gallery">
    ${OF_A_GALLERY.filter((name) => may(ROUTES[name].needs, gallery)).map((name) => html`<${Way} key=${name} name=${name} gallery=${gallery} now=${place} />`)}
  </nav>`;
}

// Another gallery is looked at in the same way; what the address says of this one is not true of that.
function Chosen({ place, found, list }) {
  return html`<label class="chosen"><span class="unseen">Gallery</span>
    <select dir="auto" onChange=${(event) => go(ROUTES[place].isIn ? place : "gallery", event.target.value)}>
      ${!found && html`<option value="" selected disabled>Gallery…</option>`}
      ${list.map(({ name }) => html`<option key=${name} value=${name} selected=${name === found?.name}>${short(name, 40)}</option>`)}
    </select></label>`;
}

function Top({ place, found }) {
  const { list } = useStore(galleries);
  const { state, me } = useStore(session);
  const chosen = useStore(theme);
  const isOpen = state === "open";
  return html`<header class="top">
    <a class="brand" href=${href("galleries")}><svg viewBox="0 0 24 24" aria-hidden="true"><circle cx="12" cy="12" r="9" /><circle cx="12" cy="12" r="3.5" /></svg>Vicinal</a>
    ${isOpen && list?.length > 0 && html`<${Chosen} place=${place} found=${found} list=${list} />`}
    ${isOpen && found && html`<${Ways} place=${place} gallery=${found.name} />`}
    <nav class="more" aria-label="Everywhere">
      ${isOpen && may("admin") && html`<${Way} name="jobs" now=${place} />`}
      ${isOpen && me.asks_for_keys && html`<${Way} name="key" now=${place} />`}
      <button type="button" class="way" onClick=${nextTheme} aria-label=${`Colours: ${THEMES[chosen]}`} title=${`Colours: ${THEMES[chosen]}`}><${Icon} name="theme" /></button>
    </nav>
  </header>`;
}

// While nothing answers, the server is asked whether it is there, until it is.
function Away() {
  const away = useStore(isAway);
  useEffect(() => {
    if (!away) return undefined;
    const stop = new AbortController();
    const { signal } = stop;
    (async () => {
      while (!signal.aborted) {
        await rest(BETWEEN_LOOKS, signal);
        await fetch("livez", { signal }).then(() => isAway.set(false), () => {});
      }
    })();
    return () => stop.abort();
  }, [away]);
  return html`<div role="status">${away && html`<p class="away"><span class="turning" aria-hidden="true"></span>The server does not answer. Trying again…</p>`}</div>`;
}

// What breaks in a place says so, and the ways out of it stay.
class Guard extends Component {
  componentDidCatch(error) { this.setState({ error }); }
  render({ children }, { error }) {
    return error ? html`<${Fault} error=${error} again=${() => location.reload()} />` : children;
  }
}

function Loaded({ name, gallery, params }) {
  const [found, find] = useState({ name: null, module: null, error: null });
  useEffect(() => {
    let isWanted = true;
    const tell = (next) => { if (isWanted) find({ module: null, error: null, ...next, name }); };
    loaded(name).then((module) => tell({ module }), (error) => tell({ error }));
    return () => { isWanted = false; };
  }, [name]);
  useEffect(() => { document.title = `${ROUTES[name].title}${gallery ? ` · ${short(gallery, 60)}` : ""} · Vicinal`; }, [name, gallery]);
  if (found.name !== name) return html`<${Waiting} />`;
  if (found.error) {
    const text = "This part of the page did not load: the server is away, or has a newer version of it.";
    return html`<${Fault} error=${text} again=${() => location.reload()} />`;
  }
  const { Place } = found.module;
  return html`<${Place} gallery=${gallery} params=${params} />`;
}

function Shown({ place, gallery, params, found }) {
  const { state, note } = useStore(session);
  const { list, problems, error } = useStore(galleries);
  if (state === "starting") return html`<${Waiting} />`;
  if (state === "away") return html`<${Fault} error=${note} again=${() => start()} />`;
  if (state === "asks") return html`<${Loaded} name="key" gallery=${null} params=${{}} />`;
  const back = html`<a class="button" href=${href("galleries")}>All galleries</a>`;
  const route = Object.hasOwn(ROUTES, place) ? ROUTES[place] : null;
  if (!route || route.isIn === (gallery === null)) return html`<${Empty} level=${1} title="There is nothing at this address">${back}<//>`;
  if (gallery !== null && !found) {
    if (problems[gallery]) return html`<${Fault} error=${problems[gallery]} again=${() => refreshGalleries()} />`;
    if (error && !list) return html`<${Fault} error=${error} again=${() => refreshGalleries()} />`;
    if (!list) return html`<${Waiting} />`;
    return html`<${Empty} level=${1} title=${`There is no gallery “${short(gallery, 60)}”`} text="It may have been deleted, or its address was mistyped.">${back}<//>`;
  }
  if (route.needs && !may(route.needs, found?.name)) return html`<${Empty} level=${1} title=${route.title} text=${whyNot(route.needs)}>${back}<//>`;
  return html`<${Loaded} name=${place} gallery=${found?.name ?? null} params=${params} />`;
}

export function App() {
  const { place, gallery, params } = useStore(address);
  const { state, key } = useStore(session);
  const all = useStore(galleries);
  const main = useRef();
  const found = gallery === null ? undefined : galleryOf(gallery, all);
  const name = Object.hasOwn(ROUTES, place) ? place : "galleries";
  const isFirst = useRef(true);
  useEffect(() => {
    const stop = new AbortController();
    let last = Date.now();
    const look = () => {
      if (document.hidden || Date.now() - last < OLD) return;
      last = Date.now();
      refreshGalleries(stop.signal);
    };
    galleries.set({ list: null, problems: {}, error: null });
    if (state === "open") refreshGalleries(stop.signal);
    document.addEventListener("visibilitychange", look, { signal: stop.signal });
    return () => stop.abort();
  }, [state, key]);
  // One that is gone says so in its place.
  useEffect(() => losses.on(() => { if (session.get().state === "open") refreshGalleries(); }), []);
  // One that was made just now, or elsewhere.
  useEffect(() => { if (state === "open" && gallery !== null && !found) refreshGalleries(); }, [gallery]);
  useEffect(() => {
    if (!isFirst.current) { scrollTo(0, 0); main.current.focus({ preventScroll: true }); }
    isFirst.current = false;
  }, [place, gallery]);
  return html`
    <button type="button" class="skip" onClick=${() => main.current.focus()}>Skip to the content</button>
    <${Top} place=${name} found=${found} /><${Away} /><${Underway} />
    <main ref=${main} tabindex="-1" class=${`at-${name}`}>
      <${Guard} key=${`${place} ${gallery} ${key} ${state}`}><${Shown} place=${place} gallery=${gallery} params=${params} found=${found} /><//>
    </main>
    <${Notices} /><${Dialogs} />`;
}
