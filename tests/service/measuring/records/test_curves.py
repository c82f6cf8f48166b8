"""Details of a calibration: curves are those of the searches."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.service.conftest import overlapping
from tests.service.pipelines import CONTEXTUAL
from tests.service.types import WriteGallery
from vicinal.calibration import Target
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.service.measuring.calibrator import Calibration, Calibrator
from vicinal.service.measuring.queries import LabelledQueries
from vicinal.service.measuring.records.curves import CalibrationCurves
from vicinal.service.measuring.records.store import CalibrationStore
from vicinal.service.search.scorer import Scorer

N_LABELS, PER_LABEL = 24, 5
N = N_LABELS * PER_LABEL
FPIR = Target(rate="fpir", value=0.1)


@pytest.fixture(scope="module")
def snapshot(write_gallery: WriteGallery) -> Snapshot:
    return write_gallery(*overlapping(N_LABELS, PER_LABEL, 0.35))


@pytest.fixture(scope="module")
def found(snapshot: Snapshot) -> Calibration:
    return Calibrator(snapshot, CONTEXTUAL).measure(LabelledQueries.leave_one_out(snapshot), FPIR)


def slow_best(snapshot: Snapshot, *, own_label: bool) -> list[tuple[float, int, int]]:
    """Best score of each query with an item of its own label, or of the others, with both positions."""
    best = []
    for query in range(N):
        is_own = snapshot.labels == snapshot.labels[query]
        out = np.array([query]) if own_label else np.flatnonzero(is_own)
        scored = Scorer(snapshot, CONTEXTUAL).score(snapshot.embeddings[query][None], N, excluded=[out])
        ranked = zip(scored.scores[0].tolist(), scored.positions[0].tolist(), strict=True)
        best.append(max((s, query, i) for s, i in ranked if i >= 0 and is_own[i] == own_label))
    return best


def test_false_accepts_are_the_highest_answers_to_queries_without_a_mate(
    snapshot: Snapshot, found: Calibration
) -> None:
    slow = [one for one in slow_best(snapshot, own_label=False) if one[0] >= found.record.threshold]
    by_pair = {frozenset(pair): score for score, *pair in sorted(slow)}
    expected = sorted(by_pair.values(), reverse=True)[:20]
    assert [one.score for one in found.curves.false_accepts] == pytest.approx(expected)
    assert {frozenset((int(one.query), int(one.item))) for one in found.curves.false_accepts} <= set(by_pair)
    assert all(one.query_label != one.item_label for one in found.curves.false_accepts)


def test_false_rejects_are_the_lowest_best_mates(snapshot: Snapshot, found: Calibration) -> None:
    slow = sorted(one for one in slow_best(snapshot, own_label=True) if one[0] < found.record.threshold)
    shown = found.curves.false_rejects
    assert len(shown) == min(20, len(slow)) > 0
    assert [one.score for one in shown] == pytest.approx([score for score, *_ in slow[:20]])
    assert [(int(one.query), int(one.item)) for one in shown] == [tuple(pair) for _, *pair in slow[:20]]
    assert all(one.query_label == one.item_label for one in shown)


def test_curves_come_back_as_they_were_kept(found: Calibration, tmp_path: Path) -> None:
    store = CalibrationStore(tmp_path)
    record = store.add(found.record, found.scores, found.curves)
    assert store.curves(record) == found.curves
    assert [one.id for one in store.history()] == [record.id]
    former = {**json.loads(found.curves.model_dump_json()), "curves": {"thresholds": [0.5], "far": []}}
    assert CalibrationCurves.model_validate(former) == found.curves
