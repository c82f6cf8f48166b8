// Calibrate: how sure a match has to be, what that means, and whether it still holds.
import { admin, at, get, useCall } from "../../lib/api.js";
import { html, useState } from "../../lib/html.js";
import { refreshGalleries } from "../../lib/galleries.js";
import { setParams } from "../../lib/router.js";
import { Button } from "../../parts/field.js";
import { Fault, Waiting } from "../../parts/notice.js";
import { Tabs } from "../../parts/tabs.js";
import { Check } from "./check.js";
import { Compare } from "./compare.js";
import { History } from "./history.js";
import { Report } from "./report.js";
import { Slider } from "./slider.js";
import { Start } from "./start.js";
import { Underway, useUnderway } from "./underway.js";

export const title = "Calibrate";
export const needs = "admin";

const VIEWS = [["slider", "How sure?"], ["figures", "Figures"], ["check", "Check"], ["history", "History"]];
const MEASURED = ["leave_one_out", "queries", "searches"];

// What is looked at: the one that was asked for, the one in force, or what that was set by hand beside.
// Further ways to search may have calibrations in force too: what counts is what searches without options are decided by.
function shownOf(all, id, now) {
  const inForce = all.find((one) => one.id === now) ?? all.find((one) => one.is_active) ?? null;
  const asked = id ? all.find((one) => one.id === id) : null;
  const measured = all.filter((one) => MEASURED.includes(one.source));
  const own = inForce && MEASURED.includes(inForce.source) ? inForce : measured.find((one) => !inForce || one.pipeline === inForce.pipeline);
  return { inForce, record: asked ?? own ?? measured[0] ?? inForce, isMissing: Boolean(id) && !asked };
}

export function Place({ gallery, params }) {
  const history = useCall((signal) => Promise.all([get(admin(gallery, "/calibrations"), { signal }), get(at(gallery), { signal })]), [gallery]);
  const [turn, setTurn] = useState(0);
  const changed = () => {
    history.again();
    refreshGalleries();
    setTurn((n) => n + 1);
  };
  const underway = useUnderway(gallery, changed);
  const { error } = history;
  const [value, body] = history.value ?? [];
  const head = html`<div class="head"><h1>${title}</h1>
    ${value?.calibrations.length > 0 && params.view !== "new" && html`<${Button} onClick=${() => setParams({ view: "new" })}>Calibrate again<//>`}
    <p>Choose how sure a match has to be: what is found, and what is taken for something it is not.</p></div>`;
  if (!value) return html`${head}${error ? html`<${Fault} error=${error} again=${history.again} />` : html`<${Waiting} />`}`;
  const { inForce, record, isMissing } = shownOf(value.calibrations, params.id, body.threshold?.calibration);
  const isNew = !record || params.view === "new";
  const view = VIEWS.some(([one]) => one === params.view) ? params.view : "slider";
  const show = (next) => setParams({ view: next === "slider" ? null : next, with: null });
  const shared = { gallery, record, inForce, promise: body.promise[0] ?? null, underway, changed, turn };
  return html`<div class="calibrate">${head}
    <${Fault} error=${error} again=${history.again} />
    ${isMissing && html`<${Fault} error="There is no such calibration in this gallery: the one in force is shown." />`}
    <${Underway} gallery=${gallery} underway=${underway} />
    ${isNew && html`<${Start} key="new" ...${shared} onClose=${record ? () => show("slider") : null} />`}
    ${!isNew && html`<${Tabs} value=${view} tabs=${VIEWS} onChange=${show} />
      ${view === "slider" && html`<${Slider} key=${record.id} ...${shared} />`}
      ${view === "figures" && html`<${Report} key=${record.id} ...${shared} />`}
      ${view === "check" && html`<${Check} key=${record.id} ...${shared} />`}
      ${view === "history" && (params.with ? html`<${Compare} ...${shared} other=${params.with} />` : html`<${History} ...${shared} all=${value} />`)}`}
  </div>`;
}

