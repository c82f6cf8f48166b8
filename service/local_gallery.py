"""Local gallery: index, search, change and calibrate a gallery on this machine from a program of your own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from vicinal.calibration import Target
from vicinal.calibration.arrays import AnyArray, FloatArray
from vicinal.indexer.jobs.changes import remove_items
from vicinal.indexer.jobs.retention import VersionSummary, describe_versions
from vicinal.indexer.jobs.set_aside import SetAside, bring_back, listed_aside, set_aside
from vicinal.indexer.jobs.source_addition import LiveAddition
from vicinal.indexer.jobs.sync.plan import IndexResult
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.sources import EmbeddingSource, SourceOptions
from vicinal.models.decoding import ImageSource
from vicinal.models.embedder import Embedder
from vicinal.models.progress import no_progress
from vicinal.service.answering.additions import A_LABEL, SearchAdditions, add_confirmed, remove_added
from vicinal.service.answering.review import GivenAnswerBody, SearchReview
from vicinal.service.checked_calls import (
    Given,
    Texts,
    checked_call,
    checked_options,
)
from vicinal.service.comparing.record import Comparison
from vicinal.service.comparing.store import put_in_force
from vicinal.service.errors import RequestError
from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.galleries.versions import activate_version
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.measuring.records.promise import PromiseCheck
from vicinal.service.measuring.records.record import CalibrationRecord
from vicinal.service.operations import Progress, add, answer, calibrate, check, compare, index
from vicinal.service.operations.place import Place
from vicinal.service.reports.report import say_promise
from vicinal.service.request_fields import ItemSource, SearchOptions
from vicinal.service.search.answers import Answer, Threshold
from vicinal.service.settings import Settings

Asked = TypeVar("Asked", bound=ItemSource)
Hears = Callable[[str, int, int], None]
Query = ImageSource | AnyArray | Sequence[float]


@checked_call
def open_gallery(
    name: str, *, data_dir: Path | str | None = None, bundle: Path | str | None = None, **settings: Any
) -> LocalGallery:
    """Open a gallery, or name one that is made with the first `index`.

    Args:
        name: Up to 64 lower-case letters, digits, `-` and `_`.
        data_dir: Folder that holds the galleries; as set (`VICINAL_DATA_DIR`, `vicinal.toml`) when None, or
            `~/.vicinal`.
        bundle: Directory of the model bundle; as set when None, or the one that ships with Vicinal.
        **settings: Any other of the `Settings`, in place of what is set.

    Raises:
        GalleryError: It is no name of a gallery.
        RequestError: A setting cannot be read.
    """
    given = {**settings, "data_dir": data_dir, "bundle": bundle}
    kept = {key: value for key, value in given.items() if value is not None}
    # Some of them are secrets.
    chosen = checked_options(Settings, kept, shows_values=False)
    if chosen.database is not None:
        from vicinal.service.database import open_database

        open_database(chosen)
    if chosen.has_home:
        from vicinal.service.galleries.home import open_home

        open_home(chosen)
    return LocalGallery(name, ServedBundles(chosen))


class LocalGallery:
    """Gallery on this machine; those that share bundles open each model once. `on_progress` of its methods is
    called with the stage, what is done and all there is.
    """

    def __init__(self, name: str, bundles: ServedBundles) -> None:
        self.bundles = bundles
        self.gallery = bundles.gallery(name, is_new=True)
        self._reader = GalleryReader(self.gallery)
        self._matcher: Matcher | None = None

    def __repr__(self) -> str:
        return f"<vicinal gallery '{self.name}' at {self.gallery.path}>"

    def __len__(self) -> int:
        return len(self._reader.view()) if self.exists else 0

    def items(self) -> tuple[list[dict[str, Any]], FloatArray]:
        """Its items as they are now, in order: a record each with `id`, `label`, `uri` and `metadata`, as
        pandas takes them, and their (n, d) float32 embeddings, normalized.
        """
        view = self._reader.view()
        return view.items(view.live), view.vectors(view.live).astype(np.float32)

    @property
    def name(self) -> str:
        """Its name."""
        return self.gallery.name

    @property
    def exists(self) -> bool:
        """Tell whether it was indexed."""
        return self.gallery.active_version is not None

    @property
    def matcher(self) -> Matcher:
        """Matcher of its present state, with every option of a search.

        Raises:
            GalleryNotFoundError: It was not indexed yet.
            BundleMismatchError: It was embedded with a bundle that is not here.
            GalleryError: It is damaged.
        """
        matcher = self._matcher = self.bundles.matcher(self.gallery, self._reader.view(), self._matcher)
        return matcher

    @property
    def embedder(self) -> Embedder:
        """Embedder of its images and queries."""
        return self.matcher.embedder

    @checked_call
    def search(self, query: Given[Query | None] = None, *, item: str | None = None, **options: Any) -> Answer:
        """Find the matches of one query, or learn that there is none.

        Args:
            query: A path, encoded bytes or a PIL image; or (d,) numbers, an embedding.
            item: Id of an item, in place of a query: it is searched for as if it were not in the gallery.
            **options: Those of `SearchOptions`: `limit`, `threshold`, `group_by`, `filter` and others.

        Raises:
            RequestError: There is neither a query nor an item, or both, or an option is out of range.
            ImageError: The image cannot be used.
            EmbeddingError: The embedding has the wrong length or holds no numbers.
            ItemNotFoundError: There is no such item.
        """
        kind = {"item_ids": None if item is None else [item], **({} if query is None else _kind_of([query]))}
        return self.matcher.search(asked=checked_options(SearchOptions, options), **kind)[0]

    @checked_call
    def search_many(self, queries: Given[Sequence[Query] | AnyArray], **options: Any) -> list[Answer]:
        """Answer several queries, images or (n, d) embeddings, embedded together, as `search` does."""
        return self.matcher.search(asked=checked_options(SearchOptions, options), **_kind_of(queries))

    @checked_call
    def index(
        self,
        source: Given[Path | str | EmbeddingSource | None] = None,
        *,
        on_progress: Hears = no_progress,
        **options: Any,
    ) -> IndexResult:
        """Take what is new or changed in a source over into the gallery, as `vicinal index` does.

        Args:
            source: Folder of images, manifest, or ready embeddings: a file, or an `EmbeddingSource`. What
                the gallery holds when None.
            **options: As for `operations.index.IndexRequest`: `bundle` (name of one in `bundles_dir`),
                `space` (`NAME` or `NAME@VERSION` of what made the embeddings; needed first), `delete`,
                `restore`, `activate`, `index`, `max_failures`, `workers`, what becomes of items whose ids are
                taken, and how the source is read: `prefix`, `include_hidden` and others.

        Raises:
            SourceError: The source cannot be used.
            ItemExistsError: Ids belong to other images, and nothing says what becomes of them.
            BuildError: Too many failures, or none could be used.
            SpaceMismatchError: The gallery holds embeddings of another space, or images.
            GalleryBusyError: Another process indexes the same source.
            RequestError: Nothing names the space of the embeddings; or a space or a bundle plays no part.
        """
        place, request = self._of_source(index.IndexRequest, source, options)
        return index.run(place, request, _heard(on_progress))

    @checked_call
    def add(
        self,
        source: Given[Path | str | EmbeddingSource],
        *,
        on_progress: Hears = no_progress,
        **options: Any,
    ) -> LiveAddition:
        """Add items while the gallery is searched, as `vicinal gallery add` does; they are found at once.

        Args:
            source: Image, folder of images, manifest, or ready embeddings: a file, or an `EmbeddingSource`.
            **options: As for `operations.add.AddRequest`: `label` (of all of them), `space` (what made the
                embeddings; the gallery's own by default), what becomes of items whose ids are taken, and how
                the source is read.

        Raises:
            GalleryNotFoundError: The gallery was not indexed yet.
            SourceError: The source cannot be used.
            ItemExistsError: Ids belong to others, and nothing says what becomes of them: nothing was added.
            SpaceMismatchError: The gallery holds embeddings of another space, or images.
            GalleryBusyError: Another job keeps writing.
        """
        place, request = self._of_source(add.AddRequest, source, options)
        return add.run(place, request, _heard(on_progress))

    @checked_call
    def remove(self, ids: Texts) -> int:
        """Remove items while the gallery is searched, all of them or none, and give their number. `index`
        leaves them out from then on, unless with `restore`; `add` brings them back.
        """
        return remove_items(self._reader, ids).n_removed

    @checked_call
    def calibrate(
        self,
        target: Given[str] = "fpir=5%",
        *,
        queries: Path | str | None = None,
        activate: bool | None = True,
        on_progress: Hears = no_progress,
        **options: Any,
    ) -> CalibrationRecord:
        """Find the threshold that holds a target on this gallery, and use it from the next search on.

        Args:
            target: `fpir=5%`, `fnir=20%`, `far=0.001`, `frr=10%`, `precision=95%` or `utility=mean`.
            queries: Labelled queries, of any source that `index` takes; every labelled item is left out once
                when None.
            activate: Use the threshold; False only keeps it, None does where it promises less.
            **options: As for `operations.calibrate.CalibrateRequest`: `group_by`, `steps` and others.

        Raises:
            CalibrationError: No threshold can be found: too few labels or queries, or the target is beyond
                reach.
            SourceError: The queries cannot be used.
        """
        Target.parse(target)
        given = {"target": target, "queries": queries and str(queries), "activate": activate, **options}
        request = checked_options(calibrate.CalibrateRequest, given)
        return calibrate.run(self._place, request, _heard(on_progress)).record

    @checked_call
    def check(self, queries: Path | str, *, on_progress: Hears = no_progress, **options: Any) -> PromiseCheck:
        """Try what the threshold in force promised with new labelled queries; nothing is changed.

        Args:
            queries: Of any source that `index` takes; also of things that the gallery does not have.
            **options: As for `operations.check.CheckRequest`: `calibration`, `label_column` and others.

        Raises:
            CalibrationError: The calibration promised nothing, or no query can be used.
            RequestError: No calibration is in force.
            SourceError: The queries cannot be used.
        """
        request = checked_options(check.CheckRequest, {"queries": str(queries), **options})
        return check.run(self._place, request, _heard(on_progress))

    @checked_call
    def answer(self, search_id: str, **said: Any) -> GivenAnswerBody:
        """Say what a kept search shows; what the same user said of it before is replaced.

        Args:
            search_id: That of the search, as its answer says.
            **said: One of `item_id` or `label` (this is it), `absent=True`, `unsure=True`, and `wrong` (the
                id of one match that is not it).

        Raises:
            SearchNotFoundError: It was not kept, or has gone.
            ItemNotFoundError: There is no such item.
            RequestError: No item has the label, or not exactly one thing was said.
        """
        request = checked_options(answer.AnswerRequest, {"search_id": search_id, **said})
        return answer.run(self._place, request, by=answer.user_name())

    @property
    def review(self) -> SearchReview:
        """Review of its kept searches: what to ask about `next`, what is `known`, and what to `take_back`.

        Raises:
            GalleryNotFoundError: It was not indexed yet.
        """
        return SearchReview(self.matcher)

    @checked_call
    def add_searches(self, search_ids: Texts | None = None, *, a_label: int = A_LABEL) -> SearchAdditions:
        """Make kept searches items of which persons agree what they show.

        Args:
            search_ids: These alone; where None the most useful ones, at most `a_label` of a label.

        Raises:
            SearchNotFoundError: One of them was not kept, or has gone.
            RequestError: Nobody says what one of them shows, or persons disagree.
        """
        return add_confirmed(self._reader, self.embedder, a_label=a_label, only=search_ids)

    @checked_call
    def remove_added(self, search_id: str) -> str:
        """Remove the item that a search became; the item's id."""
        return remove_added(self._reader, search_id)

    @checked_call
    def set_aside(self, ids: Texts, reason: str) -> int:
        """Set items aside, all of them or none, and give their number: no search and no calibration finds
        them until `bring_back`, and their source does not bring them back.
        """
        return set_aside(self._reader, ids, reason=reason, by=answer.user_name()).n_removed

    @checked_call
    def bring_back(self, item_id: str) -> None:
        """Bring an item back that was set aside, as it was.

        Raises:
            NotSetAsideError: It is not set aside.
            ItemExistsError: Another item has its id by now.
        """
        bring_back(self._reader, item_id)

    @property
    def aside(self) -> list[SetAside]:
        """Items that are set aside, in the order in which they were."""
        return listed_aside(self._reader)

    @property
    def _place(self) -> Place:
        return Place(self.bundles, self.gallery, find_matcher=lambda: self.matcher, known_reader=self._reader)

    @checked_call
    def compare(self, *versions: int, on_progress: Hears = no_progress, **request: Any) -> Comparison:
        """Try versions side by side on the same queries, each with its own threshold, and recommend one.

        Args:
            versions: Versions to compare with the active one.
            **request: As for `operations.compare.CompareRequest`: `target`, `queries` and others.

        Raises:
            RequestError: There is nothing to compare with.
            VersionNotFoundError: There is no such version.
        """
        if request.get("target") is not None:
            Target.parse(request["target"])
        wanted = checked_options(compare.CompareRequest, {"versions": versions, **request})
        return compare.run(self._place, wanted, _heard(on_progress))

    @checked_call
    def use(self, comparison: Comparison, variant: int | None = None) -> None:
        """Search with a variant, the recommended one when None, and its threshold from now on."""
        put_in_force(self.gallery, self.bundles, comparison, variant)

    @property
    def threshold(self) -> Threshold:
        """Threshold that decides a search without further options, and whether it still holds."""
        return self.matcher.threshold()

    @property
    def promise(self) -> tuple[str, ...]:
        """Sentences on what to expect of that threshold: first how many matches are right, how many things
        are found and how many strangers get a match, or what a check found broken.
        """
        return say_promise(self.matcher)

    @property
    def versions(self) -> list[VersionSummary]:
        """Its versions, newest first."""
        return describe_versions(self.gallery)

    @checked_call
    def activate(self, version: int, *, as_built: bool = False) -> None:
        """Search another version from the next request on.

        Args:
            as_built: Leave out the live changes that were made while it was active before.

        Raises:
            VersionNotFoundError: There is no such version.
            BundleMismatchError: Its bundle is not here.
        """
        activate_version(self.gallery, version, as_built=as_built, bundles=self.bundles)

    def delete(self) -> None:
        """Remove the gallery with all its versions and calibrations, unless another job is writing."""
        self.gallery.delete()
        self._reader, self._matcher = GalleryReader(self.gallery), None

    def _of_source(
        self, model: type[Asked], source: Path | str | EmbeddingSource | None, options: Mapping[str, Any]
    ) -> tuple[Place, Asked]:
        """A place and a request about a source; one that is open already goes with the place."""
        place, known = self._place, {one.name for one in fields(SourceOptions)}
        if isinstance(source, EmbeddingSource):
            if said := [name for name in options if name in known]:
                raise RequestError(
                    f"{', '.join(said)}: these embeddings are open already; such options are given to "
                    "EmbeddingSource.open"
                )
            place.embeddings, source = source, None
        if not isinstance(source, Path | str | None):
            raise RequestError(
                f"a source is a path, an address or an EmbeddingSource, not {type(source).__name__}: arrays "
                "become one by EmbeddingSource.of_arrays"
            )
        named = {} if source is None else {"source": str(source)}
        return place, checked_options(model, {**options, **named})


def _heard(on_progress: Hears) -> Progress:
    return Progress(lambda stage, done, total, _note="", /: on_progress(stage, done, total))


def _kind_of(queries: Sequence[Query] | AnyArray) -> dict[str, Any]:
    """Queries by what they are; a text is a path."""
    if not isinstance(queries, Sequence | np.ndarray) or isinstance(queries, str | bytes):
        raise RequestError(
            f"queries are a list of images or an array of embeddings, not {type(queries).__name__}: `search` "
            "takes one query"
        )
    n_images = sum(isinstance(one, ImageSource) for one in queries)
    if n_images == len(queries):
        return {"images": list(queries)}
    if n_images:
        raise RequestError(
            f"{n_images:,} of {len(queries):,} queries are images, the others are not: search for images and "
            "embeddings apart from each other"
        )
    return {"embeddings": queries}
