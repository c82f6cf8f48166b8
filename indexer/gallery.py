"""Gallery: a named collection of items on disk, and the only code that touches its files, which
docs/decisions.md lists.
"""

from __future__ import annotations

import json
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa

from vicinal.calibration.advice import advise
from vicinal.calibration.arrays import FloatArray, Ints
from vicinal.indexer.cluster import Cluster
from vicinal.indexer.disk import hold_file
from vicinal.indexer.engines import ENGINE, Engine, GalleryTables
from vicinal.indexer.errors import (
    GalleryAliasedError,
    GalleryError,
    GalleryNotFoundError,
    ItemNotFoundError,
    NoImageError,
    StorageError,
)
from vicinal.indexer.graph.neighbor_graph import NeighborGraph, build_neighbor_graph
from vicinal.indexer.state import DamagedRowError, state_of
from vicinal.indexer.state.schema import documents
from vicinal.indexer.storage.active_pointer import Activation, ActivePointer
from vicinal.indexer.storage.files import (
    fetched_again,
    make_folder,
    remove_half_made,
    scratch,
    storing,
    sync_path,
    write_atomically,
    write_sealed,
)
from vicinal.indexer.storage.gallery_names import aliases, names_in, require_name
from vicinal.indexer.storage.home import Mirror
from vicinal.indexer.storage.item_table import ItemTable, as_matrix
from vicinal.indexer.storage.removals import Removals, Reserve
from vicinal.indexer.views.refined_snapshot import (
    RefinementPlan,
    lost_tables,
    mend_tables,
    refinements,
    whole_refined_folders,
)
from vicinal.indexer.views.snapshot import (
    ITEM_COLUMNS,
    Snapshot,
    SnapshotRows,
    intact_graph,
    read_snapshot_ahead,
    write_snapshot,
)
from vicinal.models.bundle import (
    MANIFEST_FILE,
    BundleManifest,
    ModelBundle,
    read_fingerprint,
    read_manifest,
)
from vicinal.models.errors import BundleError
from vicinal.models.progress import OnProgress, no_progress

_REMEDY = "without it the gallery is searched as before, and not pruned by age"
# Kind of the documents of how versions were made.
_REPORT = "report"
# Of who waits for tables that another process makes, in seconds.
_PATIENCE = 30.0


class Gallery:
    """Gallery directory, whose name is the gallery's; its new versions are refined by `refinement`, if any,
    and their neighbor lists made on `index_device`, see `graph.gpu.faiss_gpus`, or by `cluster`, if any.
    Versions whose candidates the engine finds need `engine` to be searched, made and removed.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        refinement: RefinementPlan | None = None,
        engine: Engine | None = None,
    ) -> None:
        self.path = Path(path)
        self.name = self.path.name
        self.refinement = refinement
        self.index_device = "cpu"
        self.cluster: Cluster | None = None
        require_name(self.name)
        self.tables = GalleryTables(self.path, engine or Engine())
        self.table = ItemTable(self.path / "items.lance", self.name)
        self.pointer = ActivePointer(self.path, self.table)
        self.reports = Reports(self.path)

    @classmethod
    def open(
        cls,
        path: Path | str,
        *,
        refinement: RefinementPlan | None = None,
        engine: Engine | None = None,
    ) -> Self:
        """Open a gallery that was indexed; see the class for the arguments."""
        gallery = cls(path, refinement=refinement, engine=engine)
        gallery.lay()
        # What it says may be damaged; whoever puts a version in force again opens the gallery, too.
        if not gallery.pointer.exists:
            raise GalleryNotFoundError(
                f"there is no gallery '{gallery.name}': ",
                advise("make one with {index()}", gallery=gallery.name),
            )
        return gallery

    def lay(self, *, again: bool = False) -> None:
        """Bring it here from the home of the replicas, where there is one, when it is first asked for, or as
        it is now.
        """
        mirror = Mirror.keeping(self.table.path)
        if mirror is not None and (again or mirror.ledger.laid(self.name) is None):
            mirror.lay(self.name)

    def is_awaited(self, activation: Activation) -> bool:
        """Tell whether a replica does not have all yet that is to be searched."""
        if self.snapshot_path(activation.version).is_dir() and self.table.has(activation.revision):
            return False
        return Mirror.keeping(self.table.path) is not None

    @property
    def aliases(self) -> list[str]:
        """Its further names, sorted."""
        return [alias for alias, name in aliases(self.path.parent).items() if name == self.name]

    @property
    def activation(self) -> Activation | None:
        """The state that is searched, or None before the first index job."""
        return self.pointer.read()

    @property
    def active_version(self) -> int | None:
        """Version that is searched, or None before the first index job."""
        activation = self.activation
        return None if activation is None else activation.version

    @property
    def removals(self) -> Removals:
        """Items that persons removed."""
        return Removals(self.path)

    @property
    def space_path(self) -> Path:
        """Folder of the space of a gallery of ready embeddings."""
        return self.path / "space"

    def bundle_path(self, refiner: str) -> Path:
        """Folder of the refiner that a version names; without one that of the space of ready embeddings."""
        return self.path / "refiners" / refiner if refiner else self.space_path

    @property
    def space(self) -> BundleManifest | None:
        """The space of the embeddings that are searched; None where images were embedded, or nothing was."""
        active = self.activation
        if active is None:
            return None
        try:
            found = read_manifest(self.space_path)
        except BundleError:
            return None
        return found if found.fingerprint == self.table.identity(active.revision)["bundle"] else None

    @property
    def refiner(self) -> str:
        """Fingerprint of the kept refiner that the searched version names; empty without one."""
        active = self.activation
        return "" if active is None else self.table.identity(active.revision).get("refiner", "")

    @property
    def index_kind(self) -> str:
        """Kind of the searched version's index; `auto` before anything was indexed."""
        return "auto" if self.active_version is None else self.snapshot().manifest.index_kind

    @property
    def in_words(self) -> str:
        """Words for what it holds; '' before anything was indexed."""
        active, space = self.activation, self.space
        if active is None or space is not None:
            return "" if space is None else space.in_words
        return f"images embedded by bundle '{self.table.identity(active.revision)['bundle_name']}'"

    @staticmethod
    def kept_refiner(bundle: ModelBundle) -> str:
        """Fingerprint of the refiner that versions of a bundle name: that of ready embeddings, or one that
        belongs to no bundle; empty where the bundle of the process has it.
        """
        is_apart = bundle.refiner_path != bundle.path
        return bundle.refiner_fingerprint if is_apart or bundle.manifest.space else ""

    def keep_space(self, bundle: ModelBundle) -> None:
        """Note the space of a gallery's embeddings, and keep what refines it, but no backbone."""
        space, refiner = bundle.manifest.model_copy(update={"refiner": None}), bundle.manifest.refiner
        if space.space and read_fingerprint(self.space_path) != space.fingerprint:
            _write_manifest(self.space_path, space)
        named = self.kept_refiner(bundle)
        kept = self.bundle_path(named)
        if refiner is None or not named or read_fingerprint(kept) is not None:
            return
        make_folder(kept)
        with storing(f"refiner '{kept}'"):
            for name in refiner.files:
                write_atomically(kept / name, (bundle.refiner_path / name).read_bytes())
        # Last: a folder without it is none.
        _write_manifest(kept, bundle.manifest)

    def versions(self) -> list[int]:
        """Versions that were published, oldest first."""
        return self.pointer.versions()

    def snapshot(self, version: int | None = None) -> Snapshot:
        """Open a version as it was built; its derived files are made again when missing or damaged."""
        chosen = self.active_version if version is None else version
        if chosen is None:
            raise GalleryNotFoundError(f"gallery '{self.name}' was never indexed")
        if chosen not in self.pointer.known_versions(self.activation):
            raise self.pointer.no_version(chosen)
        try:
            return Snapshot.open(self.snapshot_path(chosen), self.tables)
        except GalleryError as damage:
            try:
                return self.repair(chosen)
            except StorageError as error:
                raise StorageError(f"{damage}, and it cannot be made again: {error}") from error

    def repair(self, version: int) -> Snapshot:
        """Bring the derived files of a version back from its home, or make them again."""
        folder = self.snapshot_path(version)
        # Nothing has to be made where a home has the same files.
        if fetched_again(folder):
            with suppress(GalleryError):
                return Snapshot.open(folder, self.tables)
        # The report remembers the kind of index, also one that was chosen by hand.
        kind = self.reports.of(version).get("index", "auto")
        with self._leased(f"{self.name}.tables", _PATIENCE) if kind == ENGINE else nullcontext():
            before = self.tables.of_version(folder)
            snapshot = self._derive(version, index=kind)
            self._drop_tables(before)
        return snapshot

    def mend_tables(self, version: int | None = None) -> int:
        """Make the tables of a version, the active one by itself, again that its engine does not have, or
        that another gallery has; their number.
        """
        chosen = self.active_version if version is None else version
        if chosen is None or not self.tables.of_version(self.snapshot_path(chosen)):
            return 0
        if not lost_tables(self.snapshot(chosen)):
            return 0
        busy = f"tables of gallery '{self.name}' are being made by another process: wait for it"
        with (
            hold_file(self.path / "tables.lock", busy, patience=_PATIENCE),
            self._leased(f"{self.name}.tables", _PATIENCE),
        ):
            # Of the files as they are now: whoever was here before may have made them.
            return mend_tables(self.snapshot(chosen))

    def _drop_tables(self, names: set[str]) -> None:
        """Remove the tables of some names that no version has any more."""
        self.tables.drop(sorted(names - self.tables.of_version(self.path / "versions")))

    def thumbnail(self, revision: int, item_id: str, *, sequence: int | None = None) -> bytes:
        """JPEG thumbnail of an item."""
        by_id = "id = '" + item_id.replace("'", "''") + "'"
        condition = by_id if sequence is None else f"sequence = {sequence}"
        found = self.table.find(revision, "thumbnail", condition)
        if not found:
            raise ItemNotFoundError(self.name, item_id)
        if found[0] is None:
            raise NoImageError(self.name, item_id)
        return bytes(found[0])

    def n_common(self, before: int, after: int) -> tuple[int, int] | None:
        """Items of the same content in two versions, and the size of the earlier; None when that is gone."""
        try:
            revisions = [self.pointer.revision_of(version) for version in (before, after)]
            old, new = (self.table.columns(revision, ["id", "content_sha256"]) for revision in revisions)
        except GalleryError:
            return None
        together = pa.concat_tables([old, new])
        # An id stands once in each, so that a pair that comes twice is in both.
        counted = together.group_by(["id", "content_sha256"]).aggregate([([], "count_all")])
        return len(together) - len(counted), len(old)

    def delete(self) -> None:
        """Remove the gallery and all its versions."""
        with self.compacting(), self.writing():
            if self.aliases:
                raise GalleryAliasedError(self.name, self.aliases)
            # Before its folder: whoever is cut off here finds a gallery that can be deleted once more.
            self.tables.drop_all()
            mirror = Mirror.keeping(self.table.path)
            if mirror is not None:
                mirror.drop_gallery(self.name)
                return
            # Out of the way in one step, so that no crash leaves half of it.
            gone = self.path.with_name(f".{self.name}.{secrets.token_hex(4)}.deleted")
            with storing(f"gallery '{self.name}'"):
                self.path.rename(gone)
                sync_path(gone.parent)
            state_of(self.path).remove()
        shutil.rmtree(gone, ignore_errors=True)
        remove_half_made(gone.parent)

    def remove_half_made(self) -> None:
        """Remove what killed processes left half made of this gallery, and beside it."""
        versions = self.path / "versions"
        for folder in (self.path.parent, versions, *versions.glob("*")):
            remove_half_made(folder)

    @contextmanager
    def writing(self, *, patience: float = 0.0) -> Iterator[None]:
        """Hold the writer's lock; it is released also when the process dies."""
        make_folder(self.path)
        busy = f"gallery '{self.name}' is being written by another job: wait for it"
        with (
            hold_file(self.path / "writer.lock", busy, patience=patience),
            self._leased(self.name, patience),
        ):
            yield

    @contextmanager
    def compacting(self) -> Iterator[None]:
        """Hold the lock of those who make or remove versions of the existing items."""
        make_folder(self.path)
        busy = f"gallery '{self.name}' is being compacted by another job: wait for it"
        with hold_file(self.path / "compaction.lock", busy), self._leased(f"{self.name}.compaction"):
            yield

    def _leased(self, scope: str, patience: float = 0.0) -> AbstractContextManager[None]:
        """Hold a lease against other replicas, where there are any."""
        mirror = Mirror.keeping(self.table.path)
        return nullcontext() if mirror is None else mirror.changing(scope, patience=patience)

    @contextmanager
    def still(self, *, patience: float = 0.0) -> Iterator[None]:
        """Hold off every writer, so that nothing of the files changes."""
        with self.compacting(), self.writing(patience=patience):
            yield

    def start(
        self,
        rows: pa.Table,
        *,
        bundle: str,
        bundle_name: str,
        refiner: str = "",
    ) -> None:
        """Commit the first rows of a new generation of the table, which published versions outlive."""
        identity = {"bundle": bundle, "bundle_name": bundle_name, "refiner": refiner}
        self.table.start(rows, identity)

    def publish(
        self,
        graph: NeighborGraph,
        *,
        index: str = "auto",
        activate: bool = True,
    ) -> Snapshot:
        """Make the appended rows a version."""
        version = self.pointer.number(self.table.add_neighbors(graph.ids, graph.similarities))
        snapshot = self._derive(version, index=index, graph=graph)
        if activate:
            self.pointer.activate(version)
        Reserve(self.path.parent).keep()
        return snapshot

    def forget(self, versions: set[int]) -> None:
        """Remove the derived files, tables and reports of versions; the active one stays in any case."""
        folders = [self.snapshot_path(version) for version in versions]
        named = {name for one in folders for name in self.tables.of_version(one)}
        self.reports.remove(self.pointer.forget(versions))
        self._drop_tables(named)

    def pending_embeddings(self) -> FloatArray:
        """(n, d) embeddings of the rows appended so far, in order."""
        table = self.table
        return as_matrix(table.columns(table.latest().version, ["embedding"])["embedding"])

    def snapshot_path(self, version: int) -> Path:
        """Folder of the derived files of a version."""
        return self.path / "versions" / str(version)

    def _derive(
        self,
        version: int,
        *,
        index: str,
        graph: NeighborGraph | None = None,
    ) -> Snapshot:
        table, refined = self.table, self._refinements()
        revision = self.pointer.revision_of(version)
        if graph is None:
            # They were not written just now.
            table.check(revision)
        rows = table.columns(revision, [*ITEM_COLUMNS, "sequence"])
        sequences = rows["sequence"].to_numpy()
        items = rows.select(ITEM_COLUMNS)
        items = items.set_column(3, "metadata", items["metadata"].cast(pa.string()))
        make_folder(self.path / "versions")
        with scratch(self.path / "versions") as folder:
            embeddings = table.embeddings(revision, folder / "embeddings.npy")
            known = graph or self._known_graph(version, sequences)
            known = known or self.neighbors(embeddings)
            snapshot = write_snapshot(
                self.snapshot_path(version),
                SnapshotRows(items, sequences, embeddings, known),
                index=index,
                fields={
                    "version": version,
                    "revision": revision,
                    "next_number": table.next_number(revision),
                    **table.identity(revision),
                },
                # They follow from the same rows, whatever became of the other files.
                kept=whole_refined_folders(self.snapshot_path(version)),
                tables=self.tables,
            )
        if self.refinement is not None:
            self.refinement.apply(snapshot, refined, index_device=self.index_device, cluster=self.cluster)
        return snapshot

    def neighbors(self, embeddings: FloatArray, *, on_progress: OnProgress = no_progress) -> NeighborGraph:
        """Neighbor lists of some embeddings, made where the gallery's are."""
        return build_neighbor_graph(
            embeddings, device=self.index_device, cluster=self.cluster, on_progress=on_progress
        )

    def refine(self, snapshot: Snapshot) -> None:
        """Refine the items of a version that is made of the active one, as that one's are."""
        if self.refinement is not None:
            self.refinement.apply(snapshot, self._refinements(), index_device=self.index_device)

    def _refinements(self) -> list[tuple[str, int]]:
        """Refiner and steps of what the active version holds."""
        active = self.active_version
        return [] if active is None else refinements(self.snapshot_path(active))

    def _known_graph(self, version: int, sequences: Ints) -> NeighborGraph | None:
        """The version's neighbor graph, from its own intact files or from the index job's columns."""
        intact = intact_graph(self.snapshot_path(version))
        if intact is not None or self.reports.of(version).get("kind") != "index":
            return intact
        revision = self.pointer.revision_of(version)
        rows = self.table.columns(revision, ["neighbor_ids", "neighbor_similarities"])
        ids = as_matrix(rows["neighbor_ids"])
        positions = np.where(ids < 0, -1, np.searchsorted(sequences, ids)).astype(np.int32)
        return NeighborGraph(positions, as_matrix(rows["neighbor_similarities"]))


def _write_manifest(folder: Path, manifest: BundleManifest) -> None:
    make_folder(folder)
    write_sealed(folder / MANIFEST_FILE, manifest.model_dump_json(indent=2))


def list_galleries(root: Path) -> list[Gallery]:
    """Galleries below a data folder that were indexed, by name."""
    galleries = [Gallery(root / name) for name in names_in(root)]
    return [gallery for gallery in galleries if gallery.pointer.exists]


def read_ahead(root: Path) -> None:
    """Let the disk begin to read what opening the galleries of a folder compares; nothing waits for it."""
    with suppress(GalleryError, OSError):
        for gallery in list_galleries(root):
            with suppress(GalleryError, OSError):
                version = gallery.active_version
                if version is not None:
                    read_snapshot_ahead(gallery.snapshot_path(version))


class Reports:
    """Reports of how the versions of the gallery in a folder were made."""

    def __init__(self, gallery: Path) -> None:
        self._state = state_of(gallery)

    def of(self, version: int) -> dict[str, Any]:
        """Findings of the index job when it made a version; empty when it left no report."""
        is_it = documents.c.id == str(version)
        try:
            with self._state.reading() as rows:
                found = rows.first(documents, documents.c.kind == _REPORT, is_it)
        except DamagedRowError as error:
            raise GalleryError(f"{error}: {_REMEDY}") from error
        return {} if found is None else dict(json.loads(found.content))

    def save(self, version: int, report: dict[str, Any]) -> None:
        """Keep the report of a version."""
        row = {"kind": _REPORT, "id": str(version), "at": time.time(), "content": json.dumps(report)}
        with self._state.changing() as rows:
            rows.put(documents, row)

    def remove(self, versions: set[int]) -> None:
        """Remove the reports of versions that are gone."""
        if versions:
            with self._state.changing() as rows:
                are_gone = documents.c.id.in_([str(one) for one in versions])
                rows.remove(documents, documents.c.kind == _REPORT, are_gone)
