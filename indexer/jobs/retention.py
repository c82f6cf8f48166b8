"""Retention: which versions of a gallery are kept, what each takes on the disk, and removing the others."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Annotated

from pydantic import Field

from vicinal.calibration.frozen import Frozen
from vicinal.indexer.disk import paths_below
from vicinal.indexer.errors import GalleryError
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.storage.files import size_of
from vicinal.indexer.views.snapshot import snapshot_manifest

# Another process may be reading a revision that has just been succeeded.
READER_GRACE = timedelta(minutes=10)


class RetentionPolicy(Frozen):
    """Rules by which versions stay: one of them is enough, and the active one always does.

    Attributes:
        versions: The newest so many versions stay after a compaction; the active one always does.
        days: All that are younger than so many days stay too.
    """

    versions: int = Field(3, ge=1)
    days: float = Field(7.0, ge=0.0)


@dataclass(frozen=True)
class VersionSummary:
    """Version of a gallery."""

    version: int
    created_at: datetime
    kind: Annotated[str, Field(description="Made by an `index` job or by a `compaction`.")]
    is_active: bool
    revision: Annotated[
        int, Field(description="State of its live changes, which is searched when it is active.")
    ]
    n_items: Annotated[
        int | None, Field(description="Items when it was built; null when its files are damaged.")
    ]
    n_labels: int | None
    index: str | None
    bundle: str | None  # Fingerprint
    derived_bytes: Annotated[int, Field(description="Size of its own files.")]
    table_bytes: Annotated[int, Field(description="Size of the files in the item table that it refers to.")]
    own_table_bytes: Annotated[int, Field(description="Size of those that no other version refers to.")]


@dataclass(frozen=True)
class Pruning:
    """Result of a pruning."""

    versions: list[int]
    bytes_freed: int


def describe_versions(gallery: Gallery) -> list[VersionSummary]:
    """Every version of a gallery, newest first."""
    active = gallery.activation
    versions = gallery.versions()
    known = {} if active is None else active.known_revisions
    built = {version: gallery.pointer.revision_of(version) for version in versions}
    revisions = {version: known.get(version, built[version]) for version in versions}
    files = {
        version: dict(chain(*(gallery.table.files(one).items() for one in {built[version], revision})))
        for version, revision in revisions.items()
    }
    return [_describe(gallery, version, revisions[version], files) for version in reversed(versions)]


def prune(
    gallery: Gallery,
    policy: RetentionPolicy,
    *,
    protected: Iterable[int] = (),
    grace: timedelta = READER_GRACE,
) -> Pruning:
    """Remove the versions that a policy does not keep, and what only they refer to."""
    with gallery.compacting(), gallery.writing():
        versions = gallery.versions()
        oldest = datetime.now(UTC) - timedelta(days=policy.days)
        newest = {*versions[-policy.versions :], gallery.active_version}
        gone = {one for one in versions if one not in newest and created_at(gallery, one) < oldest}
        freed = sum(_folder_bytes(gallery.snapshot_path(version)) for version in gone)
        gallery.forget(gone)
        gallery.pointer.keep_only(protected)
        active = gallery.activation
        if active is not None:
            revision = gallery.table.merge_small_files(active.revision, drop_removed=True)
            if revision != active.revision:
                gallery.pointer.move_revision(active, revision, active.next_number)
        return Pruning(sorted(gone), freed + gallery.pointer.clean_up(grace))


def _describe(
    gallery: Gallery, version: int, revision: int, files: dict[int, dict[str, int]]
) -> VersionSummary:
    manifest = None
    with suppress(GalleryError):
        manifest = snapshot_manifest(gallery.snapshot_path(version))
    others = set().union(*(files[other] for other in files if other != version))
    return VersionSummary(
        version=version,
        created_at=created_at(gallery, version),
        kind=str(gallery.reports.of(version).get("kind", "unknown")),
        is_active=version == gallery.active_version,
        revision=revision,
        **{name: getattr(manifest, name, None) for name in ("n_items", "n_labels", "index", "bundle")},
        derived_bytes=_folder_bytes(gallery.snapshot_path(version)),
        table_bytes=sum(files[version].values()),
        own_table_bytes=sum(size for path, size in files[version].items() if path not in others),
    )


def created_at(gallery: Gallery, version: int) -> datetime:
    """Time when a version was made."""
    noted = gallery.reports.of(version).get("created_at")
    if noted is not None:
        return datetime.fromisoformat(noted)
    return datetime.fromtimestamp(gallery.snapshot_path(version).stat().st_mtime, UTC)


def _folder_bytes(folder: Path) -> int:
    return size_of(paths_below(folder))
