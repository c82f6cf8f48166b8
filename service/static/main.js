// Start: what an address brought is read once, then the page is drawn.
import { App } from "./app.js";
import { html, render } from "./lib/html.js";
import { href, oldAddress, parsed, startRouter } from "./lib/router.js";
import { start } from "./lib/session.js";
import { startTheme } from "./lib/theme.js";

const replace = (hash) => history.replaceState(null, "", `./${hash}`);

// A token opens the page once, and goes from the address before anything else happens.
function takeToken() {
  const { hash, pathname, search } = location;
  if (hash && !hash.startsWith("#/")) {
    history.replaceState(null, "", pathname + search);
    return hash.slice(1);
  }
  const { place, gallery, params: { token = null, ...params } } = parsed(hash);
  if (token !== null) replace(href(place, gallery, params));
  return token;
}

// A file that is dropped where no place takes it would be shown instead of the page.
addEventListener("dragover", (event) => {
  if (event.defaultPrevented || !event.dataTransfer.types.includes("Files")) return;
  event.preventDefault();
  event.dataTransfer.dropEffect = "none";
});

const token = takeToken();
const old = oldAddress(location);
if (old !== null) replace(old);
startTheme();
startRouter();
start(token);

const place = document.getElementById("app");
place.replaceChildren();
render(html`<${App} />`, place);
