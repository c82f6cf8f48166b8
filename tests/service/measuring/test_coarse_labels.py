"""Coarse labels by a metadata column, of the gallery's items and of queries from outside."""

from __future__ import annotations

import numpy as np

from tests.service.conftest import overlapping
from tests.service.pipelines import CONTEXTUAL
from tests.service.types import WriteGallery
from vicinal.calibration import Target
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.service.measuring.calibrator import Calibrator
from vicinal.service.measuring.queries import LabelledQueries, coarse_labels_by_column

N_LABELS, PER_LABEL = 12, 5


def make_gallery(write_gallery: WriteGallery, kinds: list[object]) -> Snapshot:
    metadata = [{} if kind is None else {"kind": kind} for kind in np.repeat(kinds, PER_LABEL)]
    return write_gallery(*overlapping(N_LABELS, PER_LABEL, 0.3), metadata=metadata)


def test_the_record_counts_near_and_far_labels_by_the_column(write_gallery: WriteGallery) -> None:
    """Labels 0 to 5 are of one kind; each of the others is a kind of its own."""
    kinds = ["many" if i < 6 else f"kind {i}" for i in range(N_LABELS)]
    snapshot = make_gallery(write_gallery, kinds)
    coarse = coarse_labels_by_column(snapshot, "kind")
    target = Target(rate="fpir", value=0.2)
    queries = LabelledQueries.leave_one_out(snapshot)
    evidence = Calibrator(snapshot, CONTEXTUAL).measure(queries, target, coarse_labels=coarse).record.evidence
    assert coarse["label 3"] == "many"
    for found in (evidence.near_fpir, evidence.far_fpir):
        assert (found.n_labels, found.n_trials) == (6, 30)
        assert found.low <= found.leave_one_label_out[0] <= found.rate <= found.high


def test_queries_from_outside_bring_their_own(write_gallery: WriteGallery) -> None:
    snapshot = make_gallery(write_gallery, ["a"] * N_LABELS)
    found = coarse_labels_by_column(snapshot, "kind", [("absent", {"kind": 3.0}), ("label 0", {"kind": "a"})])
    assert (found["absent"], found["label 0"]) == ("3", "a")
