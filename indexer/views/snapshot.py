"""Snapshot: the memory-mapped files that a version is searched with, which can be made again from its rows;
docs/decisions.md lists them.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Self, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import model_validator

from vicinal.calibration.arrays import AnyArray, AnyInts, FloatArray, Ints, Objects, ShortInts
from vicinal.calibration.frozen import Frozen
from vicinal.indexer.engines import ENGINE, EngineSource, GalleryTables, require_kept
from vicinal.indexer.engines.vectors import FetchedVectors
from vicinal.indexer.errors import DamagedGalleryError, GalleryError
from vicinal.indexer.graph.candidate_source import CandidateSource
from vicinal.indexer.graph.gpu import IndexDevices
from vicinal.indexer.graph.neighbor_graph import NeighborGraph
from vicinal.indexer.graph.vector_index import (
    GONE_KINDS,
    Candidates,
    FaissIndex,
    automatic_factories,
)
from vicinal.indexer.item_rules import DEEPEST_METADATA, MOST_METADATA_BYTES, is_deeper, n_bytes
from vicinal.indexer.storage.files import (
    CheckNotes,
    FileSeal,
    OnRead,
    appearing,
    read_sealed,
    sync_path,
    uncounted,
)
from vicinal.indexer.storage.home.places import VECTORS
from vicinal.indexer.storage.item_table import expect_single_rows
from vicinal.models.configs.sealed_json import sealed

ITEM_COLUMNS = ("id", "label", "uri", "metadata")
_MANIFEST = "snapshot.json"
_NOTE = "_truncated"
_ITEMS = "items.arrow"
_INDEX = "initial.index"
SNAPSHOT_FILES = (_INDEX, _MANIFEST)
_GRAPH = ("neighbor_ids", "neighbor_similarities")


class DerivedManifest(Frozen):
    """Content of the manifest of every folder that is made of a version's rows."""

    index: str
    candidates: Candidates
    files: dict[str, FileSeal]


Manifest = TypeVar("Manifest", bound=DerivedManifest)
BuiltIndex: TypeAlias = FaissIndex | EngineSource
IndexMaker: TypeAlias = Callable[[FloatArray], BuiltIndex]


class DerivedFiles(Generic[Manifest]):
    """The files of such a folder: made at once, sealed, and never changed afterwards; no reader gets one that
    was not compared with its seal.
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest

    def check(self, *names: str, whole: bool, on_read: OnRead = uncounted) -> None:
        """Compare some files, or all, with their seals, `whole` or by samples, up to the first that fails."""
        for name in names or self.manifest.files:
            path = self.path / name
            if self.is_left_to_engine(name):
                continue
            if not self.manifest.files[name].fits(path, whole=whole, on_read=on_read):
                raise DamagedGalleryError(f"snapshot file '{path}' is missing or damaged", path)

    def array(self, name: str) -> AnyArray:
        """Memory map of `<name>.npy`."""
        array: AnyArray = np.load(self.path / f"{name}.npy", mmap_mode="r", allow_pickle=False)
        return array

    def is_left_to_engine(self, name: str) -> bool:
        """Tell whether a file of vectors is not here because an engine holds them, too."""
        return self.manifest.index == ENGINE and name in VECTORS and not (self.path / name).exists()

    def vectors(self, name: str, index: BuiltIndex, dim: int) -> FloatArray:
        """Memory map of the vectors that an index is over; where it is not here, an array of its engine."""
        file = f"{name}.npy"
        if not isinstance(index, EngineSource) or not self.is_left_to_engine(file):
            return self.array(name)
        fetched: Any = FetchedVectors(index.fetch, (index.file.n_items, dim))
        return fetched

    def table(self, name: str) -> pa.Table:
        """Memory map of an Arrow table, every byte of which is compared first."""
        self.check(name, whole=True)
        return pa.ipc.open_file(pa.memory_map(str(self.path / name))).read_all()

    def graph(self) -> NeighborGraph:
        """Memory maps of a neighbor graph."""
        return NeighborGraph(*(self.array(name) for name in _GRAPH))

    def index(self, name: str, tables: GalleryTables) -> BuiltIndex:
        """The vector index in a file."""
        manifest, path = self.manifest, self.path / name
        if manifest.index == ENGINE:
            return tables.open(path, manifest.candidates, manifest.files[name])
        return FaissIndex.open(path, manifest.index, manifest.candidates, manifest.files[name])


def read_manifest(file: Path, kind: type[Manifest]) -> Manifest:
    """Manifest in a file."""
    try:
        return kind.model_validate_json(read_sealed(file))
    except (OSError, ValueError) as error:
        raise DamagedGalleryError(f"snapshot manifest '{file}' is missing or damaged", file) from error


def write_derived(
    folder: Path,
    names: tuple[str, str],
    embeddings: FloatArray,
    graph: NeighborGraph,
    arrays: Mapping[str, AnyArray],
    *,
    make_index: IndexMaker,
    kind: type[DerivedManifest],
    fields: Mapping[str, Any],
) -> None:
    """Write arrays, graph and an index over the embeddings into a folder, and the manifest of all in it."""
    for name, array in {**arrays, **dict(zip(_GRAPH, vars(graph).values(), strict=True))}.items():
        np.save(folder / f"{name}.npy", array)
    vector_index = make_index(embeddings)
    vector_index.save(folder / names[0])
    seals = {file.name: FileSeal.of(file) for file in sorted(folder.iterdir())}
    manifest = kind(**fields, index=vector_index.spec, candidates=vector_index.candidates, files=seals)
    (folder / names[1]).write_bytes(sealed(manifest.model_dump_json(indent=2)))
    for file in (*folder.iterdir(), folder):
        sync_path(file)


class SnapshotManifest(DerivedManifest):
    """Content of `snapshot.json` beside what `DerivedManifest` says: fingerprints of bundle and of a refiner
    kept for ready embeddings, else empty. Rows with a sequence or patch from `next_number` on came later.
    """

    version: int
    revision: int
    bundle: str
    bundle_name: str
    refiner: str = ""
    # Table of an engine that the items were copied from; empty as a rule.
    table: str = ""
    dim: int
    n_items: int
    n_labels: int
    next_number: int

    @model_validator(mode="before")
    @classmethod
    def _leave_out_encodings(cls, given: Any) -> Any:
        # A version may hold encodings beside its files, which nothing reads.
        return {name: one for name, one in given.items() if name != "encodings_k1"}

    @property
    def index_kind(self) -> str:
        """The kind of index that was chosen by hand, or `auto`."""
        kinds = automatic_factories(self.n_items, self.dim)
        return "auto" if self.index in kinds or self.index.startswith(GONE_KINDS) else self.index


@dataclass(frozen=True)
class SnapshotRows:
    """Rows that a snapshot is made of, one an item in gallery order."""

    items: pa.Table
    sequences: Ints
    embeddings: FloatArray
    graph: NeighborGraph


class Snapshot:
    """Version opened for searching. Arrays are memory maps: (n, d) L2-normalized `embeddings`, which `index`
    is over, (n, K) lists of neighbors, and (n,) `sequences`, ascending, of its rows in the table.
    """

    def __init__(self, files: DerivedFiles[SnapshotManifest], tables: GalleryTables | None = None) -> None:
        self.path = files.path
        self.tables = tables or GalleryTables(files.path.parent.parent)
        self.manifest = files.manifest
        self.sequences: Ints = files.array("sequences")
        graph = files.graph()
        self.neighbor_ids: ShortInts = graph.ids
        self.neighbor_similarities: FloatArray = graph.similarities
        with ThreadPoolExecutor(1) as beside:
            # Every byte of both is compared, which holds up nothing else in Python.
            items = beside.submit(files.table, _ITEMS)
            self._built_index = files.index(_INDEX, self.tables)
            self.embeddings = files.vectors("embeddings", self._built_index, self.manifest.dim)
            self.item_table = items.result()
        self._devices: IndexDevices | None = None
        self.files = files
        self._sources: dict[str, EngineSource] = {}
        # What is mapped stays when the folder is made again.
        self._folder = files.path.stat().st_ino
        self.index = self.served(self._built_index, self.embeddings, self.neighbor_similarities)

    @classmethod
    def open(cls, path: Path, tables: GalleryTables | None = None) -> Self:
        """Open a snapshot after comparing its files with their seals; one whose candidates an engine finds is
        searched by the tables of its gallery.
        """
        files = _files(path)
        require_kept(files.manifest.index)
        files.check(whole=False)
        return cls(files, tables)

    def __len__(self) -> int:
        return self.manifest.n_items

    @property
    def n_bytes(self) -> int:
        """Size of the files."""
        return sum(seal.n_bytes for seal in self.manifest.files.values())

    @property
    def lacks_table(self) -> bool:
        """Tell whether a table that it is searched by is gone from its engine, or another gallery's."""
        return any(source.is_lost or source.is_foreign for source in list(self._sources.values()))

    @property
    def is_replaced(self) -> bool:
        """Tell whether other files lie where these were opened."""
        try:
            return self.path.stat().st_ino != self._folder
        except OSError:
            return True

    def serve(self, devices: IndexDevices) -> None:
        """Expect searches alone from now on, on some devices, also of refined items that are opened later."""
        self._devices = devices
        self.index = self.served(self._built_index, self.embeddings, self.neighbor_similarities)

    def served(self, index: BuiltIndex, embeddings: FloatArray, similarities: FloatArray) -> CandidateSource:
        """An index over vectors of this version, on the devices that it is searched on; where it is opened
        for searches only, single rows of these memory maps are read.
        """
        if isinstance(index, EngineSource):
            self._sources[index.file.name] = index
        if self._devices is None:
            return index
        placed = self._devices.placed(index, embeddings) if isinstance(index, FaissIndex) else index
        # From now on only: a GPU takes all rows in order.
        for array in (embeddings, similarities):
            expect_single_rows(array)
        return placed

    def check(self, *, on_read: OnRead = uncounted) -> None:
        """Compare every byte of the files."""
        self.files.check(whole=True, on_read=on_read)

    @property
    def labels(self) -> Objects:
        """(n,) labels, None where an item has none."""
        return np.asarray(self.item_table["label"].to_numpy(zero_copy_only=False), dtype=object)

    def items(self, positions: Sequence[int] | AnyInts) -> list[dict[str, Any]]:
        """Id, label, uri and metadata of some items, in the given order."""
        return items_at(self.item_table, positions)


def items_at(table: pa.Table, positions: Sequence[int] | AnyInts) -> list[dict[str, Any]]:
    """Rows of a table with `ITEM_COLUMNS`, in the given order, their metadata parsed."""
    rows = table.select(ITEM_COLUMNS).take(pa.array(positions, pa.int64())).to_pylist()
    return [{**row, "metadata": served_metadata(row["metadata"])} for row in rows]


def served_metadata(text: str | None) -> dict[str, Any]:
    """Stored metadata as an answer can carry them; what is cut off is said under `_truncated`."""
    if not text:
        return {}
    # Of what is neither long nor full of brackets, nothing has to be cut.
    if len(text) <= MOST_METADATA_BYTES // 4 and text.count("{") + text.count("[") <= DEEPEST_METADATA:
        return dict(json.loads(text))
    try:
        metadata = json.loads(text)
    except RecursionError:
        return {_NOTE: f"these metadata are nested too deep to be read ({len(text):,} characters)"}
    reasons = []
    if is_deeper(metadata, DEEPEST_METADATA):
        metadata = _cut(metadata, DEEPEST_METADATA)
        reasons.append(f"nested more than {DEEPEST_METADATA} deep")
    if (size := n_bytes(metadata)) > MOST_METADATA_BYTES:
        metadata = _first_members(metadata, MOST_METADATA_BYTES)
        reasons.append(f"{size:,} bytes, of which at most {MOST_METADATA_BYTES:,} are shown")
    return {**metadata, _NOTE: f"these metadata are {' and '.join(reasons)}"} if reasons else metadata


def _cut(value: Any, levels: int) -> Any:
    """A value without what lies deeper than some levels."""
    if isinstance(value, dict):
        return {key: _cut(part, levels - 1) for key, part in value.items()} if levels else None
    if isinstance(value, list):
        return [_cut(part, levels - 1) for part in value] if levels else None
    return value


def _first_members(metadata: dict[str, Any], most: int) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, value in metadata.items():
        if (size := n_bytes({key: value})) <= most:
            kept[key] = value
            most -= size
    return kept


def read_snapshot_ahead(path: Path) -> None:
    """Let the disk begin to read the files in a snapshot's folder that opening it compares byte by byte."""
    if not hasattr(os, "posix_fadvise"):
        return
    for file in (path / _INDEX, path / _ITEMS, *path.glob("*/*.index")):
        with file.open("rb") as stream:
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)


def intact_graph(path: Path) -> NeighborGraph | None:
    """Neighbor graph of a snapshot whose other files may be damaged; None where its own are."""
    try:
        files = _files(path)
        files.check(*(f"{name}.npy" for name in _GRAPH), whole=True)
    except GalleryError:
        return None
    return files.graph()


def write_snapshot(
    path: Path,
    rows: SnapshotRows,
    *,
    index: str,
    fields: dict[str, Any],
    kept: Sequence[Path] = (),
    tables: GalleryTables | None = None,
) -> Snapshot:
    """Write all files of a version, so that it appears at `path` whole or not at all; `tables` are those of
    its gallery, where an engine is to find its candidates.
    """
    with (
        built_index(index, tables, fields["version"], "initial", rows.items) as make_index,
        appearing(path) as staging,
    ):
        embeddings, graph, items = rows.embeddings, rows.graph, rows.items
        with pa.OSFile(str(staging / _ITEMS), "wb") as sink, pa.ipc.new_file(sink, items.schema) as writer:
            writer.write_table(items.combine_chunks())
        write_derived(
            staging,
            SNAPSHOT_FILES,
            embeddings,
            graph,
            {
                "embeddings": embeddings,
                "sequences": rows.sequences,
            },
            make_index=make_index,
            kind=SnapshotManifest,
            fields={
                **fields,
                "dim": embeddings.shape[1],
                "n_items": len(embeddings),
                "n_labels": pc.count_distinct(items["label"]).as_py(),
            },
        )
        for folder in kept:
            # Links, so that a crash leaves them where they are.
            shutil.copytree(folder, staging / folder.name, copy_function=os.link)
    return Snapshot.open(path, tables)


@contextmanager
def built_index(
    kind: str,
    tables: GalleryTables | None,
    version: int,
    space: str,
    items: pa.Table,
) -> Iterator[IndexMaker]:
    """Maker of a version's index, whose table in an engine goes again where its files are not finished."""
    made, named = list[EngineSource](), ExitStack()

    def make(embeddings: FloatArray) -> BuiltIndex:
        require_kept(kind)
        if kind != ENGINE:
            return FaissIndex.build(embeddings, kind)
        if tables is None:
            raise GalleryError(f"an index '{kind}' belongs to a gallery: there is none")
        name = named.enter_context(tables.naming(version, space))
        made.append(EngineSource.build(tables.engine, name, embeddings, items))
        return made[-1]

    with named:
        try:
            yield make
        except BaseException:
            for one in made:
                # Whoever deleted the gallery meanwhile took the note whose tables these are.
                one.drop()
            raise


def rebuild_index(
    files: DerivedFiles[Manifest], names: tuple[str, str], embeddings: FloatArray, make_index: IndexMaker
) -> None:
    """Make the index of a folder again, and nothing else in it."""
    with appearing(files.path) as staging:
        shutil.copytree(
            files.path,
            staging,
            copy_function=os.link,
            ignore=shutil.ignore_patterns(*names, *CheckNotes.NAMES),
            dirs_exist_ok=True,
        )
        made = make_index(embeddings)
        made.save(staging / names[0])
        seals = {**files.manifest.files, names[0]: FileSeal.of(staging / names[0])}
        manifest = files.manifest.model_copy(update={"candidates": made.candidates, "files": seals})
        (staging / names[1]).write_bytes(sealed(manifest.model_dump_json(indent=2)))
        for name in names:
            sync_path(staging / name)
        sync_path(staging)


def _files(path: Path) -> DerivedFiles[SnapshotManifest]:
    return DerivedFiles(path, snapshot_manifest(path))


def snapshot_manifest(path: Path) -> SnapshotManifest:
    """Manifest of the snapshot in a folder."""
    return read_manifest(path / _MANIFEST, SnapshotManifest)


def places_of(ascending: Ints, values: Ints) -> Ints:
    """Places of values in an ascending array, of the shape of the values; -1 where they are not in it."""
    if not len(ascending):
        return np.full(np.shape(values), -1, dtype=np.int64)
    places = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    return np.where(ascending[places] == values, places, -1)
