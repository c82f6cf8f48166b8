"""Fit job: a worker that dies leaves its work to the next, and a cancelled job leaves nothing."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("timm")
pytest.importorskip("pytorch_metric_learning")

from tests.models.conftest import write_class_folders  # noqa: E402
from tests.service.fitting.test_run import RECIPE, make_quick  # noqa: E402
from tests.service.types import MakeSettings  # noqa: E402
from vicinal.indexer import Gallery, index_items, read_source  # noqa: E402
from vicinal.service.errors import JobStoppedError  # noqa: E402
from vicinal.service.fitting import run  # noqa: E402
from vicinal.service.galleries.bundles import ServedBundles  # noqa: E402
from vicinal.service.jobs.context import JobContext  # noqa: E402
from vicinal.service.jobs.records import Job, JobProgress  # noqa: E402
from vicinal.service.tasks.fit_job import FitJob, FitRequest  # noqa: E402

REQUEST = {"name": "mine", "minutes": 0.1}


class Context:
    """A job's context that notes the progress, and stops the job at one of its stages.

    Args:
        stop: Stage and count.
    """

    def __init__(self, stop: tuple[str, int] = ("", 0)) -> None:
        self.request = FitRequest.model_validate(REQUEST).model_dump()
        self.job = SimpleNamespace(gallery="shop", request=self.request, attempt=1)
        self.stop = stop
        self.stages: list[str | None] = []

    def report(self, progress: JobProgress) -> None:
        self.stages.append(progress.stage)
        if (progress.stage, progress.stage_done) == self.stop:
            raise JobStoppedError("interrupted")


@pytest.fixture
def job(tmp_path: Path, make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch) -> FitJob:
    """Over a gallery of 15 labels, with a tiny network."""
    make_quick(monkeypatch.setattr)
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE, encoding="utf-8")
    monkeypatch.setattr(run, "RECIPE", recipe)
    monkeypatch.setattr("vicinal.models.training.log.Figure.savefig", lambda *_, **__: None)
    photos = write_class_folders(tmp_path / "photos", n_classes=15, per_class=8, side=20)
    settings = make_settings(tmp_path / "data", sources_dir=photos)
    bundles = ServedBundles(settings)
    index_items(Gallery(settings.gallery_path("shop")), read_source(photos), bundles.own.embedder)
    return FitJob(bundles)


def start(job: FitJob, context: Context) -> dict[str, Any]:
    return job.run(cast("JobContext", context))


def test_another_attempt_goes_on_where_the_first_one_stopped(job: FitJob) -> None:
    job.check("shop", FitRequest.model_validate(REQUEST))
    with pytest.raises(JobStoppedError):
        start(job, Context(("trial", 12)))
    second = Context()
    result = start(job, second)
    plan = json.loads((Path(result["bundle"]) / "fit-plan.json").read_text(encoding="utf-8"))
    # The first attempt left a checkpoint at step 10.
    assert 0 < second.stages.count("trial") <= plan["steps"] - 10
    assert second.stages.count("train") == result["steps"]
    assert result["text"][0].startswith("Of 100 photos of things you have")
    assert Path(result["bundle"]) == job.settings.data_dir / "bundles" / "mine"


def test_a_cancelled_job_leaves_no_folder(job: FitJob) -> None:
    context = Context(("views", 20))
    with pytest.raises(JobStoppedError):
        start(job, context)
    # A job of the same name that never began takes nothing away from this one.
    job.clean(cast("Job", SimpleNamespace(gallery="shop", request=context.request, attempt=0)))
    assert (job.settings.data_dir / "bundles" / "mine").exists()
    job.clean(cast("Job", context.job))
    assert not (job.settings.data_dir / "bundles" / "mine").exists()
