"""Fit: a bundle that is adapted to labelled photos, and measured on labels that it did not see."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, StrictFloat, StrictInt

from vicinal.service.errors import RequestError
from vicinal.service.operations import Operation, Progress
from vicinal.service.request_fields import CommandOption, RequestFields

if TYPE_CHECKING:
    from vicinal.models.bundle import ModelBundle
    from vicinal.service.jobs.records import Job
    from vicinal.service.operations.place import Place
    from vicinal.service.training import FitReport, LabelledImages, PhotosUsed

STAGES = {
    "look": "Looking at the photos",
    "try": "Trying out this machine",
    "views": "Making views of the photos",
    "trial": "Trying without some labels",
    "train": "Learning from all labels",
    "export": "Writing the bundle",
    "measure": "Measuring",
}
_REPORT = "fit.json"
_OWNER = "fitted-for.json"


class Learning(RequestFields):
    """Settings of adapting the model, wherever the photos and the new bundle are."""

    minutes: Annotated[StrictFloat, CommandOption(max=None)] = Field(
        15.0, ge=0.1, le=1440.0, description="About how long it may take."
    )
    seed: StrictInt = Field(0, ge=0, description="Seed of everything that is drawn.")


class FitRequest(Learning):
    """Request to adapt the model to a gallery's own photos, in a folder below `bundles`."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$", description="Name of the new bundle.")


def require(place: Place, request: FitRequest) -> None:
    """Refuse what cannot work before it waits in the queue."""
    import numpy as np

    from vicinal.indexer.jobs.index_job import gallery_items
    from vicinal.service.fitting.labelled_images import hold_out
    from vicinal.service.training import require_train_extra

    require_train_extra("adapting the model")
    if _output(place, request).exists():
        raise RequestError(f"there is a bundle '{request.name}' already: choose another name")
    from vicinal.service.training import LabelledImages

    labelled = [
        (item.path, str(item.label))
        for item in gallery_items(place.gallery)
        if item.label is not None and isinstance(item.path, Path)
    ]
    labels = np.array([label for _, label in labelled], dtype=object)
    hold_out(LabelledImages(tuple(path for path, _ in labelled), labels), request.seed)


def run(place: Place, request: FitRequest, progress: Progress) -> FitReport:
    """Train, export and measure, going on where an earlier attempt of the job was."""
    from vicinal.indexer.gallery import Gallery
    from vicinal.indexer.jobs.index_job import gallery_items
    from vicinal.indexer.storage.home import Mirror
    from vicinal.service.fitting.labelled_images import read_labelled_images

    began = time.monotonic()
    gallery = Gallery.open(place.gallery.path, engine=place.bundles.engine)
    before = place.bundles.resolve(gallery, gallery.snapshot().manifest).bundle
    photos = read_labelled_images(
        gallery_items(gallery), refuse=place.readable.refusal, on_progress=progress.of_files
    )
    output = _claimed(place, request)
    # An attempt that died before its plan was written has nothing to go on with.
    report = learn(photos, output, before, request, progress, start="go on", began=began)
    mirror = Mirror.of(output)
    if mirror is not None:
        # The other replicas search with it, too.
        mirror.bring(output)
    return report


def learn(
    photos: LabelledImages,
    output: Path,
    before: ModelBundle,
    request: Learning,
    progress: Progress,
    *,
    start: Literal["new", "resume", "overwrite", "go on"] = "new",
    recipe: Path | None = None,
    began: float | None = None,
    on_plan: Callable[[PhotosUsed], None] = lambda _: None,
) -> FitReport:
    """Adapt the model to photos; `go on` resumes an earlier run in the folder, where there is one.

    The minutes count from `began`, by `time.monotonic`; None is now.
    """
    from vicinal.service.fitting.labelled_images import hold_out
    from vicinal.service.training import require_train_extra

    require_train_extra("adapting the model")
    from vicinal.service.training import PLAN_FILE, Fitting

    if start == "go on":
        start = "resume" if (output / PLAN_FILE).is_file() else "new"
    fitting = Fitting(
        photos,
        hold_out(photos, request.seed),
        output,
        before,
        minutes=request.minutes,
        seed=request.seed,
        recipe=recipe,
        report=progress.of_files,
        began=began,
        on_plan=on_plan,
    )
    return fitting.run(start)


def _told(place: Place, made: FitReport) -> dict[str, Any]:
    from vicinal.service.fitting.report import next_commands, report_lines

    return {
        **made.model_dump(mode="json"),
        "helps": made.helps,
        "text": report_lines(made),
        "next": next_commands(made, None, place.gallery.name, place.settings.data_dir),
    }


def _clean(place: Place, job: Job) -> None:
    """Remove what an attempt has written, unless it came to its end."""
    output = _output(place, FitRequest.model_validate(job.request))
    if _began(output) == (job.id, job.gallery) and not (output / _REPORT).is_file():
        shutil.rmtree(output, ignore_errors=True)


OPERATION = Operation("fit", FitRequest, run, require=require, told=_told, clean=_clean)


def fitted_for(path: Path) -> str | None:
    """Gallery whose photos a job has fitted the bundle in a folder to; None where nothing tells."""
    began = _began(path)
    return None if began is None else began[1]


def _claimed(place: Place, request: FitRequest) -> Path:
    """The folder of the new bundle, which is this job's from now on."""
    from vicinal.indexer.storage.files import make_folder, write_atomically

    output, owner = _output(place, request), (place.id, place.gallery.name)
    if _began(output) == owner:
        return output
    aside = output.with_name(f".{place.id}")
    make_folder(aside)
    write_atomically(aside / _OWNER, json.dumps(owner))
    try:
        # One that holds anything stays, so that of two jobs one gets the name.
        aside.rename(output)
    except OSError as error:
        shutil.rmtree(aside, ignore_errors=True)
        raise RequestError(f"there is a bundle '{request.name}' already: choose another name") from error
    return output


def _output(place: Place, request: FitRequest) -> Path:
    return place.settings.fitted_path / request.name


def _began(path: Path) -> tuple[str, str] | None:
    """Job and gallery that a folder is of."""
    try:
        job, gallery = json.loads((path / _OWNER).read_bytes())
    except (OSError, ValueError):
        return None
    return str(job), str(gallery)
