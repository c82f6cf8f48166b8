"""Progress of an operation, whoever hears of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from vicinal.indexer.jobs.embedding_run import Failure
    from vicinal.indexer.sources import EmbeddingSource, Source
    from vicinal.models.progress import OnProgress


class Progress:
    """Takes how far an operation is, as a function of the stage, what of it is done, and all there is.

    Args:
        on_progress: Who hears of it.
        on_source: Called with a source of items that is open, before its items are read.

    Attributes:
        total: Files or rows that the operation reads.
        done: Those that it has used.
        skipped: Those that an earlier attempt had finished.
        failures: Those that cannot be used.
    """

    def __init__(
        self,
        on_progress: OnProgress | None = None,
        on_source: Callable[[Source | EmbeddingSource], None] | None = None,
    ) -> None:
        self._on_progress = on_progress
        self._on_source = on_source
        self.total = self.done = self.skipped = 0
        self.failures: list[Failure] = []

    def __call__(self, stage: str, done: int, total: int, _note: str = "", /) -> None:
        """Tell of a stage.

        Raises:
            JobStoppedError: The job must stop here.
        """
        if self._on_progress is not None:
            self._on_progress(stage, done, total)

    def opened(self, source: Source | EmbeddingSource) -> None:
        """Tell of a source that is open, for a look at it."""
        if self._on_source is not None:
            self._on_source(source)
