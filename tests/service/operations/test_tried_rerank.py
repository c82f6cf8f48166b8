"""Re-ranking that a calibration tries: when it does, and that pipeline and threshold come together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.service.types import MakeSettings
from vicinal.indexer.gallery import Gallery
from vicinal.service.errors import RequestError
from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.measuring import rerank_trial
from vicinal.service.measuring.evidence import RerankTrial, TriedRerank
from vicinal.service.measuring.records.record import CalibrationRecord
from vicinal.service.operations import Progress, calibrate
from vicinal.service.operations.place import Place
from vicinal.service.request_fields import PipelineChoice
from vicinal.service.search.pipeline import ChosenPipeline, Pipeline, Rerank

ITEM = "plain/view 0.png"
OFF, FOUR = Pipeline(), Pipeline(rerank=Rerank(k=4))
# The tiny gallery has too few photos for a lower one.
TARGET = "fpir=20%"

Finds = Callable[[Pipeline], None]


@pytest.fixture
def finds(monkeypatch: pytest.MonkeyPatch) -> Finds:
    """Lets every trial choose a way to re-rank."""

    def choose(pipeline: Pipeline) -> None:
        tried = tuple(TriedRerank(rerank=one.rerank) for one in (OFF, FOUR))
        found = RerankTrial(n_queries=60, tried=tried, chosen=pipeline.rerank)
        monkeypatch.setattr(rerank_trial, "try_reranks", lambda *_: found)

    return choose


@pytest.fixture
def place(gallery: Gallery, data_dir: Path, make_settings: MakeSettings) -> Place:
    return Place(ServedBundles(make_settings(data_dir)), gallery)


def calibrated(place: Place, **asked: object) -> CalibrationRecord:
    fresh, request = Place(place.bundles, place.gallery), {"target": TARGET, "activate": True, **asked}
    return calibrate.run(fresh, calibrate.CalibrateRequest(**request), Progress()).record


def searched(place: Place) -> tuple[str, str, str | None]:
    """What a search is made with that asks for nothing, what chose that, and the calibration that decides."""
    answer = place.bundles.matcher(place.gallery).search(item_ids=[ITEM])[0]
    return answer.pipeline, answer.pipeline_source, answer.threshold.calibration


def test_the_chosen_reranking_comes_into_force_with_its_threshold(place: Place, finds: Finds) -> None:
    finds(FOUR)
    record = calibrated(place)
    assert record.pipeline == FOUR
    assert searched(place) == (FOUR.key, "calibration", record.id)


def test_no_search_re_ranks_before_its_threshold_is_in_force(
    place: Place, finds: Finds, monkeypatch: pytest.MonkeyPatch
) -> None:
    finds(FOUR)
    seen = []
    file = type(place.matcher.pipeline_file)
    put = file.put_in_force

    def look(self: object, chosen: ChosenPipeline) -> None:
        seen.append(place.matcher.calibrations.active(chosen.pipeline).id)
        put(self, chosen)

    monkeypatch.setattr(file, "put_in_force", look)
    assert [calibrated(place).id] == seen


@pytest.mark.parametrize(
    "asked", [{"rerank": "off"}, {"rerank": "contextual"}, {"try_rerank": False}, {"group_by": "label"}]
)
def test_what_is_named_is_not_tried(place: Place, finds: Finds, asked: dict[str, object]) -> None:
    finds(FOUR)
    record = calibrated(place, **asked)
    assert (record.evidence.reranks, searched(place)[0]) == (None, OFF.key)


@pytest.mark.slow
def test_rolling_back_goes_back_to_the_pipeline_before(place: Place, finds: Finds) -> None:
    finds(OFF)
    first = calibrated(place)
    finds(FOUR)
    second, _ = calibrated(place), calibrated(place)
    matcher = place.bundles.matcher(place.gallery)
    assert (matcher.roll_back(PipelineChoice()).id, searched(place)[0]) == (second.id, FOUR.key)
    assert matcher.roll_back(PipelineChoice()).id == first.id
    assert searched(place) == (OFF.key, "settings", first.id)
    with pytest.raises(RequestError, match="no calibration was in force"):
        matcher.roll_back(PipelineChoice())
