"""Fit job: a bundle that is adapted to the labelled photos of a gallery."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, StrictFloat, StrictInt

from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.index_job import gallery_items
from vicinal.indexer.storage.files import make_folder, write_atomically
from vicinal.service.errors import RequestError
from vicinal.service.fitting.photos import hold_out, read_photos
from vicinal.service.fitting.report import next_commands, report_lines
from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.jobs.context import JobContext
from vicinal.service.jobs.records import Job, JobProgress
from vicinal.service.tasks.readable_sources import JobSources
from vicinal.service.training import require_train_extra

FIT = "fit"
_REPORT = "fit.json"
_OWNER = "fitted-for.json"


class FitRequest(BaseModel):
    """How to adapt the model to a gallery's labelled photos.

    Attributes:
        name: Name of the new bundle, a folder below `bundles` in the data folder.
        minutes: About how long it may take.
        seed: Seed of everything that is drawn.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$", description="Name of the new bundle.")
    minutes: StrictFloat = Field(15.0, ge=0.1, le=1440.0, description="About how long it may take.")
    seed: StrictInt = Field(0, ge=0, description="Seed of everything that is drawn.")


class FitJob:
    """Adapts the model to galleries.

    Args:
        bundles: Bundles of the process, with the settings that say where galleries and sources are.
    """

    def __init__(self, bundles: ServedBundles) -> None:
        self.bundles = bundles
        self.settings = bundles.settings
        self.sources = JobSources(bundles.settings.sources_dir)

    def check(self, gallery: str, request: FitRequest) -> None:
        """Refuse what cannot work before it waits in the queue."""
        opened = Gallery.open(self.settings.gallery_path(gallery))
        require_train_extra("adapting the model")
        if self._output(request).exists():
            raise RequestError(f"there is a bundle '{request.name}' already: choose another name")
        labelled = [
            (item.path, str(item.label))
            for item in gallery_items(opened)
            if item.label is not None and isinstance(item.path, Path)
        ]
        from vicinal.service.training import LabelledPhotos

        labels = np.array([label for _, label in labelled], dtype=object)
        hold_out(LabelledPhotos(tuple(path for path, _ in labelled), labels), request.seed)

    def run(self, context: JobContext) -> dict[str, Any]:
        """Train, export and measure, going on where an earlier attempt was."""
        from vicinal.service.training import PLAN_FILE, Fitting

        request = FitRequest.model_validate(context.request)
        gallery = Gallery.open(self.settings.gallery_path(context.job.gallery))
        before = self.bundles.resolve(gallery, gallery.snapshot().manifest).bundle

        def report(stage: str, done: int, total: int, _note: str = "", /) -> None:
            context.report(
                JobProgress(stage=stage, stage_done=done, stage_total=total, done=done, total=total)
            )

        refuse = self.sources.within(context.job.folders).refusal
        photos = read_photos(gallery_items(gallery), refuse=refuse, on_progress=report)
        output = self._claimed(context.job, request)
        split = hold_out(photos, request.seed)
        fitting = Fitting(
            photos, split, output, before, minutes=request.minutes, seed=request.seed, report=report
        )
        # An attempt that died before its plan was written has nothing to go on with.
        made = fitting.run("resume" if (output / PLAN_FILE).is_file() else "new")
        return {
            **made.model_dump(mode="json"),
            "helps": made.helps,
            "text": report_lines(made),
            "next": next_commands(made, None, gallery.name, self.settings.data_dir),
        }

    def clean(self, job: Job) -> None:
        """Remove what an attempt has written, unless it came to its end."""
        output = self._output(FitRequest.model_validate(job.request))
        if _began(output) == (job.id, job.gallery) and not (output / _REPORT).is_file():
            shutil.rmtree(output, ignore_errors=True)

    def _claimed(self, job: Job, request: FitRequest) -> Path:
        """The folder of the new bundle, which is this job's from now on."""
        output = self._output(request)
        if _began(output) == (job.id, job.gallery):
            return output
        aside = output.with_name(f".{job.id}")
        make_folder(aside)
        write_atomically(aside / _OWNER, json.dumps([job.id, job.gallery]))
        try:
            # One that holds anything stays, so that of two jobs one gets the name.
            aside.rename(output)
        except OSError as error:
            shutil.rmtree(aside, ignore_errors=True)
            raise RequestError(f"there is a bundle '{request.name}' already: choose another name") from error
        return output

    def _output(self, request: FitRequest) -> Path:
        return self.settings.fitted_path / request.name


def fitted_for(path: Path) -> str | None:
    """Gallery whose photos a job has fitted the bundle in a folder to; None where nothing tells."""
    began = _began(path)
    return None if began is None else began[1]


def _began(path: Path) -> tuple[str, str] | None:
    """Job and gallery that a folder is of."""
    try:
        job, gallery = json.loads((path / _OWNER).read_bytes())
    except (OSError, ValueError):
        return None
    return str(job), str(gallery)
