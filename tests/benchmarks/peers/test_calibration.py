"""Comparisons with other engines at tiny sizes: they run, whichever of the engines are installed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from benchmarks.common.cost_meters import in_fresh_process
from benchmarks.common.large_gallery import labelled_vectors
from benchmarks.peers import calibration
from benchmarks.peers.calibration import apart, dense_calibration
from vicinal.service.search.pipeline import Rerank

ShortForm = Callable[..., dict[str, Any]]


@pytest.mark.slow
@pytest.mark.parametrize("rerank", ["off", "contextual"])
def test_calibration(short_form: ShortForm, monkeypatch: pytest.MonkeyPatch, rerank: str) -> None:
    def only_ours(part: Callable[..., Any], *given: Any) -> Any:
        # The peers import torch, which takes longer than all of this, or are not installed.
        if part not in (calibration.vicinal, calibration.dense):
            raise ModuleNotFoundError("left out")
        return in_fresh_process(part, *given)

    monkeypatch.setattr(calibration, "in_fresh_process", only_ours)
    result = short_form("peers.calibration", "--items", 800, "--dim", 16, "--rerank", rerank)
    assert all(math.isfinite(one) and one > 0.0 for one in result["ratios"].values())
    rows = result["items"]["800"]
    assert rows["parts"]["OML, retrieval"]["failed"] == "ModuleNotFoundError: left out"
    compared = {"off": {"fpir"}, "contextual": set()}[rerank] | {"far", "frr", "fnir", "threshold"}
    assert compared <= rows["apart"]["dense"].keys()
    assert max(rows["apart"]["dense"].values()) <= calibration.MOST_APART


def test_other_rates_end_the_comparison() -> None:
    """Negative control: a computation that counts something else is found."""
    rows = {"Vicinal": {"found": {"far": 0.001}}, "dense": {"found": {"far": 0.002}}}
    with pytest.raises(RuntimeError, match="differ"):
        apart(rows)


def test_the_dense_computation_equals_a_loop_over_queries() -> None:
    embeddings, labels = labelled_vectors(120, 8, per_label=4, spread=1.5)
    found = dense_calibration(embeddings, labels, Rerank(method="off"))
    wide = embeddings.astype(np.float64)
    hits, false_alarms, misses = [], [], []
    for row, label in enumerate(labels):
        similarities = (wide @ wide[row]).astype(np.float32).astype(np.float64)
        scores = np.exp(2.0 * similarities - 2.0)
        mates = (labels == label) & (np.arange(len(labels)) != row)
        others = np.arange(len(labels)) != row
        hits.append(labels[others][scores[others].argmax()] == label)
        misses.append(scores[mates].max() < found["threshold"])
        false_alarms.append(scores[labels != label].max() >= found["threshold"])
    rates = [np.mean(hits), np.mean(misses), np.mean(false_alarms)]
    assert [found["precision_at_1"], found["fnir"], found["fpir"]] == pytest.approx(rates, abs=1e-12)
