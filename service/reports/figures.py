"""Report figures: what a calibration measured and what a refiner does, drawn as charts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from vicinal.service.measuring.drift import DriftState
from vicinal.service.measuring.records.curves import Utilities
from vicinal.service.measuring.records.record import CalibrationRecord
from vicinal.service.reports.charts import ASPECT, Axis, Chart
from vicinal.service.reports.report import ReportBody
from vicinal.service.search.answers import ExplainedRefinement
from vicinal.service.words import SPACES, percent, rate_name, span

# Beyond so many classes the lines in between are no more than a gray surface.
_MOST_LINES = 150
_N_WORST = 10
_LOWEST_SHARE = 1e-5
# Labels with a color of their own; further ones share one.
_N_COLORS = 6

Rates = Mapping[str, Sequence[float | None]]


def rate_figures(report: ReportBody) -> list[Chart]:
    """FAR with FRR and FPIR with FNIR over the threshold, from the record's details or its scores."""
    curves: Rates = dict(report.details.curves if report.details else report.curve)
    thresholds = [one for one in curves.get("thresholds", ()) if one is not None]
    if len(thresholds) < 2:
        return []
    low, high = math.floor(20 * thresholds[0]) / 20, math.ceil(20 * thresholds[-1]) / 20
    x = Axis(low, max(high, low + 0.05), "threshold on the score")
    known = {name: rates for name, rates in curves.items() if any(one is not None for one in rates)}
    pairs = {name: rates for name, rates in known.items() if name in ("far", "frr")}
    searches = {name: rates for name, rates in known.items() if name in ("fpir", "fnir")}
    y = Axis(0.0, 1.0, "share of the queries", written=percent)
    both = [(pairs, _log_shares(pairs)), (searches, y)]
    return [_rate_figure(report.record, x, y, thresholds, rates) for rates, y in both if rates]


def _rate_figure(
    record: CalibrationRecord, x: Axis, y: Axis, thresholds: Sequence[float], rates: Rates
) -> Chart:
    """Rates over the threshold, with their intervals at the one in force."""
    chart = Chart(f"{' and '.join(map(rate_name, rates))} over the threshold", x, y)
    evidence = record.evidence
    if evidence and "final" in evidence.opis:
        near, far = evidence.opis["final"].distance_range
        chart.steps("band", (1.0 - far, 1.0 - near), (y.high,), legend="calibration range: FAR 1 % to 10 %")
    for number, (name, values) in enumerate(rates.items(), start=1):
        found = evidence.rates.get(name) if evidence else None
        legend = rate_name(name)
        if found:
            shift = 5.0 * (2 * number - 3)
            chart.interval(f"s{number}", record.threshold, found.low, found.high, shift=shift)
            legend += f" {percent(found.rate)}, interval {span(found.low, found.high)}"
        points = zip(thresholds, values, strict=True)
        chart.line(f"line s{number}", points, name=rate_name(name), legend=legend)
    chart.mark(record.threshold, f"threshold {record.threshold:.4f}")
    return chart


def score_figures(report: ReportBody) -> list[Chart]:
    """Scores of pairs and best scores of searches; none where they were not kept."""
    if report.details is None:
        return []
    found = report.details.histograms
    titled = {
        "Scores of pairs": {"mates": found.mates, "non-mates": found.non_mates},
        "Best scores of searches": {
            "best mate of a query": found.best_mates,
            "best item without a mate": found.best_without_mate,
        },
    }
    return [
        _histogram(title, found.edges, groups, report.record.threshold)
        for title, groups in titled.items()
        if any(map(sum, groups.values()))
    ]


def _histogram(
    title: str, edges: Sequence[float], groups: Mapping[str, Sequence[int]], threshold: float
) -> Chart:
    """Histograms of scores, each as shares of its own total."""
    shares = {f"{name} ({sum(counts):,})": _shares(counts) for name, counts in groups.items() if sum(counts)}
    used = [i for heights in shares.values() for i, share in enumerate(heights) if share]
    first, last = min(used), max(used) + 1
    x = Axis(min(edges[first], threshold), max(edges[last], threshold), "score")
    y = Axis(0.0, 1.08 * max(map(max, shares.values())), "share of each", written=percent)
    chart = Chart(title, x, y)
    for number, (name, heights) in enumerate(shares.items(), start=1):
        chart.steps(f"area s{number}", edges[first : last + 1], heights[first:last], legend=name)
    chart.mark(threshold, f"threshold {threshold:.4f}")
    return chart


def utility_figures(report: ReportBody) -> list[Chart]:
    """Utility of every class over the calibration range in each space (TCM, figure 2)."""
    utilities = report.details.utilities if report.details else {}
    return [_utility_figure(SPACES[space], found) for space, found in utilities.items()]


def _utility_figure(space: str, utilities: Utilities) -> Chart:
    """The worst ten classes apart, and of very many others an even choice."""
    distances, n = utilities.distances, len(utilities.labels)
    x = Axis(distances[0], distances[-1], "distance threshold over the calibration range")
    chart = Chart(f"Utility of each class, {space}", x, Axis(0.0, 1.0, "utility"))
    worst, others = range(n)[:_N_WORST], range(n)[_N_WORST:]
    chosen = others[:: max(1, math.ceil(len(others) / _MOST_LINES))]
    shown = f"{len(chosen):,} of {len(others):,}" if len(chosen) < len(others) else f"{len(others):,}"
    legends = {len(worst): f"{shown} other classes", 0: f"the {len(worst)} worst"}
    for kind, rows in (("all", chosen), ("worst", reversed(worst))):
        for row in rows:
            points = list(zip(distances, utilities.values[row], strict=True))
            points = [*points[:: max(1, len(points) // 25)], points[-1]]
            chart.line(f"line {kind}", points, name=utilities.labels[row], legend=legends.get(row))
    return chart


def drift_figures(drift: DriftState) -> list[Chart]:
    """Top scores of the calibration's queries beside those of the searches since; none without searches."""
    then, now = drift.counts_then, drift.counts_now
    if drift.psi is None or not sum(then) or not sum(now):
        return []
    n = len(then)
    groups = {"queries of the calibration": then, "searches since": now}
    shares = {f"{name} ({sum(counts):,})": _shares(counts) for name, counts in groups.items()}
    ticks = tuple(map(float, range(1, n, 1 if n <= 12 else 3)))
    x = Axis(0.0, float(n), "top score", written=lambda i: f"{drift.edges[int(i) - 1]:.2f}", ticks=ticks)
    y = Axis(0.0, 1.15 * max(map(max, shares.values())), "share of the searches", written=percent)
    chart = Chart("Top scores, then and now", x, y)
    for number, (name, heights) in enumerate(shares.items(), start=1):
        for i, height in enumerate(heights):
            left = i + 0.4 * number - 0.28
            chart.steps(f"bar s{number}", (left, left + 0.36), (height,), legend=None if i else name)
    return [chart]


def way_figure(refinement: ExplainedRefinement) -> Chart:
    """Places of a query after each step and of its neighbors, sized by their attention (ACR, figure 4)."""
    chart = _place_chart(refinement)
    kinds: dict[str | None, str] = {None: "other"}
    for number, one in enumerate(refinement.neighbors, start=1):
        is_new = one.label not in kinds
        kind = kinds.setdefault(one.label, f"s{len(kinds)}" if len(kinds) <= _N_COLORS else "other")
        radius = 6 + 18 * math.sqrt(sum(one.attention) / max(1, len(one.attention)))
        chart.dot(kind, one.place, radius, name=one.id, legend=one.label if is_new else None)
        chart.write(one.place, str(number))
    chart.line("line way", refinement.way, legend="query, step by step")
    for step, place in enumerate(refinement.way):
        chart.dot("way", place, 3.0, name=f"query after step {step}")
    return chart


def _place_chart(refinement: ExplainedRefinement) -> Chart:
    """Both axes at one scale, with room around what is drawn."""
    places = [*refinement.way, *(one.place for one in refinement.neighbors)]
    (left, right), (low, high) = ((min(values), max(values)) for values in zip(*places, strict=True))
    half = 0.6 * max(high - low, (right - left) / ASPECT, 1e-6)
    x, y = (left + right) / 2, (low + high) / 2
    first, second = refinement.variance
    return Chart(
        "Way of the query among its neighbors",
        Axis(x - ASPECT * half, x + ASPECT * half, f"first axis, {first:.0%} of the variance"),
        Axis(y - half, y + half, f"second axis, {second:.0%}"),
    )


def _log_shares(rates: Rates) -> Axis:
    lowest = min((one for values in rates.values() for one in values if one), default=1.0)
    low = 10.0 ** math.floor(math.log10(min(max(lowest, _LOWEST_SHARE), 0.01)))
    return Axis(low, 1.0, "share of the pairs, log scale", is_log=True, written=percent)


def _shares(counts: Sequence[int]) -> list[float]:
    return [count / sum(counts) for count in counts]
