// Keys of a place. They are silent where somebody types, in dialogs, and with Ctrl, Alt or Meta.
import { useLayoutEffect, useRef } from "../lib/html.js";

const TYPES = "input:not([type=checkbox], [type=radio], [type=range], [type=file]), textarea, select, [contenteditable]";

// `keys` by `event.key` in small letters: {"1": f, "n": f, "arrowleft": f, "?": f, " ": f}
// `inDialog` is for keys of a dialog itself: they are silent only where another stands above it.
export function useShortcuts(keys, isOn = true, { inDialog = false } = {}) {
  const last = useRef(keys);
  last.current = keys;
  // As soon as the place is seen.
  useLayoutEffect(() => {
    if (!isOn) return undefined;
    const press = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || event.defaultPrevented) return;
      if (event.target.closest?.(TYPES) || document.querySelectorAll("dialog[open]").length > (inDialog ? 1 : 0)) return;
      const does = last.current[event.key.toLowerCase()];
      // A button is pressed by these itself.
      if (!does || ([" ", "enter"].includes(event.key.toLowerCase()) && event.target.closest?.("button, a, summary"))) return;
      event.preventDefault();
      does(event);
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, [isOn]);
}
