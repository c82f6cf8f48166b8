"""Report page: one calibration as a self-contained HTML page: no scripts, nothing from outside."""

from __future__ import annotations

from importlib.resources import files

from vicinal.indexer.gallery import Gallery
from vicinal.service.calibrator.evidence import RateEvidence
from vicinal.service.calibrator.record import CalibrationRecord
from vicinal.service.reports.charts import percent
from vicinal.service.reports.examples import examples_section
from vicinal.service.reports.figures import (
    RateCurves,
    drift_figure,
    histogram_figure,
    rate_figure,
    utility_figure,
)
from vicinal.service.reports.markup import Child, Element, element, to_html
from vicinal.service.reports.report import ReportBody
from vicinal.service.reports.report_parts import card, note, rate_name, section_head, table

__all__ = ["PAGE_POLICY", "render_report"]

# What the page may do when a server shows it: nothing but its own style and embedded pictures.
PAGE_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_SPACES = {"initial": "initial embeddings", "refined": "refined embeddings", "final": "final scores"}
_TRIALS = {
    "far": "negative pairs accepted",
    "frr": "positive pairs rejected",
    "fpir": "queries without a mate that get a match",
    "fnir": "queries with a mate that get none of their mates",
    "precision": "returned matches that are mates",
}


def render_report(report: ReportBody, gallery: Gallery) -> str:
    """The page of a report.

    Args:
        report: All that is known of the calibration.
        gallery: Where the thumbnails of the examples come from.
    """
    record = report.record
    name = gallery.name
    style = (files("vicinal.service") / "static" / "report.css").read_text(encoding="utf-8")
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"Calibration of {name}, {record.id}"),
        element("style", style),
    )
    main = element(
        "main",
        element("h1", f"Calibration of gallery {name}"),
        element("p", report.verdict, class_="verdict"),
        _state(report),
        _warnings(record),
        _rates(record),
        _curves(report),
        _histograms(report),
        _classes(report),
        _growth(record),
        _drift(report),
        examples_section(report, gallery),
        _binding(record),
        element("footer", f"Vicinal, calibration {record.id} of {record.created_at:%Y-%m-%d %H:%M} UTC"),
    )
    return to_html(element("html", head, element("body", main), lang="en"))


def _state(report: ReportBody) -> Element:
    in_force = "In force"
    if not report.is_active:
        in_force = "Not in force"
    elif report.active_since is not None:
        in_force += f" since {report.active_since:%Y-%m-%d %H:%M} UTC"
    holds = "it still holds" if report.state == "current" else report.reason or "no rate is known for it"
    kind = "state" if report.state == "current" else "state stale"
    return element("p", element("b", in_force), f"; {holds}.", class_=kind)


def _warnings(record: CalibrationRecord) -> Element | None:
    if not record.warnings:
        return None
    listed = element("ul", (element("li", one) for one in record.warnings), class_="warnings")
    return element("section", element("h2", "Warnings"), listed)


def _rates(record: CalibrationRecord) -> Element | None:
    evidence = record.evidence
    if evidence is None:
        return None
    rows = [_rate_row(rate_name(name), text, evidence.rates.get(name)) for name, text in _TRIALS.items()]
    for kind, found in (("near", evidence.near_fpir), ("far", evidence.far_fpir)):
        if found is not None:
            rows.append(_rate_row(f"FPIR of {kind} labels", _TRIALS["fpir"], found))
    headers = ("rate", "", "95 % interval", "trials", "labels", "without one label")
    parts: list[Child] = [*section_head("Rates at the threshold", _NEAR_FAR if evidence.near_fpir else None)]
    parts.append(element("div", table(headers, rows), class_="card"))
    if record.rates is not None and record.rates.hit_rate_1 is not None:
        parts.append(note(f"Hit rate R@1 {percent(record.rates.hit_rate_1)}, whatever the threshold."))
    grouping = evidence.grouping
    if grouping is not None:
        promised = ", ".join(
            f"{rate_name(name)} {percent(rate)} promised and {percent(grouping.shown[name])} shown"
            for name, rate in grouping.promised.items()
            if name in grouping.shown
        )
        parts.append(
            note(
                f"Photos of one {grouping.column} ({grouping.n_groups:,} groups) were kept apart; without "
                f"that, {promised}."
            )
        )
    return element("section", parts)


_NEAR_FAR = "Near labels share their coarse label with another label of the gallery, far ones do not."


def _rate_row(name: str, text: str, found: RateEvidence | None) -> tuple[str, ...]:
    if found is None:
        return name, f"not measured: no {text.split(' that ')[0]}", "", "", "", ""
    labels = f"{found.n_labels:,}"
    if found.effective_labels < 0.9 * found.n_labels:
        labels += f" (worth {found.effective_labels:.3g})"
    return (
        f"{name} {percent(found.rate)}",
        text,
        f"{percent(found.low)} to {percent(found.high)}",
        f"{found.n_trials:,}",
        labels,
        " to ".join(percent(rate) for rate in found.leave_one_label_out),
    )


def _curves(report: ReportBody) -> Element | None:
    record = report.record
    curves = RateCurves.of(report.details, report.curve)
    figures = [
        rate_figure(record, curves, ("far", "frr"), is_log=True),
        rate_figure(record, curves, ("fpir", "fnir"), is_log=False),
    ]
    if not any(figure is not None for figure in figures):
        return None
    text = (
        "Upright strokes are the 95 % intervals at the threshold. FPIR and FNIR are those of this gallery's "
        f"{record.n_items:,} items."
    )
    return element(
        "section", section_head("Errors over the threshold", text), element("div", figures, class_="grid")
    )


def _histograms(report: ReportBody) -> Element | None:
    if report.details is None:
        return None
    found, threshold = report.details.histograms, report.record.threshold
    pairs = [("mates", found.mates), ("non-mates", found.non_mates)]
    searches = [
        ("best mate of a query", found.best_mates),
        ("best item without a mate", found.best_without_mate),
    ]
    figures = [
        histogram_figure("Scores of pairs", found.edges, pairs, threshold),
        histogram_figure("Best scores of searches", found.edges, searches, threshold),
    ]
    text = "What overlaps cannot be told apart by any threshold."
    return element("section", section_head("Scores", text), element("div", figures, class_="grid"))


def _classes(report: ReportBody) -> Element | None:
    evidence = report.record.evidence
    if evidence is None or not evidence.opis:
        return None
    headers = ("space", "OPIS", "floor", "10 %-OPIS", "floor", "classes")
    rows = [
        (
            _SPACES[space],
            f"{found.opis:.3g}",
            _floor(found.floor, found.floor_spread),
            f"{found.epsilon_opis:.3g}",
            _floor(found.epsilon_floor, found.epsilon_floor_spread),
            f"{found.n_classes:,}" + (f", {found.n_left_out:,} left out" if found.n_left_out else ""),
        )
        for space, found in evidence.opis.items()
    ]
    text = (
        "OPIS says how differently the classes fare under one threshold, 0 if all are alike; the floor is "
        "what equal classes of these sizes would show."
    )
    utilities = {} if report.details is None else report.details.utilities
    figures = [utility_figure(_SPACES[space], found) for space, found in utilities.items()]
    worst = [
        (one.label, f"{one.mean_utility:.2f}", f"{one.lowest_utility:.2f}") for one in evidence.worst_classes
    ]
    named = element(
        "div",
        element("figcaption", "The worst classes by final scores"),
        table(("class", "mean utility", "lowest"), worst),
        class_="card",
    )
    return element(
        "section",
        section_head("Classes", text),
        element("div", table(headers, rows), class_="card"),
        element("p"),
        element("div", figures, named if worst else None, class_="grid"),
    )


def _floor(mean: float | None, spread: float | None) -> str:
    if mean is None:
        return "not known"
    return f"{mean:.2g}" if spread is None else f"{mean:.2g} ± {spread:.1g}"


def _growth(record: CalibrationRecord) -> Element | None:
    evidence = record.evidence
    if evidence is None or not (evidence.larger_galleries or evidence.predictions):
        return None
    sizes = [
        (f"{one.ratio} times the labels", f"{percent(one.fitted)} to {percent(one.independent)}")
        for one in evidence.larger_galleries
    ]
    rate = record.target.rate if record.target else "fpir"
    further = [
        (f"{one.n_labels} further labels", f"{percent(one.low)} to {percent(one.high)}")
        for one in evidence.predictions
    ]
    tables = [
        card("FPIR in a larger gallery", ("gallery", "FPIR"), sizes),
        card(f"{rate_name(rate)} that further labels will show", ("measured on", "95 times in 100"), further),
    ]
    text = "At the same threshold. Larger: by its growth so far, up to that of labels that all tempt alike."
    return element("section", section_head("What to expect", text), element("div", tables, class_="grid"))


def _drift(report: ReportBody) -> Element | None:
    found = report.drift
    if report.record.evidence is None:
        return None
    if found.psi is None:
        text = f"Not known: {found.reason}."
        return element("section", section_head("Drift since the activation", text))
    text = (
        f"Level {found.level}: population stability index {found.psi:.3f} of {found.n_queries:,} searches "
        f"(by chance up to {found.chance_psi or 0.0:.3f}); without a match "
        f"{percent(found.no_match_now or 0.0)}, then {percent(found.no_match_then or 0.0)}."
    )
    figure = element("div", drift_figure(found), class_="grid")
    return element("section", section_head("Drift since the activation", text), figure)


def _binding(record: CalibrationRecord) -> Element:
    sources = {
        "leave_one_out": "leave one out: every labelled item searched for as if it were not in the gallery",
        "queries": "labelled queries from outside",
        "by_hand": "set by hand",
    }
    rows = [
        ("target", str(record.target) if record.target else "none"),
        ("threshold", repr(record.threshold)),
        ("measured by", sources[record.source]),
        ("pipeline", record.pipeline.key),
        ("bundle", record.bundle),
        ("gallery", f"version {record.version}, {record.n_items:,} items"),
        ("pairs", f"{record.n_positive_pairs:,} of one label, {record.n_negative_pairs:,} of two"),
        (
            "queries",
            f"{record.n_with_mate:,} with a mate, {record.n_without_mate:,} without, of "
            f"{record.n_labels:,} labels",
        ),
    ]
    margins = None if record.evidence is None else record.evidence.margins
    if margins is not None:
        rows.append(("margins for training", f"m+ {margins.positive:.3f}, m- {margins.negative:.3f} (TCM)"))
    text = "A search with another pipeline, bundle or gallery never uses this threshold."
    return element(
        "section", section_head("What it is bound to", text), element("div", table((), rows), class_="card")
    )
