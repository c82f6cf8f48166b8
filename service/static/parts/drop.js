// A place for files: dropped anywhere on the page, pasted, or chosen; folders too where they are asked for.
import { filesOf, filesOfInput } from "../lib/files.js";
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { Icon } from "./icon.js";

const hasFiles = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");

// What is dropped anywhere on the page is taken; tells whether something is held above it.
export function useFiles(take, paste = false) {
  const [isOver, setOver] = useState(false);
  const last = useRef(take);
  last.current = take;
  useEffect(() => {
    const stop = new AbortController();
    const on = (name, does) => addEventListener(name, does, { signal: stop.signal });
    on("dragover", (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      event.dataTransfer.dropEffect = "copy";
      setOver(true);
    });
    on("dragleave", (event) => { if (!event.relatedTarget) setOver(false); });
    on("drop", (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      setOver(false);
      if (!document.querySelector("dialog[open]")) last.current(filesOf(event.dataTransfer));
    });
    if (paste) on("paste", (event) => { if (event.clipboardData?.files.length) last.current(filesOf(event.clipboardData)); });
    return () => stop.abort();
  }, [paste]);
  return isOver;
}

function Chooser({ text, icon, onFiles, ...input }) {
  const choose = (event) => {
    const { target } = event;
    onFiles(filesOfInput(target));
    // The same may be chosen again.
    target.value = "";
  };
  return html`<label class="button drop-choose"><${Icon} name=${icon} /><span>${text}</span>
    <input class="unseen" type="file" onChange=${choose} ...${input} /></label>`;
}

export function Drop({ onFiles, multiple = false, folder = false, camera = false, paste = false, label, children }) {
  const take = async (given) => {
    const found = await given;
    if (found.length) onFiles(multiple || folder ? found : found.slice(0, 1));
  };
  const isOver = useFiles(take, paste);
  // Others open a folder as if it were a file.
  const mayFolder = folder && "webkitdirectory" in HTMLInputElement.prototype;
  return html`<div class=${`drop ${isOver ? "over" : ""}`} role="group" aria-label=${label}>
    <${Icon} name="photo" />
    ${children}
    <div class="row">
      <${Chooser} text=${multiple ? "Choose photos" : "Choose a photo"} icon="add" onFiles=${take} accept="image/*" multiple=${multiple} />
      ${mayFolder && html`<${Chooser} text="Choose a folder" icon="galleries" onFiles=${take} webkitdirectory=${true} multiple=${true} />`}
      ${camera && html`<span class="drop-with-touch"><${Chooser} text="Take a photo" icon="photo" onFiles=${take} accept="image/*" capture="environment" /></span>`}
    </div>
  </div>`;
}
