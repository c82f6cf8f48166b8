// Doubles: photos that are there more than once, and which of them go.
import { admin, at, del, get, inWords, post, useCall } from "../../lib/api.js";
import { html, useMemo, useRef, useState } from "../../lib/html.js";
import { setParams } from "../../lib/router.js";
import { may, whyNot } from "../../lib/session.js";
import { bytes, number, short, when } from "../../lib/text.js";
import { ask } from "../../parts/dialog.js";
import { Button, Choice } from "../../parts/field.js";
import { Empty, Fault, tell, Waiting } from "../../parts/notice.js";
import { useShortcuts } from "../../parts/shortcuts.js";
import { Compare } from "./compare.js";
import { Group, isExact } from "./group.js";
import { Look, surest } from "./look.js";
import { all, commonOf, foldersOf, Rule, ruleOf, ticks } from "./rule.js";

export const title = "Doubles";
export const needs = "admin";

const A_PAGE = 20, TOGETHER = 500;
// What keeps the label and the notes of what goes.
const staysFor = (group, ticked) => all(group).find((one) => !ticked.has(one.id));
const photos = (n) => `${number(n)} ${n === 1 ? "photo" : "photos"}`;

// All that is left of a record: without what has gone since, and what was called no copy.
async function recordOf(gallery, id, signal) {
  let after = 0, found = null;
  while (after !== null) {
    const page = await get(admin(gallery, `/duplicates/${encodeURIComponent(id)}`), { query: { after, size: 1000, left: true }, signal });
    found = found ? { ...found, groups: [...found.groups, ...page.groups] } : page;
    after = page.next;
  }
  return found;
}

export function Place({ gallery, params }) {
  const records = useCall((signal) => get(admin(gallery, "/duplicates"), { signal }), [gallery]);
  const id = params.record ?? records.value?.[0]?.id ?? null;
  // The newest is shown where none is named.
  const done = () => { records.again(); setParams({ record: null }); };
  return html`<div class="head"><h1>${title}</h1><p>Photos that are there more than once: the same file twice, or smaller, cropped and turned copies of it. Nothing goes before you say so.</p></div>
    <div class="doubles">
      <${Fault} error=${records.error} again=${records.again} />
      ${records.value && html`<${Look} gallery=${gallery} latest=${records.value[0]} onFound=${done} />`}
      ${!records.value && !records.error && html`<${Waiting} />`}
      ${records.value?.length > 1 && html`<${Choice} label="Look of" value=${id} onChange=${(record) => setParams({ record })}
        options=${records.value.map((one) => [one.id, `${when(one.created_at)}: ${photos(one.n_exact + one.n_near)}`])} />`}
      ${id && html`<${Record} key=${id} gallery=${gallery} id=${id} params=${params} />`}
    </div>`;
}

function Record({ gallery, id, params }) {
  const found = useCall((signal) => recordOf(gallery, id, signal), [gallery, id]);
  const [own, setOwn] = useState(new Map());
  const [page, setPage] = useState(0);
  const [compared, compare] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const place = useRef();
  const groups = useMemo(() => found.value?.groups ?? [], [found.value]);
  const items = useMemo(() => groups.flatMap(all), [groups]);
  const common = useMemo(() => commonOf(foldersOf(groups)), [groups]);
  const rule = useMemo(() => ruleOf(params), [params.keep, params.folder, params.never]);
  const ticked = useMemo(() => ticks(groups, rule, own), [groups, rule, own]);
  const going = items.filter((one) => ticked.has(one.id));
  const last = Math.max(0, Math.ceil(groups.length / A_PAGE) - 1), shown = Math.min(page, last);
  const tick = (item, isOn) => setOwn((old) => new Map(old).set(item, isOn));
  const groupOf = (item) => groups.find((one) => all(one).some((each) => each.id === item));

  const not = async (item) => {
    const group = groupOf(item.id);
    const differs = (one) => one.id !== item.id && (item.content && one.content ? one.content !== item.content : one.id === group.kept.id);
    try {
      const { number: given } = await post(admin(gallery, "/duplicates/verdicts"), { body: { first: item.id, others: all(group).filter(differs).map((one) => one.id) } });
      compare(null);
      tell("They are not called doubles again.", { undo: async () => { await del(admin(gallery, `/duplicates/verdicts/${given}`)); found.again(); } });
      found.again();
    } catch (error) {
      tell(inWords(error), { kind: "wrong" });
    }
  };

  const remove = async () => {
    if (isBusy || !going.length) return;
    const nWhole = groups.filter((one) => all(one).every((each) => ticked.has(each.id))).length;
    const whole = nWhole ? ` Of ${nWhole === 1 ? "1 group" : `${number(nWhole)} groups`} no photo is left.` : "";
    const text = `They are set aside: no search finds them, until they are brought back. The photo that stays gets the labels and notes that it lacks. Their files stay where they are.${whole}`;
    if (!(await ask({ title: `Delete ${photos(going.length)} from this gallery?`, text, yes: `Delete ${photos(going.length)}`, isDanger: true }))) return;
    setBusy(true);
    let n = 0;
    const gone = [], differing = [];
    try {
      for (let from = 0; from < going.length; from += TOGETHER) {
        const ids = going.slice(from, from + TOGETHER).map((one) => one.id);
        const stays = ids.map((one) => [one, staysFor(groupOf(one), ticked)?.id]).filter(([, other]) => other);
        const done = await post(at(gallery, "/set-aside"), { body: { ids, reason: "a double", instead: Object.fromEntries(stays) } });
        n += done.removed;
        gone.push(...ids);
        differing.push(...done.conflicts);
      }
      const undo = async () => {
        for (const id of gone) await del(at(gallery, "/set-aside"), { query: { id } });
        found.again();
      };
      const other = differing.length ? ` ${number(differing.length)} labels or notes differ from those of what stays, such as: ${short(differing[0], 200)}.` : "";
      tell(`${photos(n)} deleted.${other}`, { undo });
    } catch (error) {
      const isGone = error.type === "item-not-found";
      const reason = isGone ? "Some of them are gone already, so that the others stay for now. Look at what is ticked, and delete again." : inWords(error);
      tell(n ? `${photos(n)} deleted. ${reason}` : reason, { kind: "wrong" });
    }
    setOwn(new Map());
    setBusy(false);
    found.again();
  };

  const boxes = () => [...place.current.querySelectorAll("input[data-id]")];
  const focused = () => boxes().find((one) => one === document.activeElement);
  const move = (by) => {
    const list = boxes(), now = list.indexOf(document.activeElement);
    list[now < 0 ? 0 : Math.min(list.length - 1, Math.max(0, now + by))]?.focus();
  };
  const moveGroup = (by) => {
    const list = [...place.current.querySelectorAll(".doubles-group")], now = list.indexOf(document.activeElement?.closest(".doubles-group"));
    list[now < 0 ? 0 : Math.min(list.length - 1, Math.max(0, now + by))]?.querySelector("input[data-id]").focus();
  };
  const at_ = (does) => () => { const box = focused(); if (box) does(items.find((one) => one.id === box.dataset.id)); };
  useShortcuts({
    j: () => moveGroup(1), k: () => moveGroup(-1), arrowright: () => move(1), arrowleft: () => move(-1),
    x: at_((item) => tick(item.id, !ticked.has(item.id))), c: at_((item) => compare(item.id)),
    n: at_((item) => item.id !== groupOf(item.id).kept.id && !isExact(item) && not(item)), delete: () => may("write", gallery) && remove(),
  }, groups.length > 0);

  if (!found.value) return found.error ? html`<${Fault} error=${found.error} again=${found.again} />` : html`<${Waiting} text="Fetching all groups…" />`;
  const { sentence, notes } = found.value;
  const basis = html`<details class="doubles-basis"><summary>How sure is this?</summary><p dir="auto">${sentence}.</p>${notes.map((one) => html`<p key=${one} dir="auto">${one}.</p>`)}</details>`;
  if (!groups.length) {
    return surest(found.value) ? html`<${Empty} title="No file is there twice" text="Changed copies were left out of this look." />${basis}`
      : html`<${Empty} title="No doubles" text="Every photo of this gallery is there once, as far as this look can tell." />${basis}`;
  }
  const opened = compared !== null && groupOf(compared);
  return html`<${Fault} error=${found.error} again=${found.again} />
    <${Rule} rule=${rule} groups=${groups} onChange=${() => setOwn(new Map())} />
    <div class="row doubles-sum"><p><strong>${number(groups.length)}</strong> ${groups.length === 1 ? "group" : "groups"}</p>
      <p class="soft small doubles-keys"><kbd>J</kbd> <kbd>K</kbd> group, <kbd>←</kbd> <kbd>→</kbd> photo, <kbd>X</kbd> tick, <kbd>C</kbd> compare, <kbd>N</kbd> not the same, <kbd>Del</kbd> delete</p></div>
    ${basis}
    <div class="doubles-groups" ref=${place}>${groups.slice(shown * A_PAGE, (shown + 1) * A_PAGE).map((group) => html`<${Group} key=${group.kept.id} gallery=${gallery} group=${group} rule=${rule} common=${common} ticked=${ticked} onTick=${tick} onCompare=${compare} onNot=${not} />`)}</div>
    ${last > 0 && html`<nav class="row doubles-pages" aria-label="Pages of groups"><${Button} disabled=${shown === 0} onClick=${() => { setPage(shown - 1); scrollTo(0, 0); }}>Back<//>
      <span class="soft">Page ${shown + 1} of ${last + 1}</span><${Button} disabled=${shown === last} onClick=${() => { setPage(shown + 1); scrollTo(0, 0); }}>Next page<//></nav>`}
    <div class="doubles-bar" role="region" aria-label="What is ticked">
      <p role="status"><strong>${number(going.length)}</strong> ticked${going.some((one) => one.n_bytes) && html`, <span class="soft">${bytes(going.reduce((sum, one) => sum + (one.n_bytes ?? 0), 0))}</span>`}</p>
      ${own.size > 0 && html`<${Button} kind="quiet" onClick=${() => setOwn(new Map())}>Back to the rule<//>`}
      ${may("write", gallery) ? html`<${Button} kind="danger" busy=${isBusy} disabled=${!going.length} onClick=${remove}>Delete ticked<//>` : html`<p class="soft">${whyNot("write")}</p>`}
    </div>
    ${opened && html`<${Compare} gallery=${gallery} group=${opened} id=${compared} ticked=${ticked} onTick=${tick} onNot=${not} onClose=${() => compare(null)} />`}`;
}
