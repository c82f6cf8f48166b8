// What a threshold does, counted in the page on the queries of a calibration.

// Rising scores, each with its query, and the share of weight up to each.
function ranked(scores, weights) {
  const order = [];
  for (let place = 0; place < scores.length; place += 1) if (scores[place] !== null) order.push(place);
  order.sort((a, b) => scores[a] - scores[b]);
  const values = Float64Array.from(order, (place) => scores[place]);
  const below = new Float64Array(order.length + 1);
  order.forEach((place, at) => { below[at + 1] = below[at] + (weights ? weights[place] : 1); });
  return { order, values, below };
}

// The first place whose value is at least as high.
function firstAt(values, threshold) {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < threshold) low = middle + 1;
    else high = middle;
  }
  return low;
}

export function prepared(points) {
  const { queries, grid } = points;
  const weights = queries?.weight ?? null;
  return {
    points,
    grid,
    thresholds: grid ? Float64Array.from(grid.thresholds) : new Float64Array(0),
    // A sample is no ground to count on: the rates of all are in the grid.
    isWhole: queries !== null && points.n_queries === queries.id.length,
    mates: queries && ranked(queries.mate_score, weights),
    strangers: queries && ranked(queries.stranger_score, weights),
  };
}

const between = (low, high, share) => (low === null || high === null ? low ?? high : low + share * (high - low));

// The rate and its range in the grid, evenly between its thresholds; null where it was not measured.
function inGrid({ thresholds, grid }, name, threshold) {
  if (!grid || !thresholds.length) return null;
  const next = Math.min(firstAt(thresholds, threshold), thresholds.length - 1);
  const last = Math.max(0, thresholds[next] > threshold ? next - 1 : next);
  const share = next === last ? 0 : (threshold - thresholds[last]) / (thresholds[next] - thresholds[last]);
  const [rate, low, high] = ["rate", "low", "high"].map((kind) => between(grid[name][kind][last], grid[name][kind][next], share));
  return rate === null ? null : { rate, low: low ?? 0, high: high ?? 1 };
}

// The same with the rate that is counted; its range keeps its width.
function counted(found, rate) {
  if (rate === null) return found;
  if (!found) return { rate, low: 0, high: 1 };
  const by = rate - found.rate;
  return { rate, low: Math.max(0, Math.min(rate, found.low + by)), high: Math.min(1, Math.max(rate, found.high + by)) };
}

const shareBelow = ({ values, below }, threshold) => (values.length ? below[firstAt(values, threshold)] / below[values.length] : null);
const turned = (one) => one && { rate: 1 - one.rate, low: 1 - one.high, high: 1 - one.low };

// Shares at a threshold: of things that are there, found; of things that are not, with a match; of matches, right.
// Each is {rate, low, high}, or null where it was not measured.
export function at(P, threshold) {
  let missed = inGrid(P, "fnir", threshold), wrong = inGrid(P, "fpir", threshold);
  if (P.isWhole) {
    missed = counted(missed, shareBelow(P.mates, threshold));
    const rest = shareBelow(P.strangers, threshold);
    wrong = counted(wrong, rest === null ? null : 1 - rest);
  }
  return {
    found: turned(missed),
    wrong,
    precision: inGrid(P, "precision", threshold),
    nFound: P.mates ? P.mates.values.length - firstAt(P.mates.values, threshold) : null,
    nWrong: P.strangers ? P.strangers.values.length - firstAt(P.strangers.values, threshold) : null,
  };
}

// Searches whose answer another threshold changes, those nearest to the one in force first: {query, label, item,
// itemLabel, score, kind: "gains" | "loses" (a match), isRight}.
export function changing(P, from, to, most = 24) {
  if (!P.mates || from === to) return [];
  const { ids, labels, queries } = P.points;
  const [low, high] = from < to ? [from, to] : [to, from];
  const kind = to < from ? "gains" : "loses";
  const named = (list, number) => (number < 0 ? null : list[number]);
  const one = (place, isRight) => ({
    kind,
    isRight,
    query: named(ids, queries.id[place]),
    label: named(labels, queries.label[place]),
    item: named(ids, (isRight ? queries.mate : queries.stranger)[place]),
    itemLabel: named(labels, (isRight ? queries.label : queries.stranger_label)[place]),
    score: (isRight ? queries.mate_score : queries.stranger_score)[place],
  });
  const part = ({ order, values }, isRight) => {
    const [first, last] = [firstAt(values, low), firstAt(values, high)];
    const places = to < from ? order.slice(Math.max(first, last - most), last).reverse() : order.slice(first, Math.min(last, first + most));
    return places.map((place) => one(place, isRight));
  };
  return [...part(P.mates, true), ...part(P.strangers, false)];
}

// How many there are of each, with those that are not shown.
export function nChanging(P, from, to) {
  const count = (ranks) => (ranks ? Math.abs(firstAt(ranks.values, to) - firstAt(ranks.values, from)) : 0);
  return { right: count(P.mates), wrong: count(P.strangers) };
}

// What is wrong at a threshold about one label: photos that are not found, the worst first, and those of others
// that are taken for it.
export function ofLabel(P, label, threshold, most = 12) {
  if (!P.mates) return { missed: [], taken: [] };
  const all = changing(P, 0, threshold, Infinity);
  const missed = all.filter((one) => one.isRight && one.label === label).sort((a, b) => a.score - b.score);
  const taken = changing(P, 2, threshold, Infinity)
    .filter((one) => !one.isRight && (one.label === label || one.itemLabel === label)).sort((a, b) => b.score - a.score);
  return { missed: missed.slice(0, most), taken: taken.slice(0, most) };
}

// Scores between which a threshold changes anything, with some room around them.
export function rangeOf({ thresholds }) {
  if (!thresholds.length) return [0, 1];
  const [low, high] = [thresholds[0], thresholds[thresholds.length - 1]];
  const room = Math.max(0.01, 0.04 * (high - low));
  return [Math.max(0, low - room), Math.min(1, high + room)];
}
