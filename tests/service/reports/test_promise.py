"""A calibration in plain words: what it promises, what would improve it, and what speaks against it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.service.types import WriteGallery
from vicinal.calibration import Target
from vicinal.models.similarity import normalize
from vicinal.service.measuring.calibrator import Calibrator
from vicinal.service.measuring.evidence import AnotherDay
from vicinal.service.measuring.records.record import CalibrationRecord
from vicinal.service.operations.calibrate import objection
from vicinal.service.reports.promise import advice, promise
from vicinal.service.search.pipeline import Pipeline, Rerank


@pytest.fixture(scope="module")
def record(write_gallery: WriteGallery) -> CalibrationRecord:
    """A calibration of 20 labels that differ, by leaving one out."""
    rng = np.random.default_rng(0)
    centers = np.repeat(rng.normal(size=(20, 12)), 6, axis=0)
    photos = normalize(centers + 0.8 * rng.normal(size=centers.shape)).astype(np.float32)
    calibrator = Calibrator(
        write_gallery(photos, [f"label {i // 6}" for i in range(120)]),
        Pipeline(rerank=Rerank(method="off")),
    )
    return calibrator.measure(calibrator.leave_one_out(), Target(rate="fpir", value=0.05)).record


def changed(record: CalibrationRecord, **evidence: Any) -> CalibrationRecord:
    """The record with other evidence; rates as (rate, low, high)."""
    rates = dict(record.evidence.rates)
    for name in ("fnir", "fpir", "precision"):
        if name in evidence:
            fields = zip(("rate", "low", "high"), evidence.pop(name), strict=True)
            rates[name] = rates[name].model_copy(update=dict(fields))
    found = record.evidence.model_copy(update={"rates": rates, "another_day": {}, **evidence})
    return record.model_copy(update={"evidence": found})


@pytest.mark.parametrize(
    ("absent", "mix"),
    [
        (0.0, "if all searches are for things you have"),
        (0.5, "if 50 of 100 searches are for things you lack"),
        (None, "at the mix of searches that was tried"),
    ],
)
def test_a_precision_is_never_said_without_its_mix(
    record: CalibrationRecord, absent: float | None, mix: str
) -> None:
    assert f"), {mix}; " in promise(changed(record, absent=absent))[0]


def test_what_is_not_known_is_said_in_the_first_sentence(record: CalibrationRecord) -> None:
    evidence = record.evidence.model_copy(update={"rates": {}, "another_day": {}})
    assert promise(record.model_copy(update={"evidence": evidence}))[0] == (
        "How many matches will be right is not known, as none was shown; how many photos of things you have "
        "will be found is not known, as none was tried; how many photos of things you lack will get a wrong "
        "match is not known, as none was tried."
    )


def test_where_nothing_tells_visits_apart_only_the_range_is_stated(record: CalibrationRecord) -> None:
    wider = {
        "fnir": AnotherDay(apart=0.51, low=0.17, high=0.67),
        "fpir": AnotherDay(apart=0.0, low=0.0, high=0.09),
        "precision": AnotherDay(apart=None, low=0.31, high=0.96),
    }
    said = promise(changed(record, fnir=(0.2, 0.17, 0.3), another_day=wider))
    assert said[0] == (
        "Of 100 matches that are shown, between 31 and 96 will be right, if 50 of 100 searches are for "
        "things you lack; of 100 photos of things you have, between 33 and 83 will be found; of 100 photos "
        "of things you lack, between 0 and 9 will get a wrong match."
    )
    assert "Nothing tells which photos were taken together." in said[-1]


def test_a_threshold_set_by_hand_promises_nothing(record: CalibrationRecord) -> None:
    by_hand = record.model_copy(update={"source": "by_hand", "evidence": None})
    (only,) = promise(by_hand)
    assert "nobody knows how often it is wrong" in only
    assert advice(by_hand, "shop") == ()


def test_advice_stands_by_what_was_measured_to_gain(record: CalibrationRecord) -> None:
    wider = {"fnir": AnotherDay(apart=0.51, low=0.17, high=0.9)}
    hits = record.rates.model_copy(update={"hit_rate_1": 0.9})
    found = changed(record, fnir=(0.4, 0.35, 0.45), another_day=wider)
    steps = advice(found.model_copy(update={"rates": hits}), "shop")
    assert [step.command.split(" -g")[0] for step in steps][:2] == ["vicinal calibrate", "vicinal compare"]
    assert [round(step.gain, 2) for step in steps][:2] == [0.45, 0.3]


@pytest.mark.parametrize(
    ("fnir", "fpir", "expected"),
    [
        ((0.3, 0.2, 0.4), (0.05, 0.02, 0.09), None),
        ((0.4, 0.3, 0.5), (0.05, 0.02, 0.09), "this one promises at least 50 of 100 found, at most 9 of"),
        ((0.3, 0.2, 0.4), (0.1, 0.05, 0.2), "this one promises at least 60 of 100 found, at most 20 of"),
        # Fewer found for fewer wrong matches is another choice, and not a worse one.
        ((0.4, 0.3, 0.5), (0.01, 0.0, 0.03), None),
    ],
)
def test_what_promises_less_is_objected_to(
    record: CalibrationRecord, fnir: tuple, fpir: tuple, expected: str | None
) -> None:
    present = changed(record, fnir=(0.3, 0.2, 0.4), fpir=(0.05, 0.02, 0.09))
    said = objection(changed(record, fnir=fnir, fpir=fpir), present)
    assert (said is None) if expected is None else (expected in said)


def test_leaving_out_does_not_replace_photos_from_outside_unasked(record: CalibrationRecord) -> None:
    outside = record.model_copy(update={"source": "queries"})
    assert "measured with photos from outside" in objection(record, outside)
    assert objection(outside, record) is None
    assert objection(record, None) is None


def test_answers_to_searches_replace_what_leaving_items_out_promised_by_themselves(
    record: CalibrationRecord,
) -> None:
    worse = changed(record, fnir=(0.9, 0.8, 0.95), fpir=(0.5, 0.4, 0.6)).model_copy(
        update={"source": "searches"}
    )
    assert record.source == "leave_one_out"
    assert objection(worse, record) is None
    assert objection(worse, record, is_broken=True) is None
    # What is known of real searches is not given up without a question.
    assert "from outside" in objection(record, worse)
    assert "made without" in objection(record, worse, is_broken=True)
