"""How much of an engine's table a search looks at."""

from __future__ import annotations

import numpy as np
import pytest

from vicinal.calibration.arrays import FloatArray, Ints
from vicinal.indexer.engines import measured
from vicinal.indexer.engines.measured import measured_candidates
from vicinal.indexer.errors import EngineAwayError
from vicinal.indexer.graph.vector_index import nearest_rows
from vicinal.models.similarity import normalize

ITEMS = normalize(np.random.default_rng(3).normal(size=(200, 16)).astype(np.float32))


def failing(n_failures: int, *, is_slow: bool) -> measured.Find:
    """A search that fails some times before it answers exactly."""
    left = [n_failures]

    def find(queries: FloatArray, n: int, looked_at: int) -> Ints:
        if left[0]:
            left[0] -= 1
            raise EngineAwayError("it does not answer", is_slow=is_slow)
        return nearest_rows(queries, ITEMS, n)[1]

    return find


def test_a_slow_search_does_not_end_a_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "_BETWEEN_TRIES", 0.0)
    assert measured_candidates(failing(3, is_slow=True), 200, ITEMS) == ((10, 100), (1.0, 1.0))


def test_an_engine_that_is_away_ends_it_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured.time, "sleep", pytest.fail)
    with pytest.raises(EngineAwayError, match="does not answer"):
        measured_candidates(failing(1, is_slow=False), 200, ITEMS)


def test_it_is_slow_for_so_long_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "_BETWEEN_TRIES", 0.0)
    monkeypatch.setattr(measured, "_PATIENT_SECONDS", 0.0)
    with pytest.raises(EngineAwayError, match="does not answer"):
        measured_candidates(failing(1000, is_slow=True), 200, ITEMS)
