"""Bulk uploads: a folder or any number of images or embeddings, in requests of bounded size."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from math import isfinite
from pathlib import Path
from typing import Any, Literal, TypeAlias

from vicinal_client.errors import (
    PROBLEM_PREFIX,
    AccessError,
    NoAnswerError,
    NotFoundError,
    ProblemError,
    ServerError,
    TooManyRequestsError,
    UnreadableAnswerError,
    UploadStoppedError,
)
from vicinal_client.models import Addition, Limits, Readiness
from vicinal_client.requests import NewEmbedding, NewItem, vector_of
from vicinal_client.retries import Steps, Together

__all__ = [
    "LabelFrom",
    "Source",
    "UploadFailure",
    "UploadProgress",
    "UploadResult",
    "UploadSource",
    "embeddings_source",
    "images_source",
    "upload",
]

_Path: TypeAlias = str | os.PathLike[str]
Source: TypeAlias = _Path | Iterable[_Path | tuple[str, _Path] | tuple[str, _Path, str | None] | NewItem]
LabelFrom: TypeAlias = Literal["folder"] | Callable[[Path], str | None] | None

# All that a server may read: what it does not is listed as refused.
_SUFFIXES = frozenset(
    ".jpg .jpeg .jpe .jfif .mpo .png .apng .webp .gif .bmp .tif .tiff .heic .heif .hif .avif".split()  # noqa: SIM905
)
# Bins, thumbnails and snapshots of systems and network storage; and all that begins with a dot.
_HIDDEN = frozenset(
    "$recycle.bin|recycler|recycled|system volume information|found.000|__macosx|network trash folder|"  # noqa: SIM905
    "temporary items|lost+found|@eadir|@tmp|@sharebin|#recycle|#snapshot|@recycle|@recently-snapshot|"
    "~snapshot|trashbox|files_trashbin|files_versions|thumbs.db|ehthumbs.db|ehthumbs_vista.db|"
    "desktop.ini|icon\r".split("|")
)
# What a request adds to each item besides its id, label and metadata, and what a number takes, generously.
_FORM_BYTES = 1024
_NUMBER_BYTES = 25
_MOST_IMAGES = 32

_New: TypeAlias = NewItem | NewEmbedding
_Add: TypeAlias = Callable[[Sequence[Any]], Steps[Addition]]


@dataclass(frozen=True)
class UploadFailure:
    """An image or embedding that is not in the gallery, and why.

    Attributes:
        id: The id that it would have got; None where it was to be a digest of its file.
        path: Its file; None where it came otherwise.
        kind: Name of the problem, such as `not-an-image` or `item-exists`; `unreadable-file` or
            `unreadable-folder` where nothing was sent.
        reason: One sentence.
    """

    id: str | None
    path: Path | None
    kind: str
    reason: str


@dataclass
class UploadResult:
    """Outcome of a bulk upload of images or embeddings.

    Attributes:
        n_added: Items that were written, those that replaced another one included.
        n_replaced: Those among them.
        n_unchanged: Items that were there already under their id; also those whose first answer was lost.
        n_skipped: Items whose id belongs to another one, with `on_conflict="skip"`.
        failures: Items that are not there, in no fixed order.
        n_hidden: Hidden folders and files below the source that were passed over.
    """

    n_added: int = 0
    n_replaced: int = 0
    n_unchanged: int = 0
    n_skipped: int = 0
    failures: list[UploadFailure] = field(default_factory=list)
    n_hidden: int = 0

    @property
    def n_done(self) -> int:
        """All images so far, the failed ones included."""
        return self.n_added + self.n_unchanged + self.n_skipped + len(self.failures)


@dataclass(frozen=True)
class UploadProgress:
    """Progress of a bulk upload.

    Attributes:
        n_done: Items that are done, the failed ones included.
        n_failed: The failed ones.
        total: All items; None where the source is an iterable that does not tell.
    """

    n_done: int
    n_failed: int
    total: int | None


@dataclass(frozen=True)
class _Loaded:
    """A part that is sent, the file that it is from, and its bytes in a request."""

    item: _New
    path: Path | None
    size: int

    @classmethod
    def of(cls, item: _New, n_bytes: int, path: Path | None = None) -> _Loaded:
        words = f"{item.id}{item.label}{item.metadata}{item.name if isinstance(item, NewItem) else item.uri}"
        return cls(item, path, n_bytes + 2 * len(words.encode()) + _FORM_BYTES)

    def failure(self, kind: str, reason: str) -> UploadFailure:
        return UploadFailure(self.item.id, self.path, kind.removeprefix(PROBLEM_PREFIX), reason)


@dataclass(frozen=True)
class UploadSource:
    """Material of an upload.

    Attributes:
        items: The items, in order.
        total: How many there are; None where that is not known.
        load: Makes an item ready to be sent, or says why it cannot be.
        most: Most of them in one request.
        n_hidden: Hidden folders and files that are not among them.
    """

    items: Iterable[Any]
    total: int | None
    load: Callable[[Any, Limits], _Loaded | UploadFailure]
    most: Callable[[Limits], int]
    n_hidden: int = 0


@dataclass
class _Batch:
    """Items of one request, and what is not worth sending."""

    loaded: list[_Loaded] = field(default_factory=list)
    failures: list[UploadFailure] = field(default_factory=list)
    ids: set[str | None] = field(default_factory=set)
    size: int = 0

    def __len__(self) -> int:
        return len(self.loaded) + len(self.failures)

    def has_room_for(self, one: _Loaded, most_bytes: int) -> bool:
        # One id twice in a request would be one item, and the earlier one be lost without a word. The
        # items of a request have all an id, or none.
        own = one.item.id
        fits = self.ids <= {None} if own is None else not self.ids & {own, None}
        return not self.loaded or (fits and self.size + one.size <= most_bytes)

    def take(self, one: _Loaded | UploadFailure) -> None:
        if isinstance(one, UploadFailure):
            self.failures.append(one)
        else:
            self.loaded.append(one)
            self.ids.add(one.item.id)
            self.size += one.size


_Outcome: TypeAlias = tuple[list[Addition], list[UploadFailure]]


def upload(
    add: _Add,
    ask_readiness: Steps[Readiness],
    source: UploadSource,
    *,
    concurrency: int,
    batch_bytes: int,
    on_progress: Callable[[UploadProgress], object] | None,
) -> Steps[UploadResult]:
    """Steps of a bulk upload; see `Client.add_images`.

    Args:
        add: Steps that add some items.
        ask_readiness: Steps that ask for the server's limits.
        source: Material of an upload.
        concurrency: Requests under way at once.
        batch_bytes: Size of a request.
        on_progress: Called after each request.

    Raises:
        UploadStoppedError: Nothing more can be added.
        ValueError: No request may be under way.
    """
    if concurrency < 1:
        raise ValueError(f"concurrency is {concurrency}, expected at least 1")
    limits = yield from _limits(ask_readiness)
    result = UploadResult(n_hidden=source.n_hidden)

    def note(outcome: _Outcome) -> None:
        _count(result, *outcome)
        if on_progress is not None:
            on_progress(UploadProgress(result.n_done, len(result.failures), source.total))

    batches = _batches(source, limits, min(batch_bytes, limits.max_request_bytes))
    try:
        yield Together((_request(add, batch) for batch in batches), concurrency, note)
    except (NoAnswerError, UnreadableAnswerError, ProblemError) as error:
        raise UploadStoppedError(result, error) from error
    return result


def _limits(ask_readiness: Steps[Readiness]) -> Steps[Limits]:
    try:
        return (yield from ask_readiness).limits
    except (ProblemError, UnreadableAnswerError):
        # A proxy may keep it to itself. The usual limits are as good a guess as any.
        return Limits()


def _request(add: _Add, batch: _Batch) -> Steps[_Outcome]:
    done, failures = (yield from _upload(add, batch.loaded)) if batch.loaded else ([], [])
    return done, batch.failures + failures


def _upload(add: _Add, loaded: list[_Loaded]) -> Steps[_Outcome]:
    """Add items; where they are refused as a whole, their halves, down to the one that is at fault."""
    try:
        done = yield from add([one.item for one in loaded])
    except ProblemError as error:
        if _is_everyones(error):
            raise
        if error.kind == "nothing-added":
            return [], [loaded[one["place"]].failure(one["type"], one["reason"]) for one in error.errors]
        if len(loaded) == 1:
            return [], [loaded[0].failure(error.kind, error.detail)]
    else:
        return [done], [loaded[one.place].failure(one.type, one.reason) for one in done.refused]
    middle = len(loaded) // 2
    first, failures = yield from _upload(add, loaded[:middle])
    second, others = yield from _upload(add, loaded[middle:])
    return first + second, failures + others


def _is_everyones(error: ProblemError) -> bool:
    """Say whether no other item could be added either."""
    if not error.kind:
        # A proxy takes requests of another size than the server.
        return error.status != 413
    # An unexpected error (500) may be due to one file.
    is_of_server = isinstance(error, ServerError) and error.status != 500
    is_of_gallery = error.kind in ("bundle-mismatch", "space-mismatch")
    of_all = AccessError | NotFoundError | TooManyRequestsError
    return is_of_server or is_of_gallery or isinstance(error, of_all)


def _count(result: UploadResult, additions: list[Addition], failures: list[UploadFailure]) -> None:
    for done in additions:
        result.n_added += len(done.added)
        result.n_replaced += sum(one.replaced for one in done.added)
        result.n_unchanged += len(done.unchanged)
        result.n_skipped += len(done.skipped)
    result.failures += failures


def _batches(source: UploadSource, limits: Limits, most_bytes: int) -> Iterator[_Batch]:
    """Parts of a request each; a file is read when its request is made."""
    batch, most = _Batch(), source.most(limits)
    for item in source.items:
        one = source.load(item, limits)
        is_full = len(batch) >= most
        if is_full or (isinstance(one, _Loaded) and not batch.has_room_for(one, most_bytes)):
            yield batch
            batch = _Batch()
        batch.take(one)
    if len(batch):
        yield batch


def embeddings_source(items: Iterable[NewEmbedding]) -> UploadSource:
    """Ready embeddings."""
    total = len(items) if isinstance(items, Sequence) else None
    return UploadSource(items, total, _load_embedding, lambda limits: limits.max_embeddings)


def _load_embedding(item: NewEmbedding, _: Limits) -> _Loaded | UploadFailure:
    vector = vector_of(item.embedding)
    # JSON has no form for these, so that the server cannot say it.
    if not all(isfinite(value) for value in vector):
        return UploadFailure(item.id, None, "invalid-embedding", "it holds a number that is not finite")
    return _Loaded.of(replace(item, embedding=vector), _NUMBER_BYTES * len(vector))


def images_source(
    source: Source, label_from: LabelFrom, prefix: str | None, *, include_hidden: bool = False
) -> UploadSource:
    """A folder of images, or any number of them.

    Raises:
        ValueError: The source is no folder.
    """
    items, total, n_hidden = _images_of(source, label_from, prefix, include_hidden)
    return UploadSource(
        items, total, _load_image, lambda limits: min(limits.max_batch, _MOST_IMAGES), n_hidden
    )


def _load_image(item: NewItem | UploadFailure, limits: Limits) -> _Loaded | UploadFailure:
    if isinstance(item, UploadFailure):
        return item
    path = None if isinstance(item.image, bytes) else Path(item.image)
    try:
        f"{item.id}{item.label}{item.name}".encode()
        if path is None:
            return _Loaded.of(item, len(item.image))  # type: ignore[arg-type]
        size = path.stat().st_size
        if size > limits.max_image_bytes:
            reason = f"it has {size:,} bytes, at most {limits.max_image_bytes:,} are accepted"
            return UploadFailure(item.id, path, "image-too-large", reason)
        encoded = path.read_bytes()
    except UnicodeEncodeError:
        return UploadFailure(item.id, path, "invalid-request", "its name or label is not UTF-8")
    except OSError as error:
        return UploadFailure(item.id, path, "unreadable-file", error.strerror or str(error))
    return _Loaded.of(replace(item, image=encoded, filename=item.name), len(encoded), path)


def _images_of(
    source: Source, label_from: LabelFrom, prefix: str | None, include_hidden: bool
) -> tuple[Iterable[NewItem | UploadFailure], int | None, int]:
    if isinstance(source, str | os.PathLike):
        root = Path(source)
        if not root.is_dir():
            raise ValueError(f"there is no folder '{root}': give a folder, or an iterable of paths")
        paths, unread, n_hidden = _files_below(root, include_hidden)
        before = root.resolve().name if prefix is None else prefix
        images = (_in_folder(path, root, label_from, before) for path in paths)
        return chain(unread, images), len(unread) + len(paths), n_hidden
    total = len(source) if isinstance(source, Sequence) else None
    return (_item_of(one, label_from) for one in source), total, 0


def _files_below(root: Path, include_hidden: bool) -> tuple[list[Path], list[UploadFailure], int]:
    """Images of a folder and all below it, the folders that cannot be read, and how many are hidden."""
    errors: list[OSError] = []
    paths, n_hidden = [], 0
    for folder, inner, names in os.walk(root, onerror=errors.append):
        if not include_hidden:
            n_hidden += sum(map(_is_hidden, [*inner, *names]))
            inner[:] = [name for name in inner if not _is_hidden(name)]
        paths += [Path(folder, name) for name in names if include_hidden or not _is_hidden(name)]
    unread = [
        UploadFailure(None, Path(one.filename), "unreadable-folder", one.strerror or str(one))
        for one in errors
    ]
    return sorted(one for one in paths if one.suffix.lower() in _SUFFIXES), unread, n_hidden


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name.lower() in _HIDDEN


def _in_folder(path: Path, root: Path, label_from: LabelFrom, prefix: str) -> NewItem:
    inside = path.relative_to(root)
    label = inside.parts[0] if label_from == "folder" and len(inside.parts) > 1 else None
    if callable(label_from):
        label = label_from(path)
    name = inside.as_posix()
    return NewItem(path, f"{prefix}/{name}" if prefix else name, label, filename=name)


def _item_of(one: Any, label_from: LabelFrom) -> NewItem:
    if isinstance(one, NewItem):
        return one
    item_id, path, *rest = one if isinstance(one, tuple) else (Path(one).as_posix(), one)
    label = rest[0] if rest else label_from(Path(path)) if callable(label_from) else None
    if label is None and not rest and label_from == "folder":
        # A path in a list is inside no folder of classes but its own.
        label = Path(path).parent.name or None
    return NewItem(path, item_id, label, filename=Path(path).name)
