"""Comparisons with other engines at tiny sizes: they run, whichever of the engines are installed."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from pathlib import Path
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
def test_vector_search(short_form: ShortForm) -> None:
    options = ("--items", 2000, "--dim", 32, "--rounds", 1, "--queries", 32)
    short_form("peers.vector_search", *options, "--engines", "Vicinal", "hnswlib", "--no-result")


@pytest.mark.slow
def test_reranking(short_form: ShortForm) -> None:
    short_form("peers.reranking", "--items", 300, "--queries", 32, "--dim", 16, "--rounds", 1, "--no-result")


@pytest.mark.slow
def test_embedding(short_form: ShortForm, monkeypatch: pytest.MonkeyPatch) -> None:
    embedding = importlib.import_module("benchmarks.peers.embedding")
    small = embedding.NETWORKS["bundled model"].model_copy(update={"name": "test_efficientnet"})
    monkeypatch.setattr(embedding, "NETWORKS", {"bundled model": small})
    # Every worker of the loader imports torch.
    monkeypatch.setattr(embedding.os, "cpu_count", lambda: 1)
    result = short_form("peers.embedding", "--images", 4, "--rounds", 1, "--networks", "bundled model")
    assert all(speed > 0.0 for speed in result["images_per_second"]["bundled model"].values())


@pytest.mark.slow
def test_http_search(short_form: ShortForm, tmp_path: Path) -> None:
    options = ("--items", 500, "--seconds", 1.2, "--rounds", 1, "--workers", 1)
    result = short_form("peers.http_search", "--folder", tmp_path / "http", *options)
    assert result["servers"]["Vicinal"]["recall_at_10"] == 1.0
    assert result["ratios"] == {}


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
