// The photo to search with: dropped, pasted, taken or chosen.
import { html, useEffect, useRef, useState } from "../../lib/html.js";
import { short } from "../../lib/text.js";
import { Button } from "../../parts/field.js";
import { Icon } from "../../parts/icon.js";
import { Picture } from "../../parts/picture.js";
import { Camera, hasCamera } from "./camera.js";

const fileOf = (list) => [...list].find((one) => one.type.startsWith("image/")) ?? list[0];

function Pick({ label, text, icon, className, onFile, ...others }) {
  const pick = (event) => {
    const [file] = event.target.files;
    if (file) onFile(file);
    // The same file may be chosen again.
    event.target.value = "";
  };
  return html`<label class=${`button search-pick ${className}`}>
    <input class="unseen" type="file" accept="image/*" aria-label=${label} onChange=${pick} ...${others} />
    <${Icon} name=${icon} />${text}</label>`;
}

export function Query({ path, name, onFile, onClear }) {
  const [isOver, setOver] = useState(false);
  const [isTaking, setTaking] = useState(false);
  const last = useRef(onFile);
  last.current = onFile;
  useEffect(() => {
    const stop = new AbortController();
    const listen = (event, does) => addEventListener(event, does, { signal: stop.signal });
    listen("paste", (event) => {
      const file = event.clipboardData && fileOf(event.clipboardData.files);
      if (file) last.current(file);
    });
    // A photo may be dropped anywhere: beside the box the browser would open it instead of the page.
    listen("dragover", (event) => { event.preventDefault(); setOver(true); });
    listen("dragleave", (event) => { if (!event.relatedTarget) setOver(false); });
    listen("drop", (event) => {
      event.preventDefault();
      setOver(false);
      const file = fileOf(event.dataTransfer.files);
      if (file) last.current(file);
    });
    return () => stop.abort();
  }, []);
  return html`<div class=${`search-drop ${isOver ? "over" : ""} ${path || name ? "" : "is-empty"}`}>
    ${path ? html`<${Picture} path=${path} alt="What is searched for" />` : html`<${Icon} name="photo" />`}
    <div class="search-said">
      <strong>${name || path ? "Searched for" : html`<span class="drop-with-mouse">Drop or paste a photo here</span><span class="drop-with-touch">Take or choose a photo</span>`}</strong>
      ${name && html`<span class="soft small"><bdi>${short(name, 60)}</bdi></span>`}
      <div class="row">
        <${Pick} label="Photo to search with" text=${path ? "Another photo" : "Choose a photo"} icon="gallery" className=${path ? "" : "main"} onFile=${onFile} />
        <${Pick} label="Take a picture with the camera" text="Camera" icon="photo" className="search-camera" onFile=${onFile} capture="environment" />
        ${hasCamera() && html`<${Button} onClick=${() => setTaking(true)}><${Icon} name="photo" />Camera<//>`}
        ${(path || name) && html`<${Button} kind="quiet" onClick=${onClear}>Clear<//>`}
      </div>
    </div>
  </div>
  ${isTaking && html`<${Camera} onFile=${onFile} onClose=${() => setTaking(false)} />`}`;
}
