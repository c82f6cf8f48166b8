// Photos that were chosen and are not sent yet: how many, what their folders call them, and what is no photo.
import { limits } from "../lib/api.js";
import { labelOf, numbered, whyLeftOut } from "../lib/files.js";
import { html, useEffect, useMemo, useState } from "../lib/html.js";
import { number, short } from "../lib/text.js";
import { useFiles } from "./drop.js";
import { Button, Field, Tick } from "./field.js";
import { LeftOut } from "./left_out.js";

const PREVIEWS = 7;
const LABELS = 8;
const LONGEST = 200;
const NOTHING = { good: [], leftOut: [], byFolder: false, label: "" };

const labelsOf = (good) => {
  const counts = new Map();
  for (const { path } of good) counts.set(labelOf(path), (counts.get(labelOf(path)) ?? 0) + 1);
  counts.delete(null);
  return counts;
};

// More may be chosen before they are sent; `taken` is what an upload is given.
export function useChosen() {
  const [chosen, set] = useState(NOTHING);
  const take = async (files) => {
    const { max_image_bytes: most } = await limits().catch(() => ({ max_image_bytes: Infinity }));
    set((old) => {
      const known = new Map(old.good.map((one) => [one.path, one.file]));
      const good = [...old.good], leftOut = [...old.leftOut];
      for (const one of files) {
        const why = whyLeftOut(one, most), same = known.get(one.path);
        if (why) leftOut.push({ id: one.path, reason: why });
        else if (!same || same.size !== one.file.size || same.lastModified !== one.file.lastModified) {
          const path = same ? numbered(one.path, (name) => known.has(name)) : one.path;
          known.set(path, one.file);
          good.push({ file: one.file, path });
        }
      }
      // One folder alone is where they lay, and does not say what each shows.
      return { ...old, good, leftOut, byFolder: old.good.length ? old.byFolder : labelsOf(good).size > 1 };
    });
  };
  const taken = useMemo(
    () => chosen.good.map(({ file, path }) => ({ file, id: path, label: chosen.byFolder ? labelOf(path) : chosen.label.trim() || null })),
    [chosen],
  );
  return { ...chosen, take, taken, change: (part) => set((old) => ({ ...old, ...part })), clear: () => set(NOTHING) };
}

function Preview({ file }) {
  const [url, setUrl] = useState(null);
  const [isMissing, miss] = useState(false);
  useEffect(() => {
    const made = URL.createObjectURL(file);
    setUrl(made);
    return () => URL.revokeObjectURL(made);
  }, [file]);
  return html`<li>${url && !isMissing && html`<img class="picture" src=${url} alt="" decoding="async" onError=${() => miss(true)} />`}</li>`;
}

export function Chosen({ chosen }) {
  const { good, leftOut, byFolder, label, change, clear, take } = chosen;
  useFiles(async (given) => take(await given), true);
  const labels = useMemo(() => [...labelsOf(good)], [good]);
  const more = labels.length - LABELS;
  return html`<section class="chosen-photos stack" aria-label="What was chosen">
    <div class="row"><h2>${number(good.length)} ${good.length === 1 ? "photo" : "photos"}</h2><${Button} kind="quiet" onClick=${clear}>Choose others<//><span class="soft small drop-with-mouse">or drop more</span></div>
    <ul class="chosen-previews" aria-hidden="true">${good.slice(0, PREVIEWS).map((one) => html`<${Preview} key=${one.path} file=${one.file} />`)}
      ${good.length > PREVIEWS && html`<li class="soft">+${number(good.length - PREVIEWS)}</li>`}</ul>
    ${labels.length > 0 && html`<div class="stack chosen-labels">
      <${Tick} label="The folder of a photo says what it shows" checked=${byFolder} onChange=${(is) => change({ byFolder: is })} />
      ${byFolder ? html`<ul class="row" aria-label="Labels">${labels.slice(0, LABELS).map(([label, n]) => html`<li key=${label} class="tag"><bdi>${short(label, 40)}</bdi> · ${number(n)}</li>`)}
        ${more > 0 && html`<li class="soft">and ${number(more)} more</li>`}</ul>` : null}</div>`}
    ${!byFolder && good.length > 0 && html`<${Field} label="What do they show?" hint="A label for all of them, where they show one thing. It may stay empty: labels let you measure how often a match is right.">${(control) => html`
      <input type="text" dir="auto" autocomplete="off" maxlength=${LONGEST} value=${label} onInput=${(event) => change({ label: event.target.value })} ...${control} />`}<//>`}
    <${LeftOut} files=${leftOut} title="Left out" />
  </section>`;
}
