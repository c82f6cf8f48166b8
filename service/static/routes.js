// Places by their name in the address: each is loaded when it is first gone to, with its own style.
const place = (title, needs, load, folder, isIn = true) => ({ title, needs, load, folder, isIn });

// `needs` is the right of a key that a place is not offered without; `isIn` says whether it is about one gallery.
export const ROUTES = {
  galleries: place("Galleries", "search", () => import("./places/galleries/index.js"), "galleries", false),
  gallery: place("Photos", "search", () => import("./places/gallery/index.js"), "gallery"),
  search: place("Search", "search", () => import("./places/search/index.js"), "search"),
  add: place("Add", "write", () => import("./places/gallery/add.js"), "gallery"),
  review: place("Review", "admin", () => import("./places/review/index.js"), "review"),
  pairs: place("Same or not?", "admin", () => import("./places/pairs/index.js"), "pairs"),
  calibrate: place("Calibrate", "admin", () => import("./places/calibrate/index.js"), "calibrate"),
  doubles: place("Doubles", "admin", () => import("./places/doubles/index.js"), "doubles"),
  jobs: place("Jobs", "admin", () => import("./places/jobs/index.js"), "jobs", false),
  key: place("Key", null, () => import("./places/key/index.js"), "key", false),
};

// What is offered beside the name of a gallery, in this order.
export const OF_A_GALLERY = ["search", "gallery", "add", "review", "calibrate", "doubles"];

const styles = new Map();

// The style of a place, which is there before the place is drawn.
function styled(folder) {
  if (!styles.has(folder)) {
    styles.set(folder, new Promise((done, fail) => {
      const link = document.createElement("link");
      Object.assign(link, { rel: "stylesheet", onload: done, onerror: () => { styles.delete(folder); link.remove(); fail(new Error("its style is missing")); } });
      link.href = new URL(`./places/${folder}/${folder}.css`, import.meta.url).href;
      document.head.append(link);
    }));
  }
  return styles.get(folder);
}

export async function loaded(name) {
  const { load, folder } = ROUTES[name];
  const [module] = await Promise.all([load(), styled(folder)]);
  return module;
}
