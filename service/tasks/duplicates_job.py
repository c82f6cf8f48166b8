"""Duplicates job: looks for the copies in a gallery, beside the searches; nothing is deleted."""

from __future__ import annotations

from typing import Any

from vicinal.indexer.gallery import Gallery
from vicinal.indexer.reader import GalleryReader
from vicinal.service.duplicates.finding import find_duplicates
from vicinal.service.duplicates.record import DuplicateOptions
from vicinal.service.duplicates.store import DuplicateStore
from vicinal.service.jobs.context import JobContext
from vicinal.service.jobs.records import Job
from vicinal.service.settings import Settings
from vicinal.service.tasks.query_uploads import QueryProgress

DUPLICATES = "duplicates"


class DuplicatesJob:
    """Finds duplicates; the record has the id of its job, and an unfinished attempt begins anew.

    Args:
        settings: Where galleries are.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def run(self, context: JobContext) -> dict[str, Any]:
        """Look for duplicates, and keep what was found."""
        options = DuplicateOptions.model_validate(context.request)
        gallery = Gallery.open(self.settings.gallery_path(context.job.gallery))
        progress = QueryProgress(context)
        view = GalleryReader(gallery).view()
        found = find_duplicates(gallery, view, options, context.job.id, on_progress=progress)
        # An attempt that was overtaken, or cancelled, is told so here and keeps nothing.
        progress("keep", 0, 1)
        DuplicateStore(gallery).keep(found)
        shown = found.summary.model_dump(mode="json", include={"n_exact", "n_near", "n_bytes", "sentence"})
        return {"duplicates": found.id, **shown}

    def clean(self, job: Job) -> None:
        """Nothing is kept between attempts."""
