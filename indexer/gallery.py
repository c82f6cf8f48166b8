"""Gallery: a named collection of items on disk, and the only code that touches its files.

<gallery>/
  items.lance/            the truth: one Lance data set, one row an item
  items.seals             what its files must look like
  versions/<v>/           snapshots derived from version v of it
  reports/<v>.json        what the index job found, or what was compacted
  reports/<v>.comparisons/  what versions were compared with before they were activated
  calibrations/           kept by the calibrator
  active.json             which version and which live changes of it are searched
  active.lock             held for the moment in which that is replaced
  writer.lock             held while the table is written
  compaction.lock         held while a new version is made of the live changes
"""

from __future__ import annotations

import json
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from vicinal.indexer.errors import (
    GalleryBusyError,
    GalleryError,
    GalleryNotFoundError,
    ItemNotFoundError,
    StorageError,
    VersionNotFoundError,
)
from vicinal.indexer.graph.neighbor_graph import NeighborGraph, build_neighbor_graph
from vicinal.indexer.storage.active_pointer import Activation, read_activation
from vicinal.indexer.storage.arrays import as_matrix
from vicinal.indexer.storage.files import storing, sync_path, write_atomically
from vicinal.indexer.storage.item_table import ItemTable
from vicinal.indexer.storage.locks import file_lock
from vicinal.indexer.views.refined_snapshot import RefinementPlan, refined_folders, refinements
from vicinal.indexer.views.snapshot import ITEM_COLUMNS, Snapshot, SnapshotRows, intact_graph, write_snapshot
from vicinal.models.similarity import FloatArray

__all__ = ["GALLERY_NAME", "Gallery", "changes_tag", "list_galleries", "version_tag"]

GALLERY_NAME = re.compile(r"^[a-z0-9][a-z0-9_-]{0,63}$")
# The pointer is replaced within milliseconds; waiting longer means that a process hangs.
_POINTER_PATIENCE = 30.0

# Of names such as 20261121-182954-a3aecaa8.
_SECOND_LENGTH = len("20261121-182954")


class Gallery:
    """A gallery directory.

    Args:
        path: The directory; its name is the gallery's name.
        refinement: How the items of versions made from now on are refined; None leaves them as they are.

    Raises:
        GalleryError: The name is not made of lower-case letters, digits, `-` and `_`.
    """

    def __init__(self, path: Path | str, *, refinement: RefinementPlan | None = None) -> None:
        self.path = Path(path)
        self.refinement = refinement
        if not GALLERY_NAME.fullmatch(self.path.name):
            raise GalleryError(
                f"'{self.path.name}' is no gallery name: use up to 64 lower-case letters, digits, - and _"
            )

    @classmethod
    def open(cls, path: Path | str, *, refinement: RefinementPlan | None = None) -> Self:
        """Open a gallery that was indexed; see the class for the arguments.

        Raises:
            GalleryNotFoundError: There is none at this path.
        """
        gallery = cls(path, refinement=refinement)
        if gallery.active_version is None:
            raise GalleryNotFoundError(
                f"there is no gallery '{gallery.name}': "
                f"make one with `vicinal index SOURCE --gallery {gallery.name}`"
            )
        return gallery

    @property
    def name(self) -> str:
        """Name of the gallery."""
        return self.path.name

    @property
    def activation(self) -> Activation | None:
        """What is searched, or None before the first index job.

        Raises:
            GalleryError: The file that says it is damaged.
        """
        return read_activation(self._activation_path)

    @property
    def active_version(self) -> int | None:
        """Version that is searched, or None before the first index job."""
        activation = self.activation
        return None if activation is None else activation.version

    @property
    def calibrations_path(self) -> Path:
        """Folder of the gallery's calibration records."""
        return self.path / "calibrations"

    @property
    def table(self) -> ItemTable:
        """The item table."""
        return ItemTable(self.path / "items.lance", self.name)

    def versions(self) -> list[int]:
        """Versions that were published, oldest first."""
        folders = (self.path / "versions").glob("[0-9]*")
        return sorted(int(folder.name) for folder in folders if folder.name.isdigit())

    def snapshot(self, version: int | None = None) -> Snapshot:
        """Open a version as it was built; its derived files are made again when missing or damaged.

        Args:
            version: A published version; the active one when None.

        Raises:
            VersionNotFoundError: There is no such version.
            GalleryError: The gallery table itself is damaged.
        """
        chosen = self.active_version if version is None else version
        if chosen is None:
            raise GalleryNotFoundError(f"gallery '{self.name}' was never indexed")
        if chosen not in self._known_versions():
            raise self._no_version(chosen)
        try:
            return Snapshot.open(self.snapshot_path(chosen))
        except GalleryError as damage:
            try:
                return self.repair(chosen)
            except StorageError as error:
                raise StorageError(f"{damage}, and it cannot be made again: {error}") from error

    def repair(self, version: int) -> Snapshot:
        """Make the derived files of a version again.

        Raises:
            GalleryError: The gallery table itself is damaged.
        """
        # The report remembers the kind of index, also one that was chosen by hand.
        return self._derive(version, index=self.report(version).get("index", "auto"))

    def thumbnail(self, version: int, item_id: str, *, sequence: int | None = None) -> bytes:
        """JPEG thumbnail of an item.

        Args:
            version: A published version, or the revision that is searched.
            item_id: Id of the item.
            sequence: Its sequence, where that is known: it is found faster than an id.

        Raises:
            ItemNotFoundError: There is no such item in this version.
        """
        by_id = "id = '" + item_id.replace("'", "''") + "'"
        condition = by_id if sequence is None else f"sequence = {sequence}"
        found = self._readable(version).find(version, "thumbnail", condition)
        if not found:
            raise ItemNotFoundError(self.name, item_id)
        return bytes(found[0])

    def columns(self, version: int, names: list[str]) -> pa.Table:
        """Whole columns of a version, one row an item in gallery order."""
        return self._readable(version).columns(version, names)

    def n_common(self, before: int, after: int) -> tuple[int, int] | None:
        """Items that two versions share, with the same content, and the size of the earlier one.

        None when the earlier version is gone.
        """
        try:
            old, new = (self.columns(version, ["id", "content_sha256"]) for version in (before, after))
        except GalleryError:
            return None
        together = pa.concat_tables([old, new])
        # An id stands once in each, so that a pair that comes twice is in both.
        counted = together.group_by(["id", "content_sha256"]).aggregate([([], "count_all")])
        return len(together) - len(counted), len(old)

    def report(self, version: int) -> dict[str, Any]:
        """What the index job found when it made a version; empty when it left no report."""
        path = self._report_path(version)
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}

    def delete(self) -> None:
        """Remove the gallery and all its versions.

        Raises:
            GalleryBusyError: Another job is writing or compacting.
        """
        with self.compacting(), self.writing():
            # Out of the way in one step, so that no crash leaves half of it.
            gone = self.path.with_name(f".{self.name}.{secrets.token_hex(4)}.deleted")
            with storing(f"gallery '{self.name}'"):
                self.path.rename(gone)
                sync_path(gone.parent)
        for folder in gone.parent.glob(".*.deleted"):
            shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def writing(self, *, patience: float = 0.0) -> Iterator[None]:
        """Hold the writer's lock; it is released also when the process dies.

        Args:
            patience: Seconds to wait for another writer.

        Raises:
            GalleryBusyError: Another job is writing.
        """
        self._make_folder(self.path)
        busy = f"gallery '{self.name}' is being written by another job: wait for it"
        with file_lock(self.path / "writer.lock", busy, patience=patience):
            yield

    @contextmanager
    def compacting(self) -> Iterator[None]:
        """Hold the lock of those who make or remove versions of the existing items.

        Raises:
            GalleryBusyError: Another job is compacting.
        """
        self._make_folder(self.path)
        busy = f"gallery '{self.name}' is being compacted by another job: wait for it"
        with file_lock(self.path / "compaction.lock", busy):
            yield

    def start(self, rows: pa.Table, *, bundle: str, bundle_name: str) -> None:
        """Commit the first rows of a new generation of the table, which published versions outlive.

        Args:
            rows: One row an item.
            bundle: Fingerprint of the bundle that embedded them.
            bundle_name: Its name.
        """
        self.table.start(rows, {"bundle": bundle, "bundle_name": bundle_name})

    def append(self, rows: pa.Table) -> None:
        """Commit further rows; nothing is visible to searches before `publish`."""
        self.table.append(rows)

    def keep_rows(self, activation: Activation) -> bool:
        """Keep the rows of what is searched, before a version is made of them.

        Returns:
            Whether it is still searched; otherwise nothing was done.
        """
        with self._pointer():
            # Rows of what is searched are never cleaned up, and others cannot be any more after this.
            is_active = self.activation == activation
            if is_active:
                self.table.keep(version_tag(activation.revision), activation.revision)
        return is_active

    def keep_for(self, job: str) -> Activation | None:
        """Keep the rows of what is searched for a job with staged rows, however long it reads them.

        Args:
            job: Its name; the rows are kept for as long as something is staged under it.

        Returns:
            What is searched.
        """
        with self._pointer():
            active = self.activation
            if active is not None:
                self.table.keep(_job_tag(job), active.revision)
        return active

    def clean_up(self, grace: timedelta) -> int:
        """Remove rows that neither a version nor what is searched needs; only a writer may do it.

        Args:
            grace: Revisions younger than this stay for readers that have them open.

        Returns:
            Bytes freed.
        """
        with self._pointer():
            active = self.activation
            if active is not None:
                # Commits that never came into force may follow it, so that it need not be the newest.
                self.table.keep(changes_tag(active.version), active.revision)
            return self.table.clean_up(grace)

    def keep_only(self, versions: Iterable[int]) -> None:
        """Give up the rows of all versions that are neither there nor named; only a writer may do it."""
        with self._pointer():
            present = self.versions()
            names = {version_tag(version) for version in {*present, *versions}}
            names |= {changes_tag(version) for version in present}
            names |= {_job_tag(folder.name) for folder in (self.path / "staging").glob("*")}
            self.table.release(set(self.table.kept()) - names)

    def publish(self, graph: NeighborGraph, *, index: str = "auto", activate: bool = True) -> Snapshot:
        """Make the appended rows a version.

        Args:
            graph: Neighbor graph over all rows, in order.
            index: Factory string of the vector index, or `auto`.
            activate: Let searches use it, from their next request on.
        """
        version = self.table.add_graph(graph)
        with self._pointer():
            # First, so that there is never a version whose rows can be cleaned up.
            self.table.keep(version_tag(version), version)
        snapshot = self._derive(version, index=index, graph=graph)
        if not activate:
            return snapshot
        with self._pointer():
            active = self.activation
            self._put_in_force(_fresh(active, version, snapshot.manifest.next_number), active)
        return snapshot

    def replace(self, before: Activation | None, version: int, *, calibrated_as: int | None = None) -> bool:
        """Let searches use a version in place of what was searched when it was made.

        Args:
            before: What was searched; None when nothing was.
            version: The version, as it was built.
            calibrated_as: Version whose own calibrations come into force with it; as before when None.

        Returns:
            Whether it was done; not when anything else was activated or changed meanwhile.
        """
        with self._pointer():
            active = self.activation
            if active != before:
                return False
            self._put_in_force(
                _fresh(active, version, self.table.next_number(version), calibrated_as), active
            )
            return True

    def activate(self, version: int, *, as_built: bool = False, calibrated_as: int | None = None) -> None:
        """Let searches use a published version, from their next request on.

        Args:
            version: The version.
            as_built: Leave out the live changes that were made while it was active before.
            calibrated_as: Version whose own calibrations come into force with it; when None those that it
                had when it was active before, and for a new version the present ones.

        Raises:
            VersionNotFoundError: There is no such version.
        """
        with self._pointer():
            # Also one whose files are just being made again.
            if version not in self._known_versions():
                raise self._no_version(version)
            active = self.activation
            known = {} if active is None else {**active.revisions, active.version: active.revision}
            revision = version if as_built else known.get(version, version)
            next_number = self.table.next_number(revision)
            chosen = _fresh(active, version, next_number, calibrated_as)
            self._put_in_force(replace(chosen, revision=revision), active)

    def advance(self, before: Activation, revision: int, next_number: int) -> None:
        """Let searches see a live change, from their next request on.

        Args:
            before: The activation that the change was made on.
            revision: The table's version that holds it.
            next_number: The table's counter after it.

        Raises:
            GalleryBusyError: Another version was activated meanwhile; the change is no part of it.
        """
        with self._pointer():
            active = self.activation
            if active is None or active.token != before.token:
                raise GalleryBusyError(
                    f"another version of gallery '{self.name}' was activated meanwhile: send the change again"
                )
            active.changed(revision, next_number).write(self._activation_path)

    def swap(self, before: Activation, version: int) -> bool:
        """Let searches use a version that was made of an activation, with the live changes since then.

        Returns:
            Whether it was done; not when another version was activated meanwhile.
        """
        with self._pointer():
            active = self.activation
            if active is None or active.token != before.token:
                return False
            self._put_in_force(active.compacted(version), active)
            return True

    def forget(self, versions: set[int]) -> None:
        """Remove the derived files and reports of versions; the active one stays whatever is asked for."""
        with self._pointer():
            active = self.activation
            if active is not None:
                versions = versions - {active.version}
                active.without(versions).write(self._activation_path)
            # Out of the way in one step, so that none of them can be activated any more.
            gone = [self._set_aside(version) for version in versions if version in self.versions()]
        for folder in gone:
            shutil.rmtree(folder, ignore_errors=True)

    def save_report(self, version: int, report: dict[str, Any]) -> None:
        """Keep what the index job found beside the version."""
        self._make_folder(self._report_path(version).parent)
        write_atomically(self._report_path(version), json.dumps(report, indent=2) + "\n")

    def save_comparison(self, version: int, name: str, text: str) -> None:
        """Keep what a version was compared with; it is never changed.

        Raises:
            GalleryError: There is a comparison of this name.
        """
        folder = self._comparisons_path(version)
        self._make_folder(folder)
        path = folder / f"{name}.json"
        if path.exists():
            raise GalleryError(
                f"comparison '{name}' of version {version} exists: comparisons are not changed"
            )
        write_atomically(path, text)

    def comparisons(self, version: int) -> dict[str, Path]:
        """Files of the comparisons of a version by name, oldest first.

        Names begin with the second; two of one second are told apart by the files, which never change.
        """
        files = sorted(
            self._comparisons_path(version).glob("*.json"),
            key=lambda path: (path.stem[:_SECOND_LENGTH], path.stat().st_mtime_ns),
        )
        return {path.stem: path for path in files}

    def pending_embeddings(self) -> FloatArray:
        """(n, d) embeddings of the rows appended so far, in order."""
        table = self.table
        return as_matrix(table.columns(table.latest().version, ["embedding"])["embedding"])

    def snapshot_path(self, version: int) -> Path:
        """Folder of the derived files of a version."""
        return self.path / "versions" / str(version)

    def _make_folder(self, path: Path) -> None:
        with storing(f"gallery '{self.name}'"):
            path.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def _pointer(self) -> Iterator[None]:
        busy = f"the active version of gallery '{self.name}' is being changed by a process that hangs"
        with file_lock(self.path / "active.lock", busy, patience=_POINTER_PATIENCE):
            yield

    def _set_aside(self, version: int) -> Path:
        self._report_path(version).unlink(missing_ok=True)
        shutil.rmtree(self._comparisons_path(version), ignore_errors=True)
        aside = self.snapshot_path(version).with_suffix(".partial")
        return self.snapshot_path(version).rename(aside)

    def _put_in_force(self, chosen: Activation, before: Activation | None) -> None:
        """Replace the activation; both keep the rows they are made of, so that it can be rolled back."""
        for activation in (before, chosen):
            if activation is not None:
                self.table.keep(version_tag(activation.version), activation.version)
                self.table.keep(changes_tag(activation.version), activation.revision)
        chosen.succeeding(before).write(self._activation_path)

    def _derive(self, version: int, *, index: str, graph: NeighborGraph | None = None) -> Snapshot:
        table, refined = self._readable(version), self._refinements()
        if graph is None:
            # They were not written just now.
            table.check(version)
        rows = table.columns(version, [*ITEM_COLUMNS, "sequence", "embedding"])
        embeddings = as_matrix(rows["embedding"])
        sequences = rows["sequence"].to_numpy()
        known = graph or self._known_graph(version, sequences) or build_neighbor_graph(embeddings)
        items = rows.select(ITEM_COLUMNS)
        items = items.set_column(3, "metadata", items["metadata"].cast(pa.string()))
        snapshot = write_snapshot(
            self.snapshot_path(version),
            SnapshotRows(items, sequences, embeddings, known),
            index=index,
            fields={
                "version": version,
                "next_number": table.next_number(version),
                **table.identity(version),
            },
            # They follow from the same rows, whatever became of the other files.
            kept=refined_folders(self.snapshot_path(version), whole=True),
        )
        if self.refinement is not None:
            self.refinement.apply(snapshot, refined)
        return snapshot

    def refine(self, snapshot: Snapshot) -> None:
        """Refine the items of a version that is made of the active one, as that one's are."""
        if self.refinement is not None:
            self.refinement.apply(snapshot, self._refinements())

    def _refinements(self) -> list[tuple[str, int]]:
        """Refiner and steps of what the active version holds."""
        active = self.active_version
        return [] if active is None else refinements(self.snapshot_path(active))

    def _known_graph(self, version: int, sequences: npt.NDArray[np.int64]) -> NeighborGraph | None:
        """The version's neighbor graph, from its own intact files or from the index job's columns."""
        intact = intact_graph(self.snapshot_path(version))
        if intact is not None or self.report(version).get("kind") != "index":
            return intact
        rows = self.table.columns(version, ["neighbor_ids", "neighbor_similarities"])
        ids = as_matrix(rows["neighbor_ids"])
        positions = np.where(ids < 0, -1, np.searchsorted(sequences, ids)).astype(np.int32)
        return NeighborGraph(positions, as_matrix(rows["neighbor_similarities"]))

    def _readable(self, version: int) -> ItemTable:
        """The table, when it has a version that belongs to the gallery.

        Raises:
            VersionNotFoundError: There is no such version.
            GalleryError: It is damaged.
        """
        try:
            names = self.table.at(version).schema.names
        except GalleryError as error:
            if version not in self._known_versions():
                raise self._no_version(version) from error
            raise
        if "neighbor_ids" not in names:
            raise self._no_version(version)
        return self.table

    def _known_versions(self) -> set[int]:
        active = self.activation
        active_ones = set() if active is None else {active.version, *active.revisions}
        return active_ones | set(self.versions())

    def _no_version(self, version: int) -> VersionNotFoundError:
        return VersionNotFoundError(self.name, version, self.versions())

    @property
    def _activation_path(self) -> Path:
        return self.path / "active.json"

    def _comparisons_path(self, version: int) -> Path:
        return self.path / "reports" / f"{version}.comparisons"

    def _report_path(self, version: int) -> Path:
        return self.path / "reports" / f"{version}.json"


def _fresh(
    active: Activation | None, version: int, next_number: int, calibrated_as: int | None = None
) -> Activation:
    """An activation of a version as it was built."""
    if calibrated_as is None:
        calibrated_as = 0 if active is None else active.calibration_of(version)
    return Activation.of(version, next_number, calibrated_as=calibrated_as)


def version_tag(version: int) -> str:
    """Name under which the table keeps the rows that a version was built of."""
    return f"version-{version}"


def _job_tag(job: str) -> str:
    return f"job-{job}"


def changes_tag(version: int) -> str:
    """Name under which the table keeps the rows of a version with its last live changes."""
    return f"changes-{version}"


def list_galleries(root: Path) -> list[Gallery]:
    """Galleries below a data folder that were indexed, by name."""
    folders = sorted(folder for folder in root.glob("*") if GALLERY_NAME.fullmatch(folder.name))
    return [Gallery(folder) for folder in folders if (folder / "active.json").is_file()]
