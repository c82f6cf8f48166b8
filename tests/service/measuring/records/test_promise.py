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
from vicinal.service.measuring.records.promise import CheckedRate, PromiseCheck, _sentence, check_calibration
from vicinal.service.measuring.records.record import CalibrationRecord, promised_range
from vicinal.service.measuring.records.store import CalibrationStore


@pytest.fixture
def record(gallery: Gallery, calibrate: Calibrate) -> CalibrationRecord:
    return CalibrationStore(gallery.calibrations_path).get(calibrate(gallery))


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


def test_photos_like_the_gallery_s_keep_the_promise(
    gallery: Gallery, record: CalibrationRecord, photos: LabelledQueries
) -> None:
    found = check(gallery, record, photos)
    assert found.verdict == "held"
    assert found.sentence.startswith(
        "What was promised holds so far: of 30 photos of things you have (10 labels)"
    )


def test_photos_with_the_wrong_labels_break_it(
    gallery: Gallery, record: CalibrationRecord, photos: LabelledQueries
) -> None:
    """Every thing that is there is called absent, and the other way round."""
    swapped = [f"absent {one}" if one in _LABELS else "plain" for one in photos.labels]
    found = check(gallery, record, LabelledQueries(photos.embeddings, np.array(swapped, dtype=object)))
    assert (found.verdict, found.rates["fpir"].verdict) == ("broken", "broken")
    assert "does NOT hold" in found.sentence


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


def test_the_promise_is_the_range_of_the_record(
    gallery: Gallery, record: CalibrationRecord, photos: LabelledQueries
) -> None:
    found = check(gallery, record, photos).rates["fnir"]
    promised = promised_range(record, "fnir")
    assert (found.promised_low, found.promised_rate, found.promised_high) == (
        promised.low,
        promised.rate,
        promised.high,
    )
    assert promised_range(record.model_copy(update={"evidence": None}), "fnir") is None


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


def rate_of(verdict: str, n_events: int = 49, **changes: object) -> CheckedRate:
    """120 photos of 14 labels, of which 26 to 52 of 100 were to be missed."""
    fields = {
        "n_trials": 120,
        "n_events": n_events,
        "n_labels": 14,
        "rate": n_events / 120,
        "low": 0.3,
        "high": 0.5,
        "confidence": 0.95,
        "promised_rate": 0.38,
        "promised_low": 0.26,
        "promised_high": 0.52,
        "p_not_worse": 0.4,
        "verdict": verdict,
        "more_labels": None,
    }
    return CheckedRate.model_validate({**fields, **changes})


@pytest.mark.parametrize(
    ("verdict", "rates", "sentence"),
    [
        (
            "held",
            {"fnir": rate_of("held")},
            "What was promised holds so far: of 120 photos of things you have (14 labels), 71 were found; "
            "promised were 48 to 74 of 100. No photo of things you do not have was tried.",
        ),
        (
            "held",
            {
                "fnir": rate_of("better", 10),
                "fpir": rate_of("held", 3, promised_low=0.008, promised_high=0.09),
            },
            "What was promised holds so far: of 120 photos of things you have (14 labels), 110 were found; "
            "promised were 48 to 74 of 100, so that this is better than promised; of 120 photos of things "
            "you do not have (14 labels), 3 got an answer; promised were 0.8 to 9 of 100.",
        ),
        (
            "broken",
            {"fnir": rate_of("broken", 90), "fpir": rate_of("held")},
            "What was promised does NOT hold: of 120 photos of things you have (14 labels), 30 were found; "
            "promised were 48 to 74 of 100, and this is worse; of 120 photos of things you do not have (14 "
            "labels), 49 got an answer; promised were 26 to 52 of 100.",
        ),
        (
            "unclear",
            {"fnir": rate_of("unclear", 1, n_trials=2, n_labels=1, rate=0.55, more_labels=23)},
            "Whether what was promised holds cannot be told yet: of 2 photos of things you have (1 label), 1 "
            "was found; promised were 48 to 74 of 100 (which is worse but may be chance: it takes about 25 "
            "more labels to tell). No photo of things you do not have was tried.",
        ),
    ],
)
def test_sentences(verdict: str, rates: dict, sentence: str) -> None:
    assert _sentence(verdict, rates, "photo") == sentence
