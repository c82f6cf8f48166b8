"""Fit job: a worker that dies leaves its work to the next."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("timm")
pytest.importorskip("pytorch_metric_learning")

from tests.service.types import MakeSettings  # noqa: E402
from tests.training.conftest import write_class_folders  # noqa: E402
from tests.training.fitting.test_run import RECIPE, make_quick  # noqa: E402
from vicinal.indexer import Gallery, index_items, read_source  # noqa: E402
from vicinal.service.errors import JobStoppedError  # noqa: E402
from vicinal.service.galleries.bundles import ServedBundles  # noqa: E402
from vicinal.service.jobs.records import Job, JobProgress  # noqa: E402
from vicinal.service.jobs.runner import JobContext  # noqa: E402
from vicinal.service.operations import fit  # noqa: E402
from vicinal.service.surfaces.jobs import OperationJob  # noqa: E402
from vicinal.training.fitting import recipe as fit_recipe  # noqa: E402

REQUEST = {"name": "mine", "minutes": 0.1}


class Context:
    """A job's context that notes the progress, and stops the job at one of its stages.

    Args:
        stop: Stage and count.
    """

    def __init__(self, stop: tuple[str, int] = ("", 0), *, job: str = "first", **request: Any) -> None:
        self.request = fit.FitRequest.model_validate({**REQUEST, **request}).model_dump()
        self.job = Job(id=job, kind="fit", gallery="shop", request=self.request, attempt=1)
        self.stop = stop
        self.stages: list[str | None] = []

    def report(self, progress: JobProgress) -> None:
        self.stages.append(progress.stage)
        if (progress.stage, progress.stage_done) == self.stop:
            raise JobStoppedError("interrupted")


@pytest.fixture
def job(tmp_path: Path, make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch) -> OperationJob:
    """Over a gallery of 15 labels, with a tiny network."""
    make_quick(monkeypatch.setattr)
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE, encoding="utf-8")
    monkeypatch.setattr(fit_recipe, "RECIPE", recipe)
    monkeypatch.setattr("vicinal.training.log.Figure.savefig", lambda *_, **__: None)
    photos = write_class_folders(tmp_path / "photos", n_classes=15, per_class=8, side=20)
    settings = make_settings(tmp_path / "data", sources_dir=photos)
    bundles = ServedBundles(settings)
    index_items(Gallery(settings.gallery_path("shop")), read_source(photos), bundles.own.embedder)
    return OperationJob(fit.OPERATION, bundles, lambda _: None)


def bundle_of(job: OperationJob) -> Path:
    return job.place(Context().job).settings.data_dir / "bundles" / "mine"


def start(job: OperationJob, context: Context) -> dict[str, Any]:
    return job.run(cast("JobContext", context))


@pytest.mark.slow
def test_another_attempt_goes_on_where_the_first_one_stopped(job: OperationJob) -> None:
    fit.require(job.place(Context().job), fit.FitRequest.model_validate(REQUEST))
    with pytest.raises(JobStoppedError):
        start(job, Context(("trial", 12)))
    second = Context()
    result = start(job, second)
    plan = json.loads((Path(result["bundle"]) / "fit-plan.json").read_text(encoding="utf-8"))
    # The first attempt left a checkpoint at step 10.
    assert 0 < second.stages.count("trial") <= plan["steps"] - 10
    assert second.stages.count("train") == result["steps"]
    assert result["text"][0].startswith("Of 100 photos of things you have")
    assert Path(result["bundle"]) == bundle_of(job)
