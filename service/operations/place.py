"""Operations as a command, a job, a route and a program of one's own run them: what to do, and where."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic import BaseModel

if TYPE_CHECKING:
    from pathlib import Path

    from vicinal.indexer.gallery import Gallery
    from vicinal.indexer.jobs.embedding_run import Failure
    from vicinal.indexer.reader import GalleryReader
    from vicinal.indexer.sources import EmbeddingSource, ImageFile, Source, SourceOptions
    from vicinal.models.progress import OnProgress
    from vicinal.service.galleries.bundles import ServedBundles
    from vicinal.service.jobs.records import Job
    from vicinal.service.measuring.matcher import Matcher
    from vicinal.service.measuring.queries import QueryReading
    from vicinal.service.request_fields import QuerySource
    from vicinal.service.settings import Settings

Asked = TypeVar("Asked", bound=BaseModel)
Made = TypeVar("Made")
FILES_OF_QUERIES = (".npz", ".npy", ".tar")


class Progress:
    """Takes how far an operation is, by stage, and counts files or rows."""

    def __init__(
        self,
        on_progress: OnProgress | None = None,
        on_source: Callable[[Source | EmbeddingSource], None] | None = None,
        on_plan: Callable[[str], None] | None = None,
    ) -> None:
        self._on_progress = on_progress
        self._on_source = on_source
        self._on_plan = on_plan
        self.total = self.done = self.skipped = 0
        self.failures: list[Failure] = []

    def __call__(self, stage: str, done: int, total: int, note: str = "", /) -> None:
        """Tell of a stage; a job that must stop does so here."""
        if self._on_progress is not None:
            self._on_progress(stage, done, total, note)

    def of_files(self, stage: str, done: int, total: int, note: str = "", /) -> None:
        """Tell of a stage that goes through all that is read."""
        self.total, self.done = total, done - len(self.failures)
        self(stage, done, total, note)

    def opened(self, source: Source | EmbeddingSource) -> None:
        """Tell of a source that is open, for a look at it."""
        if self._on_source is not None:
            self._on_source(source)

    def planned(self, plan: str) -> None:
        """Tell in words how much there is to do, and about how long it takes."""
        if self._on_plan is not None:
            self._on_plan(plan)


def _nothing(*_: Any) -> None:
    pass


def _fields_of(_: Any, made: Any) -> dict[str, Any]:
    return dict(made.model_dump(mode="json"))


@dataclass(frozen=True)
class Operation(Generic[Asked, Made]):
    """Operation, as the surfaces take it: `require` refuses before it waits, `keep` keeps a job's result,
    `told` says it. A job that `goes_on` is tried again; `clean` removes what it kept for that.
    """

    name: str
    request: type[Asked]
    run: Callable[[Place, Asked, Progress], Made]
    require: Callable[[Place, Asked], None] = _nothing
    keep: Callable[[Place, Made], None] | None = None
    told: Callable[[Place, Made], dict[str, Any]] = _fields_of
    clean: Callable[[Place, Job], None] = _nothing
    goes_on: bool = False


class Readable:
    """Sources that whoever asked may read: here, for the machine's owner, all."""

    def check(self, name: str, *, also: tuple[str, ...] = (), takes_hub: bool = False) -> None:
        """Refuse what is no source; here opening it says what is wrong."""

    def place(self, name: str) -> Path | str:
        """A source by its name."""
        from vicinal.indexer.sources import place_of

        return place_of(name)

    def options(self, name: str, options: SourceOptions) -> SourceOptions:
        """Options of reading a source."""
        from vicinal.indexer.sources import ANYWHERE

        del name
        return replace(options, access=ANYWHERE)

    def refusal(self, path: ImageFile) -> str | None:
        """Reason for which a file must not be read; None where it may."""
        del path
        return None


def _new_id() -> str:
    from vicinal.service.measuring.records.record import new_calibration_id

    return new_calibration_id()


@dataclass
class Place:
    """Gallery, which need not be there yet, with all that an operation needs. `id` is that of the record it
    makes, a job's own for another attempt.
    """

    bundles: ServedBundles
    gallery: Gallery
    readable: Readable = field(default_factory=Readable)
    id: str = field(default_factory=_new_id)
    is_job: bool = False
    find_matcher: Callable[[], Matcher] | None = None
    known_reader: GalleryReader | None = None
    embeddings: EmbeddingSource | None = None
    sent: Path | None = None
    sent_labels: Sequence[str] | None = None

    @property
    def settings(self) -> Settings:
        """The settings."""
        return self.bundles.settings

    @cached_property
    def reader(self) -> GalleryReader:
        """Reader of the gallery, which live changes are made with, and versions of them as it is served."""
        from vicinal.indexer.reader import GalleryReader

        return self.known_reader or GalleryReader(self.matcher.gallery)

    @cached_property
    def matcher(self) -> Matcher:
        """Matcher of the gallery as it is, with the bundle that it was embedded with."""
        from vicinal.indexer.gallery import Gallery

        if self.find_matcher is not None:
            return self.find_matcher()
        return self.bundles.matcher(Gallery.open(self.gallery.path, engine=self.bundles.engine))

    def settle(self) -> None:
        """Bring the built version up to date, which is measured on, where it holds what was set aside."""
        from vicinal.indexer.jobs.set_aside import without_set_aside

        if without_set_aside(self.reader):
            # Of the version before.
            self.__dict__.pop("matcher", None)

    def require_queries(self, request: QuerySource) -> None:
        """Refuse labelled queries that nothing could be measured with, before they are read."""
        from vicinal.calibration.errors import UnlabelledGalleryError
        from vicinal.service.measuring.queries import require_labels

        name, matcher = f"gallery '{self.gallery.name}'", self.matcher
        labels = None if request.queries is not None else self.sent_labels or ()
        try:
            has_photos = self.gallery.space is None
            require_labels(matcher.snapshot.labels, labels, name=name, has_photos=has_photos)
        except UnlabelledGalleryError as error:
            if not matcher.view.n_labels:
                raise
            raise UnlabelledGalleryError(
                f"{name} has labels in its {matcher.view.n_changes:,} live changes only: compact it first, "
                "so that a version holds them"
            ) from error
        if request.queries is not None:
            self.readable.check(request.queries, also=FILES_OF_QUERIES, takes_hub=True)

    def read_queries(
        self, request: QuerySource, progress: Progress, *, visit_column: str | None = None
    ) -> QueryReading | None:
        """The labelled queries of a request; None where there are none."""
        from vicinal.indexer.sources import refuse_none
        from vicinal.service.measuring.queries import read_queries

        if self.sent is None and request.queries is None:
            return None

        name = request.queries or ""
        # What was sent lies in a file of our own, and names no others.
        return read_queries(
            self.sent or self.readable.place(name),
            self.matcher.embedder,
            visit_column=visit_column,
            refuse=refuse_none if self.sent else self.readable.refusal,
            on_progress=progress.of_files,
            failures=progress.failures,
            options=None if self.sent else self.readable.options(name, request.source_options),
        )
