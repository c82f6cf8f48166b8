"""Report of a fitting: sentences that people read, and commands that come next."""

from __future__ import annotations

from typing import Any

from vicinal.service.fitting.report import report_lines
from vicinal.training.fitting.report import FitReport, Interval


def report(low: float = 0.2, value: float = 0.36, **changes: Any) -> FitReport:
    fields: dict[str, Any] = {
        "bundle": "bundles/mine",
        "name": "mine",
        "fingerprint": "0" * 16,
        "n_found": 1203,
        "n_photos": 1000,
        "n_labels": 30,
        "n_held_out_photos": 412,
        "n_held_out_labels": 8,
        "n_single": 0,
        "n_unlabelled": 0,
        "n_repeated": 0,
        "n_unusable": 0,
        "n_spare": 0,
        "per_label": None,
        "fpir": 0.05,
        "found_before": Interval(value=0.47, low=0.4, high=0.6),
        "found_after": Interval(value=0.83, low=0.71, high=0.9),
        "found_apart": Interval(value=0.75, low=0.62, high=0.85),
        "found_alone": Interval(value=0.9, low=0.85, high=0.97),
        "found_alone_apart": Interval(value=0.8, low=0.7, high=0.9),
        "gain": Interval(value=value, low=low, high=0.5),
        "hit_rate_before": 0.85,
        "hit_rate_after": 0.93,
        "map_at_r_before": 0.5,
        "map_at_r_after": 0.7,
        "losses": ("multi_similarity", "recall_at_k"),
        "share": 0.5,
        "views": 8,
        "steps": 300,
        "precision": "int8",
        "refine": "both",
        "rerank": "off",
        "seconds": {},
    }
    return FitReport.model_validate({**fields, **changes})


def test_the_figures_are_said_in_plain_words() -> None:
    lines = report_lines(report())
    assert lines[0] == (
        "Of 100 photos of things you have, 47 were found before, 83 now [95 %: 62 to 90], at the same "
        "rate of wrong matches (5 in 100)."
    )
    assert (
        "In a gallery of 30 labels that it has not learned from, 90 of 100 would be found [95 %: 70 to 97]."
        in lines
    )
    assert any(
        line.startswith("Measured in a trial that learned without 8 of the labels, on their 412 photos")
        for line in lines
    )
