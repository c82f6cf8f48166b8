// Addresses behind `#`: they work below any path, and what is searched for stands in no log of a proxy.
import { store } from "./store.js";

// "#/g/shop/search?item=a" <-> {place: "search", gallery: "shop", params: {item: "a"}}
export const address = store({ place: "galleries", gallery: null, params: {} });

export function href(place, gallery = null, params = {}) {
  const { id, ...others } = params;
  const isJob = place === "jobs" && id !== undefined && id !== null && id !== "";
  const parts = gallery === null ? [place, ...(isJob ? [id] : [])] : ["g", gallery, ...(place === "gallery" ? [] : [place])];
  const shown = new URLSearchParams();
  for (const [name, value] of Object.entries(isJob ? others : params)) {
    if (value !== undefined && value !== null && value !== "") shown.set(name, value);
  }
  const query = shown.toString();
  return `#/${parts.map(encodeURIComponent).join("/")}${query && `?${query}`}`;
}

export function parsed(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const params = Object.fromEntries(new URLSearchParams(query));
  let parts;
  try {
    parts = path.split("/").filter(Boolean).map(decodeURIComponent);
  } catch {
    return { place: "nowhere", gallery: null, params };
  }
  if (!parts.length) return { place: "galleries", gallery: null, params };
  if (parts[0] === "g" && parts.length > 1) return { place: parts[2] ?? "gallery", gallery: parts[1], params };
  if (parts[0] === "jobs" && parts.length > 1) params.id = parts[1];
  return { place: parts[0], gallery: null, params };
}

const text = ({ place, gallery, params }) => href(place, gallery, params);

function read() {
  const now = parsed(location.hash);
  if (text(now) !== text(address.get())) address.set(now);
}

export function go(place, gallery = null, params = {}, { replace = false } = {}) {
  const to = href(place, gallery, params);
  if (to !== location.hash) history[replace ? "replaceState" : "pushState"](null, "", to);
  read();
}

// Changes a part of what the address says, in its place: null takes one away.
export function setParams(part) {
  const { place, gallery, params } = address.get();
  go(place, gallery, { ...params, ...part }, { replace: true });
}

export function startRouter() {
  address.set(parsed(location.hash));
  addEventListener("popstate", read);
  addEventListener("hashchange", read);
}

// The hash for an address that an older page had; null where it is none of these.
export function oldAddress({ pathname, search, hash }) {
  if (hash.startsWith("#/")) return null;
  const asked = new URLSearchParams(search);
  const gallery = asked.get("gallery");
  const page = pathname.split("/").pop();
  if (page !== "label" && page !== "review" && !search) return null;
  if (!gallery) return href("galleries");
  if (page === "label") return href("pairs", gallery, { target: asked.get("target") });
  if (page === "review") return href("review", gallery);
  const { item, filter, limit } = Object.fromEntries(asked);
  return href("search", gallery, { item, filter, limit, by: asked.get("products") === "1" ? "label" : null });
}
