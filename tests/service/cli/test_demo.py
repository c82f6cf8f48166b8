"""Demo: the whole way, from rendered products to answers over HTTP, on a reduced catalog."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from tests.service.types import MakeSettings
from vicinal.models.bundle import ModelBundle
from vicinal.models.demo_catalog import write_demo_catalog
from vicinal.service import demo as demonstration
from vicinal.service.cli import app
from vicinal.service.demo import CheckResult, PreparedDemo, check_demo, prepare_demo
from vicinal.service.http.serving.server import serving
from vicinal.service.request_fields import PipelineChoice
from vicinal.service.search.pipeline import Pipeline

pytestmark = pytest.mark.slow

# 15 products of 4 views: the 60 queries that an FPIR of 5 % needs at least.
SMALL = {"n_products": 15, "n_absent": 3, "n_views": 6, "n_gallery_views": 4, "size": 40}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, make_settings: MakeSettings) -> PreparedDemo:
    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demonstration, "write_demo_catalog", partial(write_demo_catalog, **SMALL))
        return prepare_demo(folder, make_settings(folder), lambda *_at: None)


@pytest.fixture(scope="module")
def result(prepared: PreparedDemo) -> CheckResult:
    with serving(prepared.settings) as url:
        return check_demo(prepared, url, lambda *_at: None)


def test_the_demo_is_calibrated_for_its_target(prepared: PreparedDemo) -> None:
    assert (str(prepared.record.target), prepared.record.n_items) == ("FPIR 5 %", 60)
    # In the mean of both readings, as nothing tells visits apart.
    readings = prepared.record.rates.fpir, prepared.record.evidence.another_day["fpir"].apart
    assert sum(readings) / 2 <= 0.05 + 1e-12


def test_the_rates_are_those_of_asking_one_by_one(prepared: PreparedDemo, result: CheckResult) -> None:
    """Recounted over the answers of a second server."""
    found, absent, hits = [], [], []
    with serving(prepared.settings) as url, httpx.Client(base_url=url, timeout=30.0) as client:
        for path in (*prepared.catalog.query_images, *prepared.catalog.absent_images):
            files, options = {"image": path.read_bytes()}, {"include_candidates": "true"}
            answer = client.post("/v1/galleries/demo/search", files=files, data=options).json()
            if path in prepared.catalog.absent_images:
                absent.append(answer["no_match"])
                continue
            found.append(path.parent.name in [match["label"] for match in answer["matches"]])
            hits.append([*answer["matches"], *answer["candidates"]][0]["label"] == path.parent.name)
    assert result.found_rate == pytest.approx(sum(found) / len(found))
    assert result.no_match_rate == pytest.approx(sum(absent) / len(absent))
    assert result.hit_rate_1 == pytest.approx(sum(hits) / len(hits))


def test_the_rates_are_told_after_every_stage_of_the_line(
    with_refiner: Callable[..., ModelBundle],
    make_settings: MakeSettings,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Each as a search with the options of its stage answers, with a threshold of its own."""
    monkeypatch.setattr(demonstration, "write_demo_catalog", partial(write_demo_catalog, **SMALL))
    bundle = with_refiner(rerank="contextual").path
    prepared = prepare_demo(tmp_path, make_settings(tmp_path, bundle=bundle), lambda *_at: None)
    with serving(prepared.settings) as url:
        result = check_demo(prepared, url, lambda *_at: None)
        path = prepared.catalog.query_images[0]
        options = ({"refine": "off", "rerank": "off"}, {"rerank": "off"}, {})
        options = *({**one, "group_by": "off"} for one in options), {}
        answers = [
            httpx.post(f"{url}/v1/galleries/demo/search", files={"image": path.read_bytes()}, data=one).json()
            for one in options
        ]
    assert [one.stage for one in result.stages] == ["initial", "refined", "re-ranked", "by label"]
    assert [one.pipeline for one in result.stages] == [answer["pipeline"] for answer in answers]
    thresholds = [answer["threshold"] for answer in answers]
    assert [one.threshold for one in result.stages] == [threshold["value"] for threshold in thresholds]
    assert [threshold["state"] for threshold in thresholds] == ["current"] * 4
    assert (result.hit_rate_1, result.found_rate) == (
        result.stages[-1].hit_rate_1,
        result.stages[-1].found_rate,
    )


@pytest.mark.parametrize(
    ("sides", "method", "names"),
    [
        ("off", "off", ["initial", "by label"]),
        ("off", "contextual", ["initial", "re-ranked", "by label"]),
        ("query", "off", ["initial", "refined", "by label"]),
    ],
)
def test_a_stage_that_the_line_lacks_is_not_told(sides: str, method: str, names: list[str]) -> None:
    refine = {"sides": sides, "steps": 0 if sides == "off" else 1, "refiner": "" if sides == "off" else "abc"}
    pipeline = Pipeline.model_validate({"refine": refine, "rerank": {"method": method}})
    stages = demonstration._stages(pipeline)
    assert ([name for name, _ in stages], stages[-1][1]) == (names, PipelineChoice())


def test_the_command_prints_the_check_as_json(
    monkeypatch: pytest.MonkeyPatch, tiny_bundle: ModelBundle, tmp_path: Path, result: CheckResult
) -> None:
    """The same catalog again, so that all but the time is equal."""
    monkeypatch.setattr(demonstration, "write_demo_catalog", partial(write_demo_catalog, **SMALL))
    arguments = ["demo", "--check", "--json", "--bundle", str(tiny_bundle.path), "--folder", str(tmp_path)]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    printed = json.loads(done.stdout)
    assert (done.exit_code, printed["hit_rate_1"]) == (0, result.hit_rate_1)
    assert printed["no_match_rate"] == result.no_match_rate
    assert [one["stage"] for one in printed["stages"]] == ["initial", "by label"]
