// Several photos at once: chosen one by one or as a row, then given a label or removed.
import { at, inWords, patch, post } from "../../lib/api.js";
import { html, useRef, useState } from "../../lib/html.js";
import { number, short } from "../../lib/text.js";
import { ask, Dialog } from "../../parts/dialog.js";
import { Button } from "../../parts/field.js";
import { LabelSearch } from "../../parts/labels.js";
import { tell } from "../../parts/notice.js";
import { Progress } from "../../parts/progress.js";

const MOST = 10_000;
const photos = (n) => `${number(n)} ${n === 1 ? "photo" : "photos"}`;

// `picked` is null where nothing is chosen; with the shift key all up to the last one are.
export function usePicked(itemAt) {
  const [picked, pick] = useState(null);
  const last = useRef(null);
  const toggle = (i, isRow) => {
    const from = isRow && last.current !== null ? Math.min(i, last.current) : i, to = isRow && last.current !== null ? Math.max(i, last.current) : i;
    pick((old) => {
      const next = new Set(old);
      const isOn = isRow || !next.has(itemAt(i)?.id);
      for (let one = from; one <= to; one += 1) {
        const id = itemAt(one)?.id;
        if (id === undefined) continue;
        if (!isOn) next.delete(id);
        else if (next.size < MOST) next.add(id);
      }
      return next;
    });
    last.current = i;
  };
  return { picked, begin: () => pick(new Set()), end: () => { last.current = null; pick(null); }, toggle };
}

function Labelling({ gallery, ids, onClose, onDone }) {
  const [done, setDone] = useState(null);
  const stop = useRef(false);
  const give = async (label) => {
    let n = 0;
    setDone(0);
    try {
      for (const id of ids) {
        if (stop.current) break;
        await patch(at(gallery, "/item"), { query: { id }, body: { label } });
        setDone(n += 1);
      }
      tell(`${photos(n)} ${n === 1 ? "has" : "have"} the label ${short(label, 60)} now.`);
    } catch (error) {
      tell(`${number(n)} of ${photos(ids.length)} ${n === 1 ? "has" : "have"} the label now. ${inWords(error)}`, { kind: "wrong" });
    }
    onDone();
  };
  const close = () => { if (done === null) onClose(); else stop.current = true; };
  return html`<${Dialog} title=${`A label for ${photos(ids.length)}`} onClose=${close}>
    ${done === null ? html`<${LabelSearch} gallery=${gallery} mayBeNew=${true} label="What do they show?" onChoose=${give} />`
      : html`<${Progress} done=${done} total=${ids.length} text="Giving the label" /><div class="row end"><${Button} onClick=${close}>Stop<//></div>`}<//>`;
}

export function Picking({ gallery, picking, onChanged }) {
  const { picked, end } = picking;
  const [isLabelling, setLabelling] = useState(false);
  const n = picked.size;
  const done = () => { setLabelling(false); end(); onChanged(); };
  const remove = async () => {
    const text = "No search finds them any more. They do not come back when their folder is indexed again.";
    if (!(await ask({ title: `Remove ${photos(n)}?`, text, yes: "Remove", isDanger: true }))) return;
    try {
      await post(at(gallery, "/items/delete"), { body: { ids: [...picked] } });
      tell(`${photos(n)} ${n === 1 ? "was" : "were"} removed.`);
      done();
    } catch (error) {
      tell(inWords(error), { kind: "wrong" });
    }
  };
  return html`<div class="row gallery-picking"><strong role="status">${number(n)} chosen</strong>
    <${Button} disabled=${!n} onClick=${() => setLabelling(true)}>Label<//><${Button} disabled=${!n} onClick=${remove}>Remove<//><${Button} kind="quiet" onClick=${end}>Done<//>
    ${isLabelling && html`<${Labelling} gallery=${gallery} ids=${[...picked]} onClose=${() => setLabelling(false)} onDone=${done} />`}</div>`;
}
