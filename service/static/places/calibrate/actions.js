// What can be done with a score: measure it, use it, put a calibration in force, or find it by words.
import { admin, inWords, post, put } from "../../lib/api.js";
import { html, useState } from "../../lib/html.js";
import { begin } from "../../lib/jobs.js";
import { ask } from "../../parts/dialog.js";
import { Button } from "../../parts/field.js";
import { Fault, tell } from "../../parts/notice.js";
import { problemOf, Targets, targetText, usual } from "./targets.js";

export function Actions({ gallery, record, inForce, isOwn, isMoved, threshold, shares, underway, changed }) {
  const [busy, setBusy] = useState(null);
  const run = async (name, work) => {
    setBusy(name);
    try {
      await work();
    } catch (error) {
      if (error.type === "job-conflict" && error.members.job) underway.follow(error.members.job);
      tell(inWords(error), { kind: "wrong" });
    }
    setBusy(null);
  };
  const back = inForce ? async () => { await post(admin(gallery, "/calibrations/roll_back"), { body: {} }); changed(); } : null;
  const put_ = () => run("hand", async () => {
    const text = "From the next search on this score decides. As it is set by hand, answers promise no rates: “Calibrate for this” measures it and keeps them.";
    if (!(await ask({ title: `Use a score of ${threshold.toFixed(4)}?`, text, yes: "Use it" }))) return;
    await put(admin(gallery, "/threshold"), { body: { threshold } });
    tell("Searches are decided by this score from now on.", { undo: back });
    changed();
  });
  const activate = () => run("activate", async () => {
    await post(admin(gallery, `/calibrations/${encodeURIComponent(record.id)}/activate`));
    tell("This calibration is in force: searches are decided by it from now on.", { undo: back });
    changed();
  });
  const wrong = shares.wrong ? Math.round(1000 * shares.wrong.rate) / 10 : null;
  const measure = () => run("measure", async () => underway.follow((await begin(admin(gallery, "/calibrations"), { body: { target: `fpir=${wrong}%`, activate: true } })).id));
  const canMeasure = isOwn && isMoved && record.source === "leave_one_out" && wrong >= 0.5 && wrong <= 50;
  const isThis = Math.abs(threshold - record.threshold) < 1e-9;
  return html`<div class="row">
    ${inForce?.id !== record.id && isThis && html`<${Button} kind="main" busy=${busy === "activate"} onClick=${activate}>Put in force<//>`}
    ${canMeasure && html`<${Button} kind="main" busy=${busy === "measure" || underway.isBusy} onClick=${measure} title=${`Of 100 things you lack, at most ${wrong} get a match`}>Calibrate for this<//>`}
    ${isOwn && isMoved && !isThis && html`<${Button} kind=${canMeasure ? "plain" : "main"} busy=${busy === "hand"} onClick=${put_}>Use this score<//>`}
  </div>
  ${canMeasure && html`<p class="soft small">“Calibrate for this” measures once more, so that answers know how sure they are. “Use this score” sets it by hand: nothing is promised.</p>`}`;
}

// The same in words: which score holds what is asked for.
export function Words({ gallery, isOwn, underway, onFound }) {
  const [target, setTarget] = useState(usual());
  const [state, setState] = useState({ isBusy: false, error: null });
  if (!isOwn) return null;
  const isWrong = Boolean(problemOf(target.name, target.text));
  const show = async (event) => {
    event.preventDefault();
    if (isWrong || state.isBusy) return;
    setState({ isBusy: true, error: null });
    try {
      const { tried } = await post(admin(gallery, "/calibrations/dry_run"), { body: { target: targetText(target) } });
      onFound(tried.threshold);
      setState({ isBusy: false, error: null });
    } catch (error) {
      setState({ isBusy: false, error });
    }
  };
  const start = async () => {
    setState({ isBusy: false, error: null });
    try {
      underway.follow((await begin(admin(gallery, "/calibrations"), { body: { target: targetText(target), activate: false } })).id);
    } catch (error) {
      if (error.type === "job-conflict" && error.members.job) underway.follow(error.members.job);
      setState({ isBusy: false, error });
    }
  };
  return html`<form class="card stack calibrate-words" onSubmit=${show}>
    <${Targets} value=${target} onChange=${setTarget} />
    <${Fault} error=${state.error} />
    <div class="row"><${Button} type="submit" busy=${state.isBusy} disabled=${isWrong}>Show on the slider<//>
      <${Button} kind="quiet" busy=${underway.isBusy} disabled=${isWrong} onClick=${start}>Calibrate for it<//></div>
  </form>`;
}
