// Two photos side by side, and in what they differ.
import { at, get, useCall } from "../../lib/api.js";
import { html, useEffect, useState } from "../../lib/html.js";
import { original, thumbnail } from "../../lib/pictures.js";
import { bytes, short, valueText, when } from "../../lib/text.js";
import { Dialog } from "../../parts/dialog.js";
import { Button, Tick } from "../../parts/field.js";
import { Fault } from "../../parts/notice.js";
import { Picture } from "../../parts/picture.js";
import { useShortcuts } from "../../parts/shortcuts.js";
import { changedIn, isExact, sizeOf } from "./group.js";
import { all, pathOf } from "./rule.js";

// Where the file is there, it is shown as it is; else what was kept of it.
function Shown({ gallery, item, side, isTicked, onTick }) {
  const [isSmall, setSmall] = useState(item.n_bytes === null);
  useEffect(() => setSmall(item.n_bytes === null), [item.id]);
  return html`<figure><${Picture} path=${isSmall ? thumbnail(gallery, item.id) : original(gallery, item.id)} alt=${short(item.id, 80)} onMissing=${() => setSmall(true)} />
    <figcaption><${Tick} label=${`Delete ${side} one`} checked=${isTicked} onChange=${onTick} />${isSmall && html`<span class="soft small">small picture only: the file is not at hand</span>`}</figcaption></figure>`;
}

const FIELDS = [
  ["Place", (item) => pathOf(item)],
  ["Label", (item) => item.label ?? "none"],
  ["Size", sizeOf],
  ["File", ({ n_bytes: n }) => (n === null ? "not at hand" : bytes(n))],
  ["Taken", ({ taken_at: one }) => (one ? when(one) : "not known")],
  ["Added", ({ added_at: one }) => (one ? when(one) : "not known")],
];

function rows(first, second, details) {
  const found = FIELDS.map(([name, write]) => [name, write(first), write(second)]);
  const [one = {}, other = {}] = details ?? [];
  const keys = [...new Set([...Object.keys(one), ...Object.keys(other)])].sort();
  return [...found, ...keys.map((key) => [key, valueText(one[key]), valueText(other[key])])];
}

export function Compare({ gallery, group, id, ticked, onTick, onNot, onClose }) {
  const items = all(group);
  const [first, setFirst] = useState(items[0].id === id ? items[0].id : group.kept.id);
  const [second, setSecond] = useState(id === first ? items[1].id : id);
  const one = items.find((each) => each.id === first) ?? items[0], other = items.find((each) => each.id === second) ?? items[1];
  const details = useCall((signal) => Promise.all([one, other].map(async (each) => (await get(at(gallery, "/item"), { query: { id: each.id }, signal })).metadata)), [gallery, one.id, other.id], { refreshes: false });
  const others = items.filter((each) => each.id !== one.id);
  const step = (by) => setSecond(others[(others.indexOf(other) + by + others.length) % others.length].id);
  useShortcuts({ arrowright: () => step(1), arrowleft: () => step(-1), x: () => onTick(other.id, !ticked.has(other.id)), n: () => isExact(other) || onNot(other) }, true, { inDialog: true });
  const place = others.indexOf(other) + 1;
  return html`<${Dialog} wide title="Two photos of a group" onClose=${onClose}>
    <div class="doubles-both">
      <${Shown} gallery=${gallery} item=${one} side="left" isTicked=${ticked.has(one.id)} onTick=${(isOn) => onTick(one.id, isOn)} />
      <${Shown} gallery=${gallery} item=${other} side="right" isTicked=${ticked.has(other.id)} onTick=${(isOn) => onTick(other.id, isOn)} />
    </div>
    <div class="row doubles-steps">
      ${others.length > 1 && html`<${Button} onClick=${() => step(-1)}>Before <kbd>←</kbd><//><span class="soft">${place} of ${others.length}</span><${Button} onClick=${() => step(1)}>Next <kbd>→</kbd><//>
        <${Button} kind="quiet" onClick=${() => { setFirst(other.id); setSecond(one.id); }}>Right one to the left<//>`}
      <span class="doubles-far soft small">${other.id !== group.kept.id && html`Right one: ${changedIn(other.kinds)}${other.score !== null && !isExact(other) && `, ${(100 * other.score).toFixed(0)} % alike`}`}</span>
      ${other.id !== group.kept.id && !isExact(other) && html`<${Button} onClick=${() => onNot(other)}>Not the same <kbd>N</kbd><//>`}
      <${Button} kind="main" onClick=${onClose}>Done<//>
    </div>
    <${Fault} error=${details.error} again=${details.again} />
    <div class="doubles-table"><table><thead><tr><th scope="col"><span class="unseen">What</span></th><th scope="col">Left</th><th scope="col">Right</th></tr></thead>
      <tbody>${rows(one, other, details.value).map(([name, left, right]) => html`<tr key=${name} class=${left === right ? "soft" : "differs"}>
        <th scope="row"><bdi>${short(name, 60)}</bdi></th><td><bdi>${short(left)}</bdi></td><td><bdi>${short(right)}</bdi>${left !== right && html` <span class="tag unsure">differs</span>`}</td></tr>`)}</tbody></table></div>
  <//>`;
}
