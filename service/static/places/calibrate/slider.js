// The score that a match needs: what is found and what is wrong at every place, and which photos change sides.
import { admin, get, post, useCall } from "../../lib/api.js";
import { html, useEffect, useMemo, useRef, useState } from "../../lib/html.js";
import { at, nChanging, prepared, rangeOf } from "../../lib/points.js";
import { number, of100, when } from "../../lib/text.js";
import { THRESHOLDS } from "../../lib/words.js";
import { Button } from "../../parts/field.js";
import { Interval } from "../../parts/interval.js";
import { Fault, Waiting } from "../../parts/notice.js";
import { Plot } from "../../parts/plot.js";
import { Actions, Words } from "./actions.js";
import { holdsFor } from "./holds.js";
import { Sides } from "./sides.js";
import { inWordsOf, isSameSpace } from "./targets.js";

const REST = 250;
const STEPS = 1000;
const STATES = { current: ["✓", "yes", "In force"], stale: ["?", "unsure", "In force, measured long ago"], broken: ["✕", "no", "In force, found broken"], by_hand: ["–", "plain", "Set by hand"], none: ["✕", "no", "Not used any more"], default: ["–", "plain", "The model's own"] };
const SHARES = [["found", "Found, of things you have", "yes"], ["wrong", "Wrongly matched, of things you lack", "no"], ["precision", "Right, of all matches", "yes"]];

// A value that changes with every move is drawn once a frame.
function useFrames(initial) {
  const [value, set] = useState(initial);
  const next = useRef({ value: initial, frame: 0 });
  useEffect(() => () => cancelAnimationFrame(next.current.frame), []);
  const move = (to) => {
    next.current.value = to;
    next.current.frame ||= requestAnimationFrame(() => { next.current.frame = 0; set(next.current.value); });
  };
  return [value, move];
}

function useRested(value, ms) {
  const [rested, rest] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => rest(value), ms);
    return () => clearTimeout(timer);
  }, [value]);
  return rested;
}

// The rates at the place where the slider rests, exactly, and how many searches change.
function useExact({ gallery, isOwn, threshold, now, turn }) {
  const rested = useRested(threshold, REST);
  const tried = useCall((signal) => (isOwn ? post(admin(gallery, "/calibrations/dry_run"), { body: { threshold: rested }, signal }) : null), [gallery, isOwn, rested, turn], { refreshes: false });
  const isThere = tried.value && rested === threshold && Math.abs(tried.value.tried.threshold - threshold) < 1e-12;
  return isThere && now !== null ? tried.value : null;
}

const turned = ({ rate, low, high }) => ({ rate: 1 - rate, low: 1 - high, high: 1 - low });

function sharesOf(counted, exact) {
  if (!exact) return counted;
  const { fnir, fpir, precision } = exact.tried.rates;
  return { found: fnir ? turned(fnir) : counted.found, wrong: fpir ?? counted.wrong, precision: precision ?? counted.precision };
}

// A pipeline that is not in force is looked at, and put in force as it was kept.
export function Slider(props) {
  const { gallery, record } = props;
  const path = admin(gallery, `/calibrations/${encodeURIComponent(record.id)}`);
  const found = useCall((signal) => Promise.all([get(`${path}/points`, { signal }), get(path, { signal })]), [path], { refreshes: false });
  if (!found.value) return found.error ? html`<${Fault} error=${found.error} again=${found.again} />` : html`<${Waiting} text="Reading what was measured…" />`;
  const [points, { record: whole }] = found.value;
  if (!points.grid) return html`<${Kept} ...${props} /><p class="soft">Of this calibration no scores were kept: calibrate again to move its score and to see which photos change sides.</p>`;
  return html`<${Kept} ...${props} /><${Moving} ...${props} points=${points} holds=${holdsFor(whole)} />`;
}

// How the one that is looked at stands.
function Kept({ record, inForce, promise }) {
  const isActive = inForce?.id === record.id;
  const one = inForce ?? record;
  const [mark, kind, text] = STATES[one.state ?? "none"] ?? STATES.none;
  return html`<div class="calibrate-kept">
    <p><span class=${`tag ${kind}`}><span aria-hidden="true">${mark}</span> ${inForce ? text : "Nothing is in force"}</span>
      ${inForce && html`<span>A match needs a score of <strong>${one.threshold.toFixed(4)}</strong>${one.target ? `: ${inWordsOf(one.target).replace(/^./, (first) => first.toLowerCase())}` : ""}.</span>`}</p>
    ${isActive && promise && html`<p class="soft" dir="auto">${record.source === "leave_one_out" ? `With photos of another day: ${promise[0].toLowerCase()}${promise.slice(1)}` : promise}</p>`}
    ${THRESHOLDS[inForce?.state] && html`<p class="soft">${THRESHOLDS[inForce.state].text}</p>`}
    ${!isActive && html`<p class="soft">You look at the calibration of ${when(record.created_at)}${inForce ? ", whose scores are drawn here" : ""}.</p>`}
  </div>`;
}

function Moving({ gallery, record, inForce, points, holds, underway, changed, turn }) {
  const P = useMemo(() => prepared(points), [points]);
  const range = useMemo(() => rangeOf(P), [P]);
  // Scores of another model, or of another way to search, decide nothing now.
  const isOwn = Boolean(inForce) && isSameSpace(inForce, record) && inForce.state !== "none";
  const now = isOwn ? inForce.threshold : record.threshold;
  const first = isOwn && inForce.id !== record.id && ["leave_one_out", "queries", "searches"].includes(inForce.source) ? record.threshold : now;
  const [threshold, move] = useFrames(first);
  const lines = useMemo(() => {
    const at1 = (list) => list.map((one) => (one === null ? null : 1 - one));
    const { fpir, fnir, precision } = points.grid;
    return [
      { name: "Found", values: at1(fnir.rate), low: at1(fnir.high), high: at1(fnir.low), color: "s1" },
      { name: "Wrongly matched", values: fpir.rate, low: fpir.low, high: fpir.high, color: "s2" },
      { name: "Right, of matches", values: precision.rate, low: precision.low, high: precision.high, color: "s3" },
    ].filter(({ values }) => values.some((one) => one !== null));
  }, [points]);
  const exact = useExact({ gallery, isOwn, threshold, now, turn });
  const shares = sharesOf(at(P, threshold), exact);
  const isMoved = Math.abs(threshold - now) > 1e-9;
  const step = (range[1] - range[0]) / STEPS;
  const said = SHARES.filter(([name]) => shares[name]).map(([name, text]) => `${text}: ${of100(shares[name].rate)} of 100`).join("; ");
  return html`<div class="calibrate-slider">
    <section class="card stack calibrate-plot" aria-label="Score and what it does">
      <${Plot} title="What a score does" x=${points.grid.thresholds} lines=${lines} range=${range} mark=${threshold} onMark=${(to) => move(Math.min(range[1], Math.max(range[0], to)))} height=${280} xName="Score that a match needs" />
      <div class="calibrate-range">
        <span class="soft small" aria-hidden="true">finds more</span>
        <input type="range" min=${range[0]} max=${range[1]} step=${step} value=${threshold} aria-label="Score that a match needs" aria-valuetext=${`${threshold.toFixed(4)}. ${said}`}
          onInput=${(event) => move(Number(event.target.value))} />
        <span class="soft small" aria-hidden="true">errs less</span>
      </div>
    </section>
    <div class="calibrate-side"><section class="card stack calibrate-at" aria-label="At this score">
      <div class="calibrate-score"><h2>At a score of ${threshold.toFixed(4)}</h2>
        ${isMoved && html`<${Button} kind="quiet" onClick=${() => move(now)}>Back to ${now.toFixed(4)}<//>`}</div>
      ${SHARES.map(([name, label, kind]) => (shares[name] ? html`<${Interval} key=${name} label=${label} kind=${kind} ...${shares[name]} />` : html`<p key=${name} class="soft small">${label}: not measured here.</p>`))}
      ${holds && html`<p class="soft small">${holds}</p>`}
      <${Changes} exact=${exact} P=${P} now=${now} threshold=${threshold} isMoved=${isMoved} />
      <${Actions} ...${{ gallery, record, inForce, isOwn, isMoved, threshold, shares, underway, changed }} />
    </section>
    <${Words} gallery=${gallery} isOwn=${isOwn} underway=${underway} onFound=${move} /></div>
    <${Sides} gallery=${gallery} source=${record.source} P=${P} from=${now} to=${threshold} />
  </div>`;
}

function Changes({ exact, P, now, threshold, isMoved }) {
  if (!isMoved) return html`<p class="soft small">Move the slider: you see what changes before anything does.</p>`;
  const { to_match: more = 0, to_no_match: less = 0, n = 0 } = exact?.flips?.searches ?? {};
  const { right, wrong } = nChanging(P, now, threshold);
  const way = threshold < now ? ["more are found", "more are matched wrongly"] : ["are not found any more", "wrong matches go"];
  return html`<p class="small" role="status">${P.mates && html`${number(right)} ${way[0]}, ${number(wrong)} ${way[1]}. `}
    ${exact?.flips?.searches && html`<span class="soft">Of ${number(n)} searches, ${number(more)} would get a match and ${number(less)} would lose theirs.</span>`}</p>`;
}
