"""Fit job: a worker that dies leaves its work to the next, and a cancelled job leaves nothing."""

from __future__ import annotations

import json
from contextlib import suppress
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
from vicinal.indexer.sources import Refuse, RemoteFile  # noqa: E402
from vicinal.service.errors import JobStoppedError, RequestError  # noqa: E402
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
        self.request = fit.Request.model_validate({**REQUEST, **request}).model_dump()
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


def test_another_attempt_goes_on_where_the_first_one_stopped(job: OperationJob) -> None:
    fit.require(job.place(Context().job), fit.Request.model_validate(REQUEST))
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


def test_a_cancelled_job_leaves_no_folder(job: OperationJob) -> None:
    context = Context(("views", 20))
    with pytest.raises(JobStoppedError):
        start(job, context)
    # A job of the same name takes nothing away from this one.
    job.clean(Context(job="second").job)
    assert (bundle_of(job)).exists()
    job.clean(context.job)
    assert not (bundle_of(job)).exists()


@pytest.mark.parametrize("stop", [("views", 20), ("trial", 12), ("", 0)])
@pytest.mark.parametrize("request_", [{}, {"seed": 1}, {"minutes": 0.2}])
def test_a_second_job_of_a_name_is_told_so_and_gets_nothing_of_the_first(
    job: OperationJob, stop: tuple[str, int], request_: dict[str, Any]
) -> None:
    """Both were accepted before either had begun."""
    with suppress(JobStoppedError):
        start(job, Context(stop))
    mine = bundle_of(job)
    before = {path: path.stat().st_mtime_ns for path in mine.rglob("*")}
    second = Context(job="second", **request_)
    with pytest.raises(RequestError, match="there is a bundle 'mine' already"):
        start(job, second)
    job.clean(second.job)
    assert {path: path.stat().st_mtime_ns for path in mine.rglob("*")} == before
    assert [path.name for path in mine.parent.iterdir()] == ["mine"]


@pytest.mark.parametrize("found", ["empty", "a file", "a bundle of somebody"])
def test_a_folder_that_nobody_began_is_taken_only_when_it_is_empty(job: OperationJob, found: str) -> None:
    mine = bundle_of(job)
    mine.parent.mkdir()
    if found == "a file":
        mine.touch()
    else:
        mine.mkdir()
    if found == "a bundle of somebody":
        (mine / "manifest.json").write_text("{}")
    context = Context(("views", 20))
    with pytest.raises(JobStoppedError if found == "empty" else RequestError):
        start(job, context)
    assert (mine / "fitted-for.json").exists() == (found == "empty")


def test_a_job_that_may_read_no_folder_learns_from_no_photo(job: OperationJob) -> None:
    context = Context()
    context.job = context.job.model_copy(update={"folders": ()})
    with pytest.raises(RequestError, match="0 labels have two photos"):
        start(job, context)


@pytest.mark.parametrize("allow_urls", [True, False])
def test_a_job_reads_addresses_where_the_settings_allow_it(
    job: OperationJob, allow_urls: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = job.place(Context().job).settings.model_copy(update={"allow_urls": allow_urls})
    asked = []

    def read(_items: object, *, refuse: Refuse, on_progress: object) -> None:
        asked.append(refuse(RemoteFile("https://example.com/shoe.jpg")))
        raise JobStoppedError("interrupted")

    monkeypatch.setattr("vicinal.service.fitting.labelled_images.read_labelled_images", read)
    with pytest.raises(JobStoppedError):
        start(OperationJob(fit.OPERATION, ServedBundles(settings), lambda _: None), Context())
    (reason,) = asked
    assert (reason is None) == allow_urls
