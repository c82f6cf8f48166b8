"""Labels or items, which a calibration chooses for searches: that pipeline and threshold come together."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.service.types import MakeSettings
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.state import state_of
from vicinal.indexer.state.schema import documents
from vicinal.service.errors import RequestError
from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.measuring import calibrator
from vicinal.service.measuring.group_trials import MetricTrial, measure_groups
from vicinal.service.measuring.measurement import Measurement
from vicinal.service.measuring.records.record import CalibrationRecord
from vicinal.service.operations import Progress, calibrate
from vicinal.service.operations.place import Place
from vicinal.service.request_fields import PipelineChoice
from vicinal.service.search.pipeline import ChosenPipeline, Group, Pipeline

ITEM = "plain/view 0.png"
OFF = Pipeline()
# The tiny gallery has too few photos for a lower one.
TARGET = "fpir=20%"


@pytest.fixture
def place(gallery: Gallery, data_dir: Path, make_settings: MakeSettings) -> Place:
    return Place(ServedBundles(make_settings(data_dir)), gallery)


@pytest.fixture
def labels_find_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets every trial of a gallery's own metric choose it."""

    def choose(items: Measurement, by: str, *_: object, seed: int) -> tuple[Measurement, MetricTrial]:
        return measure_groups(items, Group(by=by, score="lda")), MetricTrial(chosen="lda")

    monkeypatch.setattr(calibrator, "choose_metric", choose)


def calibrated(place: Place, **asked: object) -> CalibrationRecord:
    fresh, request = Place(place.bundles, place.gallery), {"target": TARGET, "activate": True, **asked}
    return calibrate.run(fresh, calibrate.CalibrateRequest(**request), Progress()).record


def searched(place: Place) -> tuple[str, str, str | None]:
    """What a search is made with that asks for nothing, what chose that, and the calibration that decides."""
    answer = place.bundles.matcher(place.gallery).search(item_ids=[ITEM])[0]
    return answer.pipeline, answer.pipeline_source, answer.threshold.calibration


@pytest.mark.usefixtures("labels_find_more")
def test_labels_decide_once_their_threshold_is_in_force(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    file = type(place.matcher.pipeline_store)
    put = file.put_in_force

    def look(self: object, chosen: ChosenPipeline) -> None:
        seen.append(place.matcher.calibrations.active(chosen.pipeline).id)
        put(self, chosen)

    monkeypatch.setattr(file, "put_in_force", look)
    record = calibrated(place)
    assert (record.pipeline.group.score, seen) == ("lda", [record.id])
    assert searched(place) == (record.pipeline.key, "calibration", record.id)


@pytest.mark.usefixtures("labels_find_more")
@pytest.mark.parametrize("asked", [{"rerank": "contextual"}, {"group_by": "label"}, {"target": "far=1%"}])
def test_other_searches_are_left_as_they_are(place: Place, asked: dict[str, object]) -> None:
    calibrated(place, **asked)
    assert searched(place)[:2] == (OFF.key, "settings")


@pytest.mark.usefixtures("labels_find_more")
def test_rolling_back_goes_back_to_the_pipeline_before(place: Place) -> None:
    first = calibrated(place, metric="cosine")
    second, _ = calibrated(place), calibrated(place)
    matcher = place.bundles.matcher(place.gallery)
    assert (matcher.roll_back(PipelineChoice()).id, searched(place)[0]) == (second.id, second.pipeline.key)
    assert matcher.roll_back(PipelineChoice()).id == first.id
    assert searched(place) == (OFF.key, "settings", first.id)
    with pytest.raises(RequestError, match="no calibration was in force"):
        matcher.roll_back(PipelineChoice())


def test_re_ranking_that_an_earlier_release_chose_stays_and_is_gone_back_over(place: Place) -> None:
    first, old = calibrated(place, metric="cosine"), calibrated(place, rerank="contextual")
    fields = json.loads(old.model_dump_json())
    fields["evidence"] |= {name: {"tried": []} for name in ("margins", "predictions", "reranks")}
    with state_of(place.gallery.path).changing() as rows:
        rows.change(documents, documents.c.id == old.id, content=json.dumps(fields))
    chosen = ChosenPipeline(
        pipeline=old.pipeline, bundle=old.bundle, calibration=old.id, at=datetime.now(UTC)
    )
    place.matcher.pipeline_store.put_in_force(chosen)
    assert searched(place) == (old.pipeline.key, "calibration", old.id)
    again = calibrated(place, metric="cosine")
    assert searched(place) == (old.pipeline.key, "calibration", again.id)
    matcher = place.bundles.matcher(place.gallery)
    assert [matcher.roll_back(PipelineChoice()).id for _ in range(2)] == [old.id, first.id]
    assert searched(place) == (OFF.key, "settings", first.id)
