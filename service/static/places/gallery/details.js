// What is known of a photo beside its label: shown to all, changed by who may.
import { at, inWords, patch } from "../../lib/api.js";
import { html, useState } from "../../lib/html.js";
import { may } from "../../lib/session.js";
import { short, valueText } from "../../lib/text.js";
import { Dialog } from "../../parts/dialog.js";
import { Button, Field } from "../../parts/field.js";
import { Fault, tell } from "../../parts/notice.js";

const LONG = 200;

// Long texts are shortened, and shown whole where that is asked for.
function Text({ text }) {
  const [isWhole, setWhole] = useState(false);
  if (text.length <= LONG) return html`<bdi>${text}</bdi>`;
  return html`<bdi>${isWhole ? text : short(text, LONG)}</bdi> <button type="button" class="button quiet" onClick=${() => setWhole(!isWhole)}>${isWhole ? "Show less" : "Show all"}</button>`;
}

// Numbers and yes or no are such for filters; 00123 is a text.
const asValue = (text) => {
  if (text === "yes" || text === "no") return text === "yes";
  return text.trim() !== "" && String(Number(text)) === text ? Number(text) : text;
};

function Editing({ gallery, item, name: known, onChanged, onClose }) {
  const [name, setName] = useState(known ?? "");
  const [value, setValue] = useState(known === null ? "" : valueText(item.metadata[known]));
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState(null);
  const save = async (next) => {
    setBusy(true);
    setError(null);
    try {
      onChanged(await patch(at(gallery, "/item"), { query: { id: item.id }, body: { metadata: { [name.trim()]: next } } }));
      onClose();
    } catch (problem) {
      setError(inWords(problem));
      setBusy(false);
    }
  };
  const submit = (event) => {
    event.preventDefault();
    if (name.trim() && !isBusy) save(asValue(value));
  };
  const input = (shown, set, control) => html`<input type="text" dir="auto" autocomplete="off" value=${shown} onInput=${(event) => set(event.target.value)} ...${control} />`;
  return html`<${Dialog} title=${known === null ? "Add a detail" : short(known, 60)} onClose=${onClose}><form onSubmit=${submit}>
    ${known === null && html`<${Field} label="What it is about" hint="Such as price, color or shelf.">${(control) => input(name, setName, { ...control, autofocus: true, maxlength: 200 })}<//>`}
    <${Field} label="Value" hint="A number, a date such as 2026-03-01, yes or no, or any text.">${(control) => input(value, setValue, { ...control, autofocus: known !== null })}<//>
    <${Fault} error=${error} />
    <div class="row end">${known !== null && html`<${Button} kind="quiet" disabled=${isBusy} onClick=${() => save(null)}>Take it away<//>`}
      <${Button} onClick=${onClose}>Cancel<//><${Button} type="submit" kind="main" busy=${isBusy} disabled=${!name.trim()}>Save<//></div></form><//>`;
}

export function Details({ gallery, item, onChanged }) {
  const [edited, edit] = useState(undefined);
  const mayWrite = may("write", gallery);
  const facts = Object.entries(item.metadata);
  const changed = (next) => { onChanged(next); tell("The details were changed."); };
  const row = (key, name, value, more) => html`<div key=${key}><dt><bdi>${short(name, 60)}</bdi></dt><dd><${Text} text=${value} />${more}</dd></div>`;
  return html`<dl class="gallery-facts">
      ${row("id", "Name", valueText(item.id))}
      ${item.uri && item.uri !== item.id && row("uri", "File", valueText(item.uri))}
      ${facts.map(([name, value]) => row(`m ${name}`, name, valueText(value), mayWrite && html`<button type="button" class="button quiet gallery-edit" aria-label=${`Change ${short(name, 40)}`} onClick=${() => edit(name)}>Change</button>`))}
    </dl>
    ${mayWrite && html`<div><${Button} kind="quiet" onClick=${() => edit(null)}>Add a detail<//></div>`}
    ${edited !== undefined && html`<${Editing} gallery=${gallery} item=${item} name=${edited} onChanged=${changed} onClose=${() => edit(undefined)} />`}`;
}
