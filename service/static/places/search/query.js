// The photo to search with: dropped, pasted or chosen.
import { html, useEffect, useRef, useState } from "../../lib/html.js";
import { short } from "../../lib/text.js";
import { Icon } from "../../parts/icon.js";
import { Picture } from "../../parts/picture.js";

export function Query({ path, name, onFile }) {
  const [isOver, setOver] = useState(false);
  const last = useRef(onFile);
  last.current = onFile;
  useEffect(() => {
    const take = (event) => {
      const [file] = event.clipboardData.files;
      if (file) last.current(file);
    };
    addEventListener("paste", take);
    return () => removeEventListener("paste", take);
  }, []);
  const over = (event) => { event.preventDefault(); setOver(true); };
  const drop = (event) => {
    event.preventDefault();
    setOver(false);
    const [file] = event.dataTransfer.files;
    if (file) onFile(file);
  };
  const pick = (event) => {
    const [file] = event.target.files;
    if (file) onFile(file);
    // The same file may be chosen again.
    event.target.value = "";
  };
  return html`<label class=${`search-drop ${isOver ? "over" : ""} ${path ? "" : "is-empty"}`} onDragOver=${over} onDragLeave=${() => setOver(false)} onDrop=${drop}>
    <input class="unseen" type="file" accept="image/*" aria-label="Photo to search with" onChange=${pick} />
    ${path ? html`<${Picture} path=${path} alt="What is searched for" />` : html`<${Icon} name="photo" />`}
    <span><strong>${path ? "Another photo" : "Drop, paste or choose a photo"}</strong>
      ${name && html`<span class="soft small"><bdi>${short(name, 60)}</bdi></span>`}</span>
  </label>`;
}
