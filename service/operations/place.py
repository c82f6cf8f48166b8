"""Place: where an operation runs, the same for a command, a job, a route and a program of one's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Protocol

from vicinal.calibration import UnlabelledGalleryError
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.sources import ANYWHERE, EmbeddingSource, ImageFile, SourceOptions, place_of, refuse_none
from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.measuring.queries import QueryReading, read_queries, require_labels
from vicinal.service.measuring.records.record import new_calibration_id
from vicinal.service.operations.progress import Progress
from vicinal.service.request_fields import QuerySource
from vicinal.service.settings import Settings

_FILES_OF_QUERIES = (".npz", ".npy", ".tar")


class Readable(Protocol):
    """What of the machine and of the web may be read, by whoever asked."""

    def check(self, name: str, *, also: tuple[str, ...] = (), takes_hub: bool = False) -> None:
        """Refuse what is no source."""

    def place(self, name: str) -> Path | str:
        """A source by its name."""

    def options(self, name: str, options: SourceOptions) -> SourceOptions:
        """How a source is read."""

    def refusal(self, path: ImageFile) -> str | None:
        """Why a file must not be read; None where it may."""


class Anything:
    """All that the machine's owner may read: what commands and programs of one's own name."""

    def check(self, name: str, *, also: tuple[str, ...] = (), takes_hub: bool = False) -> None:
        """See `Readable`; opening it says what is wrong."""

    def place(self, name: str) -> Path | str:
        """See `Readable`."""
        return place_of(name)

    def options(self, name: str, options: SourceOptions) -> SourceOptions:
        """See `Readable`."""
        del name
        return replace(options, access=ANYWHERE)

    def refusal(self, path: ImageFile) -> str | None:
        """See `Readable`."""
        del path
        return None


@dataclass
class Place:
    """A gallery, with all that an operation on it needs.

    Attributes:
        bundles: Bundles of the process, with the settings.
        gallery: The gallery, which need not be there yet.
        readable: What may be read.
        id: Id of the record that the operation makes. A job gives its own, so that an attempt after the death
            of its worker finds what the one before has kept.
        is_job: Whether another attempt may come after this one.
        find_matcher: Finds the matcher, where the process has one open.
        known_reader: Reader of the gallery, where the process has one open.
        on_change: Called with the name of a gallery that is searched otherwise from now on.
        embeddings: Ready embeddings to index or add that a program holds, in place of a source.
        sent: File of the labelled queries that came with the request.
        sent_labels: Their labels, while the request is looked at.
    """

    bundles: ServedBundles
    gallery: Gallery
    readable: Readable = field(default_factory=Anything)
    id: str = field(default_factory=new_calibration_id)
    is_job: bool = False
    find_matcher: Callable[[], Matcher] | None = None
    known_reader: GalleryReader | None = None
    on_change: Callable[[str], None] = lambda _: None
    embeddings: EmbeddingSource | None = None
    sent: Path | None = None
    sent_labels: Sequence[str] | None = None

    @property
    def settings(self) -> Settings:
        """The settings."""
        return self.bundles.settings

    @cached_property
    def reader(self) -> GalleryReader:
        """Reader of the gallery, which live changes are made with."""
        return self.known_reader or GalleryReader(self.gallery)

    @cached_property
    def matcher(self) -> Matcher:
        """What searches the gallery as it is, with the bundle that it was embedded with."""
        return (
            self.find_matcher()
            if self.find_matcher
            else self.bundles.matcher(Gallery.open(self.gallery.path))
        )

    def require_queries(self, request: QuerySource) -> None:
        """Refuse labelled queries that nothing could be measured with, before they are read."""
        name, matcher = f"gallery '{self.gallery.name}'", self.matcher
        labels = None if request.queries is not None else self.sent_labels or ()
        try:
            require_labels(matcher.snapshot.labels, labels, name=name)
        except UnlabelledGalleryError as error:
            if not matcher.view.n_labels:
                raise
            raise UnlabelledGalleryError(
                f"{name} has labels in its {matcher.view.n_changes:,} live changes only: compact it first, "
                "so that a version holds them"
            ) from error
        if request.queries is not None:
            self.readable.check(request.queries, also=_FILES_OF_QUERIES, takes_hub=True)

    def read_queries(
        self, request: QuerySource, progress: Progress, *, visits_by: str | None = None
    ) -> QueryReading | None:
        """The labelled queries of a request; None where there are none."""
        if self.sent is None and request.queries is None:
            return None

        def show(stage: str, done: int, total: int, _note: str = "", /) -> None:
            progress.total, progress.done = total, done - len(progress.failures)
            progress(stage, done, total)

        name = request.queries or ""
        # What was sent lies in a file of our own, and names no others.
        return read_queries(
            self.sent or self.readable.place(name),
            self.matcher.embedder,
            visits_by=visits_by,
            refuse=refuse_none if self.sent else self.readable.refusal,
            on_progress=show,
            failures=progress.failures,
            options=None if self.sent else self.readable.options(name, request.source_options),
        )
