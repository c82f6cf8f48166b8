"""Promise check: which counts it rests on, what it says, and what it cannot try."""

from __future__ import annotations

import numpy as np
import pytest

from tests.service.types import Calibrate, View
from vicinal.calibration import CalibrationError
from vicinal.indexer.gallery import Gallery
from vicinal.models.embedder import Embedder
from vicinal.service.measuring.calibrator import Calibrator
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.measuring.queries import LabelledQueries
from vicinal.service.measuring.records.promise import PromiseCheck, check_calibration
from vicinal.service.measuring.records.record import CalibrationRecord
from vicinal.service.measuring.records.store import CalibrationStore


@pytest.fixture
def record(gallery: Gallery, calibrate: Calibrate) -> CalibrationRecord:
    return CalibrationStore(gallery.path).get(calibrate(gallery))


@pytest.fixture
def photos(view: View, embedder: Embedder, gallery: Gallery) -> LabelledQueries:
    """Three new views of each label of the gallery, and of five labels that it lacks."""
    known = sorted(set(gallery.snapshot().labels), key=str)
    named = dict(enumerate(_LABELS)) | {number: f"absent {number}" for number in range(10, 15)}
    assert sorted(_LABELS) == known
    places = [(number, look) for number in named for look in (6, 7, 8)]
    rows = embedder.embed([view(*place) for place in places])
    return LabelledQueries(rows, np.array([named[number] for number, _ in places], dtype=object))


_LABELS = ("red shoe", "blé", "größe 42", "o'brien", "50% off", "鞋", "plain", "a+b", "x_y", "z-z")


def check(gallery: Gallery, record: CalibrationRecord, queries: LabelledQueries) -> PromiseCheck:
    return check_calibration(Calibrator(gallery.snapshot(), record.pipeline), record, queries)


def test_the_counts_are_those_of_searching_for_every_photo(
    gallery: Gallery, matcher: Matcher, record: CalibrationRecord, photos: LabelledQueries
) -> None:
    """A slow reference: the matcher's answers, one by one."""
    known, missed, answered = set(_LABELS), 0, 0
    for row, label in zip(photos.embeddings, photos.labels, strict=True):
        (answer,) = matcher.search(embeddings=row, limit=100)
        missed += label in known and label not in {one.label for one in answer.matches}
        answered += label not in known and not answer.no_match
    found = check(gallery, record, photos).rates
    assert (found["fnir"].n_trials, found["fnir"].n_events, found["fnir"].n_labels) == (30, missed, 10)
    assert (found["fpir"].n_trials, found["fpir"].n_events, found["fpir"].n_labels) == (15, answered, 5)


def test_the_error_rate_is_shared_out_among_the_rates_that_are_tried(
    gallery: Gallery, record: CalibrationRecord, photos: LabelledQueries
) -> None:
    both = check(gallery, record, photos)
    one = check(gallery, record, photos.take(np.arange(30)))
    confidences = {name: rate.confidence for name, rate in both.rates.items()}
    assert confidences == pytest.approx({"fnir": 0.95, "fpir": 0.95})
    assert one.rates["fnir"].confidence == pytest.approx(0.9)
    assert one.sentence.endswith("No photo of things you do not have was tried.")


def test_things_that_are_there_are_never_taken_for_absent(
    gallery: Gallery, record: CalibrationRecord, photos: LabelledQueries
) -> None:
    """A calibration takes the label out where all queries have mates; a check does not claim such photos."""
    found = check(gallery, record, photos.take(np.arange(30)))
    assert set(found.rates) == {"fnir"}


def test_a_threshold_set_by_hand_promises_nothing(
    gallery: Gallery, matcher: Matcher, photos: LabelledQueries
) -> None:
    record = matcher.thresholds.set_by_hand(matcher.pipeline, 0.5)
    with pytest.raises(CalibrationError, match=r"was set by hand.*by `calibrate`"):
        check(gallery, record, photos)


def test_what_was_not_promised_cannot_be_tried(
    gallery: Gallery, record: CalibrationRecord, photos: LabelledQueries
) -> None:
    rates = {name: one for name, one in record.evidence.rates.items() if name != "fpir"}
    without = record.model_copy(update={"evidence": record.evidence.model_copy(update={"rates": rates})})
    with pytest.raises(CalibrationError, match="promised nothing that these 15 queries could show"):
        check(gallery, without, photos.take(np.arange(30, 45)))
