"""Report figures: what a calibration measured, drawn as charts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from vicinal.service.calibrator.curves import CalibrationCurves, Utilities
from vicinal.service.calibrator.evidence import RateEvidence
from vicinal.service.calibrator.record import CalibrationRecord
from vicinal.service.reports.charts import Axis, Chart, Values, percent
from vicinal.service.reports.markup import Element, element
from vicinal.service.thresholds.drift import DriftState

__all__ = ["RateCurves", "drift_figure", "histogram_figure", "rate_figure", "utility_figure"]

# Beyond so many classes the lines in between are no more than a gray surface.
_MOST_LINES = 150
_N_WORST = 10
_LOWEST_SHARE = 1e-5


@dataclass(frozen=True)
class RateCurves:
    """Rates over thresholds.

    Attributes:
        thresholds: (n,) rising.
        rates: By name: (n,) shares, None where a rate is not known.
    """

    thresholds: Sequence[float]
    rates: dict[str, Values]

    @classmethod
    def of(cls, details: CalibrationCurves | None, curve: dict[str, list[float | None]]) -> RateCurves:
        """The curves of a record's details, or else those that its stored scores give."""
        if details is not None:
            found = details.curves
            rates: dict[str, Values] = {
                "far": found.far,
                "frr": found.frr,
                "fpir": found.fpir,
                "fnir": found.fnir,
            }
            return cls(found.thresholds, {name: values for name, values in rates.items() if values})
        thresholds = [one for one in curve.get("thresholds", []) if one is not None]
        known = {name: values for name, values in curve.items() if name != "thresholds"}
        return cls(
            thresholds, {name: rates for name, rates in known.items() if any(r is not None for r in rates)}
        )


def rate_figure(
    record: CalibrationRecord, curves: RateCurves, names: Sequence[str], *, is_log: bool
) -> Element | None:
    """Two rates over the threshold, with their intervals at the one in force; None where neither is known.

    Args:
        record: The calibration.
        curves: Rates over thresholds.
        names: Names of the rates, such as `far` and `frr`.
        is_log: Whether shares are drawn on a logarithmic axis.
    """
    known = [name for name in names if name in curves.rates]
    if not known or len(curves.thresholds) < 2:
        return None
    title = f"{' and '.join(name.upper() for name in known)} over the threshold"
    rates = [one for name in known for one in curves.rates[name]]
    chart = Chart(_scores(curves.thresholds), _shares(rates, is_log=is_log), title)
    span = _calibration_range(record)
    if span is not None:
        chart.band(*span)
    chart.mark(record.threshold)
    evidence = {} if record.evidence is None else record.evidence.rates
    for number, name in enumerate(known, start=1):
        chart.line(curves.thresholds, curves.rates[name], f"s{number}", name=name.upper())
        if name in evidence:
            found, shift = evidence[name], 5.0 * (2 * number - 3)
            chart.interval(record.threshold, found.low, found.high, f"s{number}", shift=shift)
    entries = [(f"s{number}", _entry(name, evidence.get(name))) for number, name in enumerate(known, start=1)]
    entries.append(("mark", f"threshold {record.threshold:.4f}"))
    if span is not None:
        entries.append(("band", "calibration range: FAR 1 % to 10 %"))
    return _figure(title, chart, entries)


def histogram_figure(
    title: str, edges: Sequence[float], groups: Sequence[tuple[str, Sequence[int]]], threshold: float
) -> Element | None:
    """Histograms of scores, each as shares of its own total; None where all are empty.

    Args:
        title: What is counted.
        edges: (n + 1,) edges of the bins.
        groups: Name and (n,) counts of each.
        threshold: Lowest accepted score.
    """
    known = [(name, counts) for name, counts in groups if sum(counts)]
    if not known:
        return None
    shares = [[count / sum(counts) for count in counts] for _, counts in known]
    used = [i for counts in shares for i, share in enumerate(counts) if share]
    first, last = min(used), max(used) + 1
    highest = max(map(max, shares))
    x = Axis(min(edges[first], threshold), max(edges[last], threshold), "score")
    chart = Chart(x, Axis(0.0, 1.08 * highest, "share of each", written=percent), title)
    for number, counts in enumerate(shares, start=1):
        chart.steps(edges[first : last + 1], counts[first:last], f"s{number}")
    chart.mark(threshold)
    entries = [(f"s{i} area", f"{name} ({sum(counts):,})") for i, (name, counts) in enumerate(known, start=1)]
    return _figure(title, chart, [*entries, ("mark", f"threshold {threshold:.4f}")])


def utility_figure(space: str, utilities: Utilities) -> Element:
    """Utility of every class over the calibration range, the worst ten apart (TCM, figure 2).

    Args:
        space: What the distances are of, for people.
        utilities: Of all classes, the worst first.
    """
    distances = utilities.distances
    chart = Chart(
        Axis(distances[0], distances[-1], "distance threshold over the calibration range"),
        Axis(0.0, 1.0, "utility"),
        f"Utility of each class, {space}",
    )
    n = len(utilities.labels)
    step = max(1, len(distances) // 25)
    at = sorted({*range(0, len(distances), step), len(distances) - 1})
    for row in _spread(range(min(_N_WORST, n), n), _MOST_LINES):
        _utility_line(chart, utilities, row, at, "all")
    for row in reversed(range(min(_N_WORST, n))):
        _utility_line(chart, utilities, row, at, "worst")
    shown = min(n, _N_WORST + _MOST_LINES)
    others = f"all {n:,} classes" if shown == n else f"{shown:,} of {n:,} classes"
    return _figure(chart.title, chart, [("all", others), ("worst", f"the {min(_N_WORST, n)} worst")])


def drift_figure(drift: DriftState) -> Element | None:
    """Top scores of the calibration's queries beside those of the searches since; None without searches."""
    then, now = drift.counts_then, drift.counts_now
    if drift.psi is None or not sum(then) or not sum(now):
        return None
    shares = [[count / sum(counts) for count in counts] for counts in (then, now)]
    n = len(then)
    edges = [f"{edge:.2f}" for edge in drift.edges]
    ticks = tuple(float(i) for i in range(1, n)) if n <= 12 else tuple(float(i) for i in range(1, n, 3))
    x = Axis(0.0, float(n), "top score", written=lambda place: edges[int(place) - 1], ticks=ticks)
    chart = Chart(
        x,
        Axis(0.0, 1.15 * max(map(max, shares)), "share of the searches", written=percent),
        "Top scores then and now",
    )
    for i in range(n):
        chart.bar(i + 0.12, i + 0.48, shares[0][i], "s1")
        chart.bar(i + 0.52, i + 0.88, shares[1][i], "s2")
    entries = [
        ("s1 area", f"queries of the calibration ({sum(then):,})"),
        ("s2 area", f"searches since ({sum(now):,})"),
    ]
    return _figure("Top scores, then and now", chart, entries)


def _figure(title: str, chart: Chart, entries: Iterable[tuple[str, str]]) -> Element:
    legend = [element("li", element("i", class_=f"key {kind}"), text) for kind, text in entries]
    return element(
        "figure", element("figcaption", title), chart.svg(), element("ul", legend, class_="legend")
    )


def _scores(thresholds: Sequence[float]) -> Axis:
    low, high = math.floor(20 * thresholds[0]) / 20, math.ceil(20 * thresholds[-1]) / 20
    return Axis(low, max(high, low + 0.05), "threshold on the score")


def _shares(rates: Sequence[float | None], *, is_log: bool) -> Axis:
    if not is_log:
        return Axis(0.0, 1.0, "share of the queries", written=percent)
    lowest = min((rate for rate in rates if rate), default=1.0)
    low = 10.0 ** math.floor(math.log10(min(max(lowest, _LOWEST_SHARE), 0.01)))
    return Axis(low, 1.0, "share of the pairs, log scale", is_log=True, written=percent)


def _calibration_range(record: CalibrationRecord) -> tuple[float, float] | None:
    """Scores between which 1 % and 10 % of the negative pairs are accepted."""
    found = None if record.evidence is None else record.evidence.opis.get("final")
    if found is None:
        return None
    near, far = found.distance_range
    return 1.0 - far, 1.0 - near


def _entry(name: str, found: RateEvidence | None) -> str:
    if found is None:
        return name.upper()
    return f"{name.upper()} {percent(found.rate)}, interval {percent(found.low)} to {percent(found.high)}"


def _spread(rows: range, most: int) -> list[int]:
    if len(rows) <= most:
        return list(rows)
    edges = [round(len(rows) * i / most) for i in range(most + 1)]
    return [rows[(left + right) // 2] for left, right in pairwise(edges)]


def _utility_line(chart: Chart, utilities: Utilities, row: int, at: Sequence[int], series: str) -> None:
    values = utilities.values[row]
    chart.line(
        [utilities.distances[i] for i in at],
        [values[i] for i in at],
        series,
        name=utilities.labels[row],
    )
