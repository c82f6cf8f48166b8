// A filter that is put together of what there is, or written as text.
import { at, get, useCall } from "../../lib/api.js";
import { filterText, isWhole, keyName, kindOf, opsOf, opText, rowsOf, takesValue } from "../../lib/filters.js";
import { html, useState } from "../../lib/html.js";
import { number, short } from "../../lib/text.js";
import { Dialog } from "../../parts/dialog.js";
import { Button, Field, useId } from "../../parts/field.js";
import { Icon } from "../../parts/icon.js";

const LONGEST = 4096;
const MOST_LABELS = 200;
const NEW = { field: "label", kind: "text", op: "is", value: "" };
const INPUTS = { number: { type: "number", step: "any" }, date: { type: "date" }, text: { type: "text", dir: "auto" } };

const known = (keys, labels) => [
  { field: "label", name: "Label", kinds: { text: 1 }, values: labels },
  { field: "id", name: "Name of the photo", kinds: { text: 1 }, values: [] },
  ...keys.map((one) => ({ ...one, name: keyName(one.field) })),
];
const hintOf = ({ low, high, first_day: first, last_day: last }, kind) => (kind === "number" && low !== null && low !== undefined ? `from ${number(low)} to ${number(high)}`
  : kind === "date" && first ? `from ${first} to ${last}` : null);

function Value({ row, name, found, onChange }) {
  const list = useId();
  if (row.kind === "boolean") {
    return html`<select aria-label=${name} value=${row.value} onChange=${(event) => onChange(event.target.value)}>
      <option value="" selected=${!row.value}>choose</option>
      ${[["true", "yes"], ["false", "no"]].map(([one, text]) => html`<option key=${one} value=${one} selected=${one === row.value}>${text}</option>`)}</select>`;
  }
  const values = (found?.values ?? []).filter(({ value }) => row.kind !== "number" || !Number.isNaN(Number(value)));
  return html`<input ...${INPUTS[row.kind]} aria-label=${name} value=${row.value ?? ""} list=${list} maxlength="256" onInput=${(event) => onChange(event.target.value)} />
    <datalist id=${list}>${row.kind !== "date" && values.map(({ value, n }) => html`<option key=${String(value)} value=${String(value)}>${number(n)} photos</option>`)}</datalist>`;
}

function Row({ row, place, fields, onChange, onRemove }) {
  const found = fields.find((one) => one.field === row.field);
  const hint = found && hintOf(found, row.kind);
  const pick = (name) => {
    const kind = kindOf(fields.find((one) => one.field === name)?.kinds);
    onChange({ field: name, kind, op: opsOf(kind).includes(row.op) ? row.op : "is", value: "" });
  };
  const nth = `Condition ${place + 1}`;
  return html`<li class="search-row">
    <select aria-label=${`${nth}: what`} value=${row.field} onChange=${(event) => pick(event.target.value)} dir="auto">
      ${!found && html`<option value=${row.field} selected>${keyName(row.field)}</option>`}
      ${fields.map((one) => html`<option key=${one.field} value=${one.field} selected=${one.field === row.field}>${one.name}</option>`)}</select>
    <select aria-label=${`${nth}: how`} value=${row.op} onChange=${(event) => onChange({ ...row, op: event.target.value })}>
      ${opsOf(row.kind).map((op) => html`<option key=${op} value=${op} selected=${op === row.op}>${opText(op, row.kind)}</option>`)}</select>
    ${takesValue(row.op) && html`<${Value} row=${row} name=${`${nth}: value`} found=${found} onChange=${(value) => onChange({ ...row, value })} />`}
    ${row.op === "between" && html`<span class="soft">and</span><${Value} row=${{ ...row, value: row.value2 }} name=${`${nth}: upper value`} found=${found} onChange=${(value2) => onChange({ ...row, value2 })} />`}
    <button type="button" class="button quiet small" aria-label=${`Remove condition ${place + 1}`} onClick=${onRemove}><${Icon} name="close" /></button>
    ${hint && html`<p class="soft small">${hint}</p>`}
  </li>`;
}

function Builder({ gallery, text, keys, onDone, onClose }) {
  const labels = useCall((signal) => get(at(gallery, "/labels"), { query: { size: MOST_LABELS }, signal, tries: 1 }), [gallery], { refreshes: false });
  const read = rowsOf(text);
  const [rows, setRows] = useState(read?.length ? read : [NEW]);
  const [typed, type] = useState(read ? null : text);
  const fields = known(keys, (labels.value?.labels ?? []).map(({ label, n_items: n }) => ({ value: label, n })));
  const change = (place, row) => setRows(rows.map((one, other) => (other === place ? row : one)));
  const isText = typed !== null;
  const now = isText ? typed.trim() : filterText(rows);
  const write = () => type(filterText(rows));
  const build = () => { const found = rowsOf(typed); if (found) setRows(found.length ? found : [NEW]); type(null); };
  const done = (event) => { event.preventDefault(); onDone(now || null); };
  return html`<${Dialog} title="Search among" onClose=${onClose} wide=${true}>
    <form onSubmit=${done}>
      ${isText ? html`<${Field} label="Filter" hint="For instance: label = 'shoe' AND metadata.price < 50">${(control) => html`
          <textarea rows="3" maxlength=${LONGEST} spellcheck=${false} dir="auto" value=${typed} onInput=${(event) => type(event.target.value)} ...${control}></textarea>`}<//>`
        : html`<p class="soft">Only photos that fulfil all of this are found. What is a match stays the same.</p>
          <ol class="search-rows">${rows.map((row, place) => html`<${Row} key=${place} row=${row} place=${place} fields=${fields} onChange=${(one) => change(place, one)}
            onRemove=${() => setRows(rows.filter((_, other) => other !== place))} />`)}</ol>
          <div class="row"><${Button} onClick=${() => setRows([...rows, NEW])}><${Icon} name="add" />Add a condition<//></div>`}
      <div class="row end">
        <${Button} kind="quiet" onClick=${isText ? build : write} disabled=${isText && rowsOf(typed) === null}>${isText ? "Choose instead" : "Write it as text"}<//>
        <${Button} onClick=${() => onDone(null)}>No filter<//>
        <${Button} type="submit" kind="main" disabled=${!isText && rows.some((one) => !isWhole(one))}>Use this filter<//>
      </div>
    </form>
  <//>`;
}

export function Filter({ gallery, text, keys, onChange }) {
  const [isOpen, open] = useState(false);
  const done = (filter) => { open(false); onChange(filter); };
  return html`<div class="search-filter">
    <${Button} onClick=${() => open(true)}>${text ? "Change the filter" : "Filter"}<//>
    ${text && html`<p class="search-filter-text"><bdi>${short(text, 160)}</bdi>
      <button type="button" class="button quiet small" aria-label="Remove the filter" onClick=${() => onChange(null)}><${Icon} name="close" /></button></p>`}
    ${isOpen && html`<${Builder} gallery=${gallery} text=${text} keys=${keys} onDone=${done} onClose=${() => open(false)} />`}
  </div>`;
}
