// Which photo of a group is kept: a rule for all groups, and folders that nothing is deleted from.
import { html, useMemo } from "../../lib/html.js";
import { setParams } from "../../lib/router.js";
import { short, visible } from "../../lib/text.js";
import { Choice, Field } from "../../parts/field.js";

const RULES = [["largest", "the largest photo"], ["oldest", "the oldest photo"], ["newest", "the newest photo"], ["folder", "the one in a folder"]];
const LAST = "9999", MOST = 500, FEW = 12;

export const all = (group) => [group.kept, ...group.copies];

// Where a photo lies: what came over the network has its folder in its id alone.
export function pathOf({ uri, id }) {
  return uri.includes("/") ? uri : id;
}
export const folderOf = (item) => pathOf(item).slice(0, Math.max(0, pathOf(item).lastIndexOf("/")));
// The part of a folder that tells it from the others.
export function commonOf(folders) {
  const [first = "", ...others] = folders;
  const parts = first.split("/");
  let n = 0;
  while (n < parts.length && others.every((one) => one.split("/")[n] === parts[n])) n += 1;
  return parts.slice(0, n).join("/");
}
export const foldersOf = (groups) => [...new Set(groups.flatMap(all).map(folderOf))].sort();
export const shortFolder = (folder, common) => (folder === common ? folder.split("/").at(-1) : folder.slice(common ? common.length + 1 : 0));

const isIn = (item, folder) => `${folderOf(item)}/`.startsWith(`${folder.replace(/\/+$/, "")}/`);

// Smallest first: what a rule likes best.
const ORDERS = {
  largest: (item) => [-(item.width ?? 0) * (item.height ?? 0), -(item.n_bytes ?? 0)],
  oldest: (item) => [item.taken_at ?? LAST, item.added_at ?? LAST],
  newest: (item) => [item.taken_at ? -Date.parse(item.taken_at) : 0, item.added_at ? -Date.parse(item.added_at) : 0],
};

function isBefore(first, second) {
  const place = first.findIndex((one, at) => one !== second[at]);
  return place >= 0 && first[place] < second[place];
}

export function ruleOf({ keep, folder = "", never = "" }) {
  return { keep: RULES.some(([one]) => one === keep) ? keep : "largest", folder, never: never.split("\n").map((one) => one.trim()).filter(Boolean) };
}

export const isSafe = (item, rule) => rule.never.some((folder) => isIn(item, folder));

// What of a group stays by a rule; of equal ones that which the look kept.
export function keptBy(group, rule) {
  const order = ORDERS[rule.keep] ?? ORDERS.largest;
  const isOutside = (item) => (rule.keep === "folder" && rule.folder && !isIn(item, rule.folder) ? 1 : 0);
  const worth = (item) => [isOutside(item), ...order(item)];
  return all(group).reduce((best, one) => (isBefore(worth(one), worth(best)) ? one : best));
}

// What goes by a rule, but for what somebody ticked otherwise: `own` is by id.
export function ticks(groups, rule, own) {
  const found = new Set();
  for (const group of groups) {
    const kept = keptBy(group, rule).id;
    for (const one of all(group)) if (own.get(one.id) ?? (one.id !== kept && !isSafe(one, rule))) found.add(one.id);
  }
  return found;
}

const Folders = ({ folders, common, onChoose }) => folders.length > 0 && html`<div class="row">${folders.slice(0, FEW).map((one) => html`
  <button key=${one} type="button" class="button chip" title=${visible(one)} onClick=${() => onChoose(one)}>+ <bdi>${short(shortFolder(one, common), 50)}</bdi></button>`)}</div>`;

// `onChange` comes before the rule is another: what was ticked by hand is not of that one.
export function Rule({ rule, groups, onChange }) {
  const folders = useMemo(() => foldersOf(groups).filter(Boolean).slice(0, MOST), [groups]);
  const common = commonOf(folders);
  const set = (part) => { onChange(); setParams(part); };
  return html`<div class="doubles-rule card">
    <${Choice} label="Of each group keep" value=${rule.keep} options=${RULES} onChange=${(keep) => set({ keep: keep === "largest" ? null : keep })} />
    ${rule.keep === "folder" && html`<div class="doubles-of"><${Field} label="Folder whose photos stay" hint=${folders.length ? null : "These photos lie in no folders."}>${(control) => html`
      <input type="text" list="doubles-folders" dir="auto" value=${rule.folder} onChange=${(event) => set({ folder: event.target.value.trim() || null })} ...${control} />`}<//>
      ${!rule.folder && html`<${Folders} folders=${folders} common=${common} onChoose=${(folder) => set({ folder })} />`}</div>`}
    <details open=${rule.never.length > 0}><summary>Folders that are never touched${rule.never.length > 0 && `: ${rule.never.length}`}</summary>
      <${Field} label="One folder a line" hint="Nothing in them, or in folders below them, is ticked.">${(control) => html`
        <textarea rows="3" dir="auto" value=${rule.never.join("\n")} onChange=${(event) => set({ never: event.target.value.trim() || null })} ...${control}></textarea>`}<//>
      <${Folders} folders=${folders.filter((one) => !rule.never.includes(one))} common=${common} onChoose=${(one) => set({ never: [...rule.never, one].join("\n") })} />
    </details>
    <datalist id="doubles-folders">${folders.map((one) => html`<option key=${one} value=${one} />`)}</datalist>
  </div>`;
}
