// One answer for all that are marked.
import { html, useState } from "../../lib/html.js";
import { number } from "../../lib/text.js";
import { Dialog } from "../../parts/dialog.js";
import { Button } from "../../parts/field.js";
import { LabelSearch } from "../../parts/labels.js";
import { useShortcuts } from "../../parts/shortcuts.js";

export function Batch({ gallery, n, isBusy, onSay, onClear }) {
  const [isFinding, find] = useState(false);
  useShortcuts({
    n: () => onSay({ absent: true }),
    "?": () => onSay({ unsure: true }),
    "/": () => find(true),
    escape: onClear,
  });
  return html`<div class="review-batch" role="region" aria-label="Answer for all that are marked">
    <p role="status"><strong>${number(n)}</strong> marked</p>
    <div class="row">
      <${Button} busy=${isBusy} onClick=${() => onSay({ absent: true })}>We don't have it <kbd>N</kbd><//>
      <${Button} busy=${isBusy} onClick=${() => find(true)}>All are… <kbd>/</kbd><//>
      <${Button} busy=${isBusy} onClick=${() => onSay({ unsure: true })}>I can't tell <kbd>?</kbd><//>
      <${Button} kind="quiet" onClick=${onClear}>Clear<//>
    </div>
    ${isFinding && html`<${Dialog} title="What are all of these?" onClose=${() => find(false)}>
      <${LabelSearch} gallery=${gallery} label="Label that the gallery has" onChoose=${(label) => { find(false); onSay({ label }); }} /><//>`}
  </div>`;
}
