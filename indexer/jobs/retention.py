"""Retention: which versions of a gallery are kept, what each takes on the disk, and removing the others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from vicinal.indexer.errors import GalleryError
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.views.snapshot import SnapshotManifest, snapshot_manifest

# Another process may be reading a revision that has just been succeeded.
READER_GRACE = timedelta(minutes=10)


class RetentionPolicy(BaseModel):
    """Rules by which versions stay: one of them is enough, and the active one always does.

    Attributes:
        versions: The newest so many versions stay after a compaction; the active one always does.
        days: All that are younger than so many days stay too.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    versions: int = Field(3, ge=1)
    days: float = Field(7.0, ge=0.0)


@dataclass(frozen=True)
class VersionSummary:
    """One version of a gallery."""

    version: int
    created_at: datetime
    kind: str  # Made by an `index` job, by a `compaction`, or `unknown`
    is_active: bool
    revision: int  # State of its live changes: what is searched when it is activated
    n_items: int | None  # When it was built; None when its files are damaged, which opening it repairs
    n_labels: int | None
    index: str | None
    bundle: str | None  # Fingerprint
    derived_bytes: int  # Size of its own files
    table_bytes: int  # Size of the files in the item table that it refers to, also together with others
    own_table_bytes: int  # Size of those that no other version refers to


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
    files = {version: _table_files(gallery, {built[version], revisions[version]}) for version in versions}
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
        gone = _not_kept(gallery, policy)
        freed = sum(_folder_bytes(gallery.snapshot_path(version)) for version in gone)
        gallery.forget(gone)
        gallery.pointer.keep_only(protected)
        _drop_removed_rows(gallery)
        return Pruning(sorted(gone), freed + gallery.pointer.clean_up(grace))


def _drop_removed_rows(gallery: Gallery) -> None:
    active = gallery.activation
    if active is not None:
        revision = gallery.table.drop_removed_rows(active.revision)
        if revision != active.revision:
            gallery.pointer.move_revision(active, revision, active.next_number)


def _not_kept(gallery: Gallery, policy: RetentionPolicy) -> set[int]:
    versions = gallery.versions()
    oldest = datetime.now(UTC) - timedelta(days=policy.days)
    newest = {*versions[-policy.versions :], gallery.active_version}
    return {
        version for version in versions if version not in newest and created_at(gallery, version) < oldest
    }


def _describe(
    gallery: Gallery, version: int, revision: int, files: dict[int, dict[str, int]]
) -> VersionSummary:
    manifest = _manifest(gallery, version)
    others = set().union(*(files[other] for other in files if other != version))
    return VersionSummary(
        version=version,
        created_at=created_at(gallery, version),
        kind=str(gallery.reports.of(version).get("kind", "unknown")),
        is_active=version == gallery.active_version,
        revision=revision,
        n_items=manifest.n_items if manifest else None,
        n_labels=manifest.n_labels if manifest else None,
        index=manifest.index if manifest else None,
        bundle=manifest.bundle if manifest else None,
        derived_bytes=_folder_bytes(gallery.snapshot_path(version)),
        table_bytes=sum(files[version].values()),
        own_table_bytes=sum(size for path, size in files[version].items() if path not in others),
    )


def _manifest(gallery: Gallery, version: int) -> SnapshotManifest | None:
    try:
        return snapshot_manifest(gallery.snapshot_path(version))
    except GalleryError:
        return None


def created_at(gallery: Gallery, version: int) -> datetime:
    """Time when a version was made."""
    noted = gallery.reports.of(version).get("created_at")
    if noted is not None:
        return datetime.fromisoformat(noted)
    return datetime.fromtimestamp(gallery.snapshot_path(version).stat().st_mtime, UTC)


def _table_files(gallery: Gallery, revisions: set[int]) -> dict[str, int]:
    files: dict[str, int] = {}
    for revision in revisions:
        files.update(gallery.table.files(revision))
    return files


def _folder_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
