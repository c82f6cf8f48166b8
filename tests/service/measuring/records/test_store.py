"""Calibration store: immutable records, and which one is in force for which pipeline."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from tests.damaged_rows import damage, damage_document
from vicinal.calibration import Target, TrialLabels, Trials
from vicinal.indexer.state.schema import attachments, documents
from vicinal.indexer.storage.files import identity_of
from vicinal.models.bundle import ModelBundle
from vicinal.service.errors import CalibrationNotFoundError, CalibrationRecordError
from vicinal.service.measuring.records.record import (
    CalibrationRecord,
    Rates,
    StoredScores,
)
from vicinal.service.measuring.records.store import CalibrationStore
from vicinal.service.search.pipeline import (
    ChosenPipeline,
    Pipeline,
    PipelineStore,
    Rerank,
)

OTHER = Pipeline(rerank=Rerank(k=4))


@pytest.fixture
def store(tmp_path: Path) -> CalibrationStore:
    return CalibrationStore(tmp_path / "galleries" / "shoes")


def make_record(record_id: str = "first", **changes: object) -> CalibrationRecord:
    fields = {
        "id": record_id,
        "created_at": datetime(2030, 1, 1, tzinfo=UTC),
        "source": "leave_one_out",
        "target": Target(rate="far", value=0.01),
        # A third has no short decimal form.
        "threshold": 1.0 / 3.0,
        "rates": Rates(far=0.01, frr=0.1, fpir=None, fnir=0.2, hit_rate_1=0.9),
        "pipeline": Pipeline(),
        "bundle": "b" * 16,
        "version": 2,
        "n_items": 100,
        "warnings": ("one",),
    }
    return CalibrationRecord.model_validate({**fields, **changes})


def test_a_record_comes_back_as_it_was_kept(store: CalibrationStore) -> None:
    kept = store.add(make_record(gallery="shoes"))
    assert store.get("first") == kept
    assert kept == make_record(gallery="shoes", gallery_id=kept.gallery_id)


def test_a_record_is_bound_to_the_gallery_that_keeps_it(store: CalibrationStore) -> None:
    kept = store.add(make_record())
    assert (kept.gallery, kept.gallery_id) == ("shoes", identity_of(store.gallery))


def test_the_threshold_is_kept_in_full_precision(store: CalibrationStore) -> None:
    store.add(make_record())
    assert store.get("first").threshold.hex() == (1.0 / 3.0).hex()


def test_a_record_is_in_force_for_its_own_pipeline_only(store: CalibrationStore) -> None:
    assert store.add(make_record()) == store.active(Pipeline())
    assert store.active(OTHER) is None
    assert store.active(Pipeline(rerank=Rerank(k=9))) is None


def test_an_earlier_record_can_be_put_in_force_again(store: CalibrationStore) -> None:
    for record_id in ("first", "second"):
        store.add(make_record(record_id))
    store.activate(store.get("first"))
    assert store.active(Pipeline()).id == "first"


def test_a_damaged_record_is_an_error_that_names_it(store: CalibrationStore) -> None:
    store.add(make_record())
    damage_document(store.gallery, "calibration")
    with pytest.raises(CalibrationRecordError, match="'first' is missing or damaged"):
        CalibrationStore(store.gallery).active(Pipeline())
    with pytest.raises(CalibrationRecordError, match="'second' is missing or damaged"):
        store.get("second")


def keep_text(store: CalibrationStore, record_id: str, text: str) -> None:
    """Keep a record that another release wrote."""
    with store.state.changing() as rows:
        rows.add(documents, {"kind": "calibration", "id": record_id, "at": 1.0, "content": text})


def test_a_record_of_the_first_format_can_still_be_read(store: CalibrationStore) -> None:
    """Records written before there was evidence name neither it nor a format."""
    fields = json.loads(make_record().model_dump_json())
    for name in ("format_version", "evidence", "gallery", "gallery_id"):
        del fields[name]
    keep_text(store, "first", json.dumps({**fields, "scores_sha256": None}))
    assert (store.get("first").format_version, store.get("first").evidence) == (1, None)
    assert store.get("first") == make_record()


def test_a_record_without_a_threshold_is_refused(store: CalibrationStore) -> None:
    fields = json.loads(make_record().model_dump_json())
    fields["treshold"] = fields.pop("threshold")
    keep_text(store, "first", json.dumps(fields))
    with pytest.raises(CalibrationRecordError, match="not read any more"):
        store.get("first")


def test_an_id_is_never_used_again(store: CalibrationStore) -> None:
    store.add(make_record())
    with pytest.raises(CalibrationRecordError, match="never changed"):
        store.add(make_record(threshold=0.9))
    assert store.get("first").threshold == 1.0 / 3.0


@pytest.mark.parametrize("name", ["nowhere", "a/b", "", "x" * 300, "\0"])
def test_what_is_no_record_is_not_found(store: CalibrationStore, name: str) -> None:
    store.add(make_record())
    with pytest.raises(CalibrationNotFoundError, match="has no calibration"):
        store.find(name)


@pytest.fixture
def scores() -> StoredScores:
    """Of one query of one label."""
    one = np.array([0.5])
    codes = np.zeros(1, np.uint8)
    labels = TrialLabels(np.array(["a", "b"], dtype=object), codes, codes, codes + 1, codes, codes, codes)
    return StoredScores.of(Trials(one, one, one, one, one, np.array([True]), labels), one)


def test_scores_come_back_with_their_record(store: CalibrationStore, scores: StoredScores) -> None:
    kept = store.add(make_record(), scores)
    assert store.scores(store.get("first")).to_bytes() == scores.to_bytes()
    assert store.history() == [kept]


def test_damaged_scores_are_an_error_that_names_them(store: CalibrationStore, scores: StoredScores) -> None:
    record = store.add(make_record(), scores)
    damage(store.gallery, attachments, content=scores.to_bytes()[:-1] + b"?")
    with pytest.raises(CalibrationRecordError, match="scores of calibration 'first' are damaged"):
        store.scores(record)
    assert store.points(record) is None


def with_gone_rerank(text: str) -> str:
    """What was written of a pipeline that re-ranks by k-reciprocal encodings."""
    fields = json.loads(text)
    fields["pipeline"]["rerank"] |= {"method": "k_reciprocal", "k1": 20, "k2": 6, "lam": 0.3}
    return json.dumps(fields)


def test_a_record_of_a_gone_rerank_says_what_to_do_and_stands_in_no_way(store: CalibrationStore) -> None:
    kept = store.add(make_record())
    keep_text(store, "old", with_gone_rerank(make_record("old").model_dump_json()))
    with pytest.raises(CalibrationRecordError, match="of a form that is not read any more: calibrate again"):
        store.find("old")
    assert store.history() == [kept]


def test_a_choice_of_a_gone_rerank_is_not_used(store: CalibrationStore, refiner_bundle: ModelBundle) -> None:
    kept = PipelineStore(store.gallery)
    now = datetime(2030, 1, 1, tzinfo=UTC)
    fields = {"pipeline": OTHER, "bundle": refiner_bundle.fingerprint, "calibration": "old", "at": now}
    chosen = ChosenPipeline.model_validate(fields)
    kept.put_in_force(chosen)
    with store.state.changing() as rows:
        text = with_gone_rerank(chosen.model_dump_json())
        rows.change(documents, documents.c.kind == "pipeline", content=text)
    found = kept.resolve(Pipeline(), refiner_bundle)
    assert (found.pipeline, found.source) == (Pipeline(), "settings")
    assert "nobody knows which pipeline is in force" in (found.reason or "")
