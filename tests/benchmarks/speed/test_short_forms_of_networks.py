"""Benchmarks of networks and losses at tiny sizes: they run, and what they let be compared are numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from benchmarks.common.cost_meters import Peak  # noqa: E402
from benchmarks.refiner import costs  # noqa: E402
from benchmarks.speed import loss_costs, model_forms  # noqa: E402

ShortForm = Callable[..., dict[str, Any]]


@pytest.fixture(autouse=True)
def threads() -> Any:
    """The benchmarks set torch's threads."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def ratios(result: dict[str, Any]) -> list[str]:
    """Their names; each is a positive number."""
    assert all(math.isfinite(value) and value > 0.0 for value in result["ratios"].values())
    return list(result["ratios"])


def test_model_forms(short_form: ShortForm, monkeypatch: pytest.MonkeyPatch) -> None:
    preprocessing = {**model_forms.FIELDS["preprocessing"], "input_size": 64}
    monkeypatch.setitem(model_forms.FIELDS, "preprocessing", preprocessing)
    monkeypatch.setattr(model_forms, "SIDE", 64)
    result = short_form("speed.model_forms", "--rounds", 1, "--threads", 1)
    assert len(ratios(result)) == 2 * len(model_forms.PRECISIONS) + len(model_forms.PER_THREAD) + 2


def test_refiner_costs(short_form: ShortForm, monkeypatch: pytest.MonkeyPatch) -> None:
    short = {"attention_mlp, 8 steps": {"form": "attention_mlp", "n_steps": 1}}
    monkeypatch.setattr(costs, "_REFINERS", {**short, "gated": costs._GATED})
    monkeypatch.setattr(costs, "_EMBEDDER", "test_resnet")
    monkeypatch.setattr(costs, "_BATCHES", (1, 2))
    result = short_form("refiner.costs", "--items", 64, "--searched", 128, "--repetitions", 2)
    assert len(ratios(result)) == 2 + 3
    assert max(result["gallery"]["largest_difference"].values()) < 1e-4


def test_loss_costs(short_form: ShortForm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_costs, "LARGE", 64)
    monkeypatch.setattr(loss_costs, "MIDDLE", 32)
    monkeypatch.setattr(loss_costs, "CHUNK", 8)
    # Importing torch six times would take longer than all that is measured.
    monkeypatch.setattr(loss_costs, "in_fresh_process", lambda function, *given: function(*given))
    # This process may hold from earlier what such a small part needs: it would grow by nothing.
    monkeypatch.setattr(loss_costs, "peak_of", lambda run, _device: (run(), Peak(0, 2**26))[1])
    result = short_form("speed.loss_costs", "--repetitions", 1)
    assert len(ratios(result)) >= 5
