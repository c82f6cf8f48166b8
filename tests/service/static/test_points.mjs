// Counts at a threshold are those of a slow loop, and what changes sides is what lies between two thresholds.
import assert from "node:assert/strict";
import { at, changing, nChanging, ofLabel, prepared, rangeOf } from "./static/lib/points.js";

let seed = 7;
const random = () => { seed = (seed * 16807) % 2147483647; return seed / 2147483647; };
const N = 400, LABELS = ["a", "b", "c"];

function made(weight = null) {
  const numbers = [...Array(N).keys()];
  const queries = {
    id: numbers,
    label: numbers.map((n) => n % 3),
    mate_score: numbers.map((n) => (n % 5 ? Math.round(100 * (0.4 + 0.6 * random())) / 100 : null)),
    mate: numbers.map((n) => (n % 5 ? (n + 3) % N : -1)),
    stranger_score: numbers.map((n) => (n % 7 ? Math.round(100 * 0.7 * random()) / 100 : null)),
    stranger: numbers.map((n) => (n % 7 ? (n + 1) % N : -1)),
    stranger_label: numbers.map((n) => (n + 1) % 3),
    weight,
  };
  const thresholds = [0.2, 0.5, 0.8];
  const rate = { rate: [0.5, 0.25, 0], low: [0.4, 0.15, 0], high: [0.6, 0.35, 0.1] };
  const grid = { thresholds, fpir: rate, fnir: { rate: [0, 0.2, 0.6], low: [0, 0.1, 0.5], high: [0.1, 0.3, 0.7] }, precision: { rate: [0.5, null, 1], low: [0.4, null, 0.9], high: [0.6, null, 1] } };
  return { ids: numbers.map((n) => `photo ${n}`), labels: LABELS, n_queries: N, queries, grid };
}

const share = (scores, weights, reaches) => {
  let sum = 0, all = 0;
  scores.forEach((score, place) => {
    if (score === null) return;
    all += weights ? weights[place] : 1;
    if (reaches(score)) sum += weights ? weights[place] : 1;
  });
  return sum / all;
};

for (const weights of [null, [...Array(N).keys()].map((n) => 1 + (n % 4))]) {
  const points = made(weights), P = prepared(points);
  for (const threshold of [0, 0.2, 0.41, 0.5, 0.63, 0.8, 1]) {
    const { found, wrong, precision } = at(P, threshold);
    assert.ok(Math.abs(found.rate - share(points.queries.mate_score, weights, (one) => one >= threshold)) < 1e-12);
    assert.ok(Math.abs(wrong.rate - share(points.queries.stranger_score, weights, (one) => one >= threshold)) < 1e-12);
    for (const one of [found, wrong]) assert.ok(0 <= one.low && one.low <= one.rate && one.rate <= one.high && one.high <= 1, JSON.stringify(one));
    if (threshold !== 0.41 && threshold !== 0.5) assert.ok(precision);
  }
}

const points = made(), P = prepared(points);
for (const [from, to] of [[0.5, 0.62], [0.62, 0.5], [0.5, 0.5]]) {
  const moved = changing(P, from, to, Infinity);
  const between = (score) => score !== null && score >= Math.min(from, to) && score < Math.max(from, to);
  const n = { right: points.queries.mate_score.filter(between).length, wrong: points.queries.stranger_score.filter(between).length };
  assert.deepEqual({ right: moved.filter((one) => one.isRight).length, wrong: moved.filter((one) => !one.isRight).length }, n);
  assert.deepEqual(nChanging(P, from, to), n);
  assert.ok(moved.every((one) => one.kind === (to < from ? "gains" : "loses")));
  for (const isRight of [true, false]) {
    const far = moved.filter((one) => one.isRight === isRight).map((one) => Math.abs(one.score - from));
    assert.deepEqual(far, [...far].sort((a, b) => a - b));
  }
}
assert.equal(changing(P, 0.9, 0.1, 3).length, 6);

const { missed, taken } = ofLabel(P, "b", 0.6, 5);
assert.ok(missed.length === 5 && missed.every((one) => one.label === "b" && one.score < 0.6 && one.isRight));
assert.ok(taken.every((one) => [one.label, one.itemLabel].includes("b") && one.score >= 0.6 && !one.isRight));

// Of a sample the rates of all are told, and of a record without points too.
const sampled = prepared({ ...made(), n_queries: 10 * N });
assert.equal(at(sampled, 0.5).wrong.rate, 0.25);
assert.ok(Math.abs(at(sampled, 0.65).wrong.rate - 0.125) < 1e-12);
const bare = prepared({ ids: [], labels: [], n_queries: 0, queries: null, grid: made().grid });
assert.equal(at(bare, 0.2).found.rate, 1);
assert.deepEqual([at(bare, 0.2).nFound, changing(bare, 0.2, 0.8)], [null, []]);
assert.equal(at(bare, 0.05).wrong.rate, 0.5);
assert.deepEqual(rangeOf(prepared({ ids: [], labels: [], n_queries: 0, queries: null, grid: null })), [0, 1]);
