// Light or dark: as the device has it, until somebody chooses for this tab.
import { store } from "./store.js";

const NAME = "vicinal-theme";
const NEXT = { auto: "light", light: "dark", dark: "auto" };

export const theme = store("auto");

function show(chosen) {
  if (chosen === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
  theme.set(chosen);
}

export function startTheme() {
  const kept = sessionStorage.getItem(NAME);
  show(kept in NEXT ? kept : "auto");
}

export function nextTheme() {
  const chosen = NEXT[theme.get()];
  sessionStorage.setItem(NAME, chosen);
  show(chosen);
}
