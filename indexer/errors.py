"""Errors of the indexer package, all below `IndexerError`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Literal

from vicinal.calibration.advice import AdvisedError, advise

# Of many ids a message names these.
_NAMED_IDS = 3


def named_ids(item_ids: Sequence[str], n_all: int | None = None) -> str:
    """The first of some ids, and how many more there are."""
    n_more = (len(item_ids) if n_all is None else n_all) - _NAMED_IDS
    named = ", ".join(f"'{one}'" for one in item_ids[:_NAMED_IDS])
    return named + (f" and {n_more:,} more" if n_more > 0 else "")


class IndexerError(AdvisedError):
    """Root of the package's errors."""


class ItemRefusedError(IndexerError, ValueError):
    """An item's id cannot be read again, or its metadata are too deep, too large, or no JSON."""


class SourceError(IndexerError, ValueError):
    """A folder or manifest of images, or a file of embeddings, cannot be read."""


class DownloadError(IndexerError, OSError):
    """A file in a bucket cannot be read, or must not be."""


class IndexDeviceError(IndexerError, RuntimeError):
    """A GPU cannot be used for an index, does not hold one, or failed while it searched."""

    headers: ClassVar[dict[str, str]] = {"Retry-After": "1"}


class EngineError(IndexerError, RuntimeError):
    """An engine cannot be used: no address, a wrong password, an old version."""


class EngineAwayError(EngineError):
    """An engine does not answer, broke off or, where `is_slow`, took too long; that may pass."""

    headers: ClassVar[dict[str, str]] = {"Retry-After": "5"}

    def __init__(self, problem: str, *, is_slow: bool = False) -> None:
        super().__init__(problem)
        self.is_slow = is_slow


class EngineFullError(EngineAwayError):
    """An engine has no room for what is written to it; nothing of it stays, and searches go on."""


class EngineTableError(EngineError):
    """A table of an engine is gone, damaged or not what was built, and is made again; others are searched."""

    headers: ClassVar[dict[str, str]] = {"Retry-After": "10"}


class ClusterError(IndexerError, RuntimeError):
    """The machines of a cluster are not to be had, or could not do their part; what is done is kept."""

    headers: ClassVar[dict[str, str]] = {"Retry-After": "60"}


class GalleryError(IndexerError, ValueError):
    """A gallery is damaged, busy, or cannot be used so."""


class DamagedGalleryError(GalleryError):
    """A byte of a file that is searched is not what was written, so that the gallery is not searched."""

    headers: ClassVar[dict[str, str]] = {"Retry-After": "10"}

    def __init__(self, problem: str, file: Path) -> None:
        super().__init__(problem)
        self.file = file


class GalleryNotFoundError(GalleryError, LookupError):
    """There is no gallery of that name, or it was never indexed."""


class VersionNotFoundError(GalleryNotFoundError):
    """The gallery has no version of that number."""

    def __init__(self, gallery: str, version: int, known: list[int]) -> None:
        only = f", only {', '.join(map(str, known))}" if known else ""
        super().__init__(f"gallery '{gallery}' has no version {version}{only}")
        self.gallery, self.version, self.known = gallery, version, known


class AliasNotFoundError(GalleryError, LookupError):
    """There is no alias of that name."""

    def __init__(self, alias: str) -> None:
        super().__init__(f"there is no alias '{alias}'")
        self.alias = alias


class GalleryNameError(GalleryError):
    """The name is not made of lower-case letters, digits, `-` and `_`, or too long."""

    def __init__(self, name: str) -> None:
        super().__init__(f"'{name}' is no gallery name: use up to 64 lower-case letters, digits, - and _")
        self.name = name


class GalleryExistsError(GalleryError):
    """The name of a new gallery or alias is taken; nothing is ever replaced by one."""

    def __init__(self, name: str, *, stands_for: str | None = None, begun: Path | None = None) -> None:
        if begun is not None:
            taken = f"an index of gallery '{name}' was begun: finish it, remove '{begun}', or"
        elif stands_for is not None:
            taken = f"'{name}' is an alias of '{stands_for}':"
        else:
            taken = f"gallery '{name}' exists:"
        super().__init__(f"{taken} choose another name")
        self.name, self.stands_for = name, stands_for


class GalleryAliasedError(GalleryError):
    """The gallery cannot go: clients know it by another name."""

    def __init__(self, gallery: str, aliases: Sequence[str]) -> None:
        super().__init__(
            f"clients know gallery '{gallery}' as {named_ids(aliases)}: let another gallery have the name, "
            "or remove the alias"
        )
        self.gallery = gallery
        self.aliases = list(aliases)


class ItemNotFoundError(GalleryError, LookupError):
    """The gallery has no item of that id."""

    def __init__(self, gallery: str, item_id: str) -> None:
        super().__init__(f"gallery '{gallery}' has no item '{item_id}'")
        self.gallery, self.item_id = gallery, item_id


class NotSetAsideError(GalleryError, LookupError):
    """No item of that id is set aside."""

    def __init__(self, gallery: str, item_id: str) -> None:
        super().__init__(f"in gallery '{gallery}' no item '{item_id}' is set aside")
        self.gallery, self.item_id = gallery, item_id


class ItemExistsError(GalleryError):
    """Ids of images or embeddings that shall be added belong to others."""

    def __init__(
        self,
        gallery: str,
        item_ids: Sequence[str],
        advice: str = "send 'replace' or 'skip' on conflict, or another id",
        what: Literal["image", "embedding"] = "image",
    ) -> None:
        count = (
            f"another {what} has the id"
            if len(item_ids) == 1
            else f"{len(item_ids):,} ids belong to other {what}s:"
        )
        super().__init__(f"in gallery '{gallery}' {count} {named_ids(item_ids)}; {advice}")
        self.gallery = gallery
        self.item_ids = list(item_ids)
        self.what = what
        self.members = {"id": item_ids[0]} if len(item_ids) == 1 else {"ids": self.item_ids}


class NoImageError(GalleryError, LookupError):
    """The item came as a ready embedding."""

    def __init__(self, gallery: str, item_id: str) -> None:
        super().__init__(f"item '{item_id}' of gallery '{gallery}' came as an embedding: it has no image")
        self.gallery, self.item_id = gallery, item_id


class OriginalNotFoundError(NoImageError):
    """The file that an item was made of is not there any more, or never was."""

    def __init__(self, gallery: str, item_id: str) -> None:
        GalleryError.__init__(
            self,
            f"the file of item '{item_id}' is not where gallery '{gallery}' could read it: only the small "
            "picture is kept",
        )
        self.gallery, self.item_id = gallery, item_id


class SpaceMismatchError(GalleryError):
    """A gallery of ready embeddings takes those of its space alone, and a gallery of images takes none."""

    def __init__(self, gallery: str, held: str, given: str) -> None:
        super().__init__(
            f"gallery '{gallery}' holds {held}, not {given}: index these into a gallery of their own"
        )
        self.gallery, self.held, self.given = gallery, held, given


class BundleMismatchError(GalleryError):
    """The gallery was embedded with another bundle than the one in use."""

    def __init__(self, gallery: str, expected: str, actual: str, reason: str | None = None) -> None:
        super().__init__(
            f"gallery '{gallery}' was embedded with bundle {actual}, this service runs {expected}: "
            + (reason or ""),
            None if reason else advise("name its bundle ({bundle}), put it into bundles_dir, or index again"),
        )
        self.gallery, self.expected, self.actual = gallery, expected, actual


class GalleryNotRefinedError(GalleryError):
    """A version holds no items that were refined with the refiner and the steps that were asked for."""

    def __init__(self, gallery: str, version: int, wanted: str, found: list[str]) -> None:
        held = " and ".join(found) if found else "none at all"
        super().__init__(
            f"version {version} of gallery '{gallery}' holds no items refined by {wanted}, but {held}: ",
            advise("run {refine()}, or index it again", gallery=gallery),
        )
        self.gallery, self.version = gallery, version


class GalleryBusyError(GalleryError):
    """Another job holds the gallery; the same call can succeed later."""


class OvertakenError(GalleryBusyError):
    """Another replica took a gallery over, or wrote the same file; what was changed here is put back."""


class StorageError(GalleryError):
    """The disk refuses to take something: it is full, read-only or broken; what was there before stays."""


class HomeError(StorageError):
    """The home, where the galleries of all replicas lie, does not answer or refuses; nothing was changed."""

    headers: ClassVar[dict[str, str]] = {"Retry-After": "5"}


class FilterError(GalleryError):
    """A filter does not follow its grammar; the reason says where, and what is allowed."""

    def __init__(self, expression: str, reason: str) -> None:
        shown = expression if len(expression) <= 100 else expression[:97] + "..."
        super().__init__(f"filter `{shown}` cannot be used: {reason}")
        self.expression, self.reason = expression, reason


class BuildError(IndexerError, RuntimeError):
    """An index job gave up; nothing of it was published."""
