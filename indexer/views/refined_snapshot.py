"""Refined snapshot: what a version is searched with when its items were refined, beside its other files, in
a folder of the refiner and its steps: the same arrays and an index, over the refined embeddings.

It follows from embeddings, neighbor lists and refiner. A folder is made once and never changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from vicinal.calibration.arrays import FloatArray, Ints
from vicinal.indexer.cluster import Cluster
from vicinal.indexer.engines import EngineSource
from vicinal.indexer.errors import GalleryError
from vicinal.indexer.graph.neighbor_graph import build_neighbor_graph
from vicinal.indexer.storage.files import OnRead, appearing, uncounted
from vicinal.indexer.views.snapshot import (
    SNAPSHOT_FILES,
    DerivedFiles,
    DerivedManifest,
    Snapshot,
    built_index,
    read_manifest,
    rebuild_index,
    write_derived,
)
from vicinal.models.progress import OnProgress, no_progress
from vicinal.models.runtime import Device
from vicinal.refine.context_refiner import ContextRefiner

_MANIFEST = "refined.json"
_INDEX = "refined.index"
_PREFIX = "refined-"
# Items that a machine of a cluster refines at a time, or a multiple of them: whole chunks of the refiner.
_APART = 8192


@dataclass(frozen=True)
class RefinementPlan:
    """Refinement of new versions' items: all `by_default`, otherwise if their predecessor was."""

    refiner: ContextRefiner
    n_steps: int
    by_default: bool = True
    device: Device = "cpu"

    def apply(
        self,
        snapshot: Snapshot,
        before: Iterable[tuple[str, int]] = (),
        *,
        index_device: str = "cpu",
        cluster: Cluster | None = None,
        on_progress: OnProgress = no_progress,
    ) -> None:
        """Refine the items of a version, unless it was embedded with another bundle or they are refined."""
        if snapshot.manifest.bundle != self.refiner.bundle.fingerprint:
            return
        steps = {self.n_steps} if self.by_default else set()
        steps |= {n for refiner, n in before if refiner == self.refiner.fingerprint}
        for n_steps in sorted(steps):
            if RefinedSnapshot.open(snapshot, self.refiner.fingerprint, n_steps) is None:
                write_refined(
                    snapshot,
                    self.refiner,
                    n_steps,
                    device=self.device,
                    index_device=index_device,
                    cluster=cluster,
                    on_progress=on_progress,
                )


class RefinedManifest(DerivedManifest):
    """Content of `refined.json`, beside what `DerivedManifest` says."""

    refiner: str
    n_steps: int
    n_neighbors: int


class RefinedSnapshot:
    """The refined items of one version, opened for searching."""

    def __init__(self, files: DerivedFiles[RefinedManifest], snapshot: Snapshot) -> None:
        self.path = files.path
        self.manifest = files.manifest
        index = files.index(_INDEX, snapshot.tables)
        self.embeddings = files.vectors("refined", index, snapshot.manifest.dim)
        self.graph = files.graph()
        self.index = snapshot.served(index, self.embeddings, self.graph.similarities)
        self._contexts = snapshot.neighbor_ids[:, : files.manifest.n_neighbors]

    @classmethod
    def open(cls, snapshot: Snapshot, refiner: str, n_steps: int) -> Self | None:
        """Open the items of a version that were refined so, after comparing the files with their seals."""
        path = _folder(snapshot.path, refiner, n_steps)
        if not path.is_dir():
            return None
        return cls(_checked(path, whole=False), snapshot)

    def users_of(self, positions: Ints) -> Ints:
        """Ascending positions of the items that have one of some items in their context."""
        starts, owners = self._users
        inside = positions[positions < len(self.embeddings)]
        return np.unique(owners[_ranges(starts[inside], starts[inside + 1] - starts[inside])])

    @cached_property
    def _users(self) -> tuple[Ints, Ints]:
        """Users of contexts, who has whom: where each item's users begin, and the users."""
        flat = np.asarray(self._contexts).reshape(-1)
        order = np.argsort(flat, kind="stable")
        starts = np.searchsorted(flat[order], np.arange(len(self.embeddings) + 1))
        return starts.astype(np.int64), (order // max(1, self._contexts.shape[1])).astype(np.int64)


def _ranges(starts: Ints, sizes: Ints) -> Ints:
    """`starts[0], starts[0] + 1, ...` for `sizes[0]` numbers, then the same for the next, as one array."""
    before = np.cumsum(sizes) - sizes
    return np.repeat(starts - before, sizes) + np.arange(int(sizes.sum()))


def write_refined(
    snapshot: Snapshot,
    refiner: ContextRefiner,
    n_steps: int,
    *,
    device: Device = "cpu",
    index_device: str = "cpu",
    cluster: Cluster | None = None,
    on_progress: OnProgress = no_progress,
) -> RefinedSnapshot:
    """Refine the items of a version with their neighbors in it, and write what searches need."""
    if cluster is not None:
        embeddings = _refined_elsewhere(cluster, snapshot, refiner, n_steps, on_progress)
    else:
        embeddings = refiner.refine_gallery(
            snapshot.embeddings,
            snapshot.neighbor_ids,
            n_steps=n_steps,
            device=device,
            on_progress=lambda done, total: on_progress("refine", done, total),
        )
    path = _folder(snapshot.path, refiner.fingerprint, n_steps)
    fields = {"refiner": refiner.fingerprint, "n_steps": n_steps, "n_neighbors": refiner.n_neighbors}
    kind, version = snapshot.manifest.index_kind, snapshot.manifest.version
    with (
        built_index(kind, snapshot.tables, version, "refined", snapshot.item_table) as make_index,
        appearing(path) as staging,
    ):
        write_derived(
            staging,
            (_INDEX, _MANIFEST),
            embeddings,
            build_neighbor_graph(embeddings, device=index_device, cluster=cluster),
            {"refined": embeddings},
            make_index=make_index,
            kind=RefinedManifest,
            fields=fields,
        )
    return RefinedSnapshot(_checked(path, whole=False), snapshot)


def _refined_elsewhere(
    cluster: Cluster, snapshot: Snapshot, refiner: ContextRefiner, n_steps: int, on_progress: OnProgress
) -> FloatArray:
    refined, n_done = np.empty(snapshot.embeddings.shape, np.float32), 0
    parts = _parts(snapshot, refiner.n_neighbors)
    for start, moved in cluster.map(_refined_part, parts, cluster.share(refiner), n_steps):
        refined[start : start + len(moved)] = moved
        n_done += len(moved)
        on_progress("refine", n_done, len(refined))
    return refined


class _Part(NamedTuple):
    """Consecutive items with their neighbors, and the vectors of these alone."""

    start: int
    vectors: FloatArray  # (r, d)
    rows: Ints  # (m,) places of the items among these
    neighbor_ids: Ints  # (m, K) places of their neighbors


def _parts(snapshot: Snapshot, n_neighbors: int) -> Iterator[_Part]:
    for start in range(0, len(snapshot), _APART):
        listed = np.asarray(snapshot.neighbor_ids[start : start + _APART, :n_neighbors], dtype=np.int64)
        rows = np.arange(start, start + len(listed))
        needed = np.unique(np.concatenate([rows, listed[listed >= 0]]))
        places = np.where(listed < 0, -1, np.searchsorted(needed, listed))
        vectors = np.asarray(snapshot.embeddings[needed])
        yield _Part(start, vectors, np.searchsorted(needed, rows), places)


def _refined_part(refiner: ContextRefiner, n_steps: int, part: _Part) -> tuple[int, FloatArray]:
    moved = refiner.refine_gallery(part.vectors, part.neighbor_ids, rows=part.rows, n_steps=n_steps)
    return part.start, moved


def refinement_name(refiner: str, n_steps: int) -> str:
    """Name of a refiner and its steps, for people."""
    return f"refiner {refiner} in {n_steps} steps"


def check_refined(snapshot_path: Path, *, on_read: OnRead = uncounted) -> None:
    """Compare every byte of the files of a version's refined items."""
    for folder in _refined_folders(snapshot_path):
        _checked(folder, whole=True, on_read=on_read)


def refined_bytes(snapshot_path: Path) -> int:
    """Size of the files of a version's refined items."""
    return sum(path.stat().st_size for one in _refined_folders(snapshot_path) for path in one.iterdir())


def whole_refined_folders(snapshot_path: Path) -> list[Path]:
    """Folders of a version's refined items whose files are all as they were written; every byte is read."""
    whole = []
    for folder in _refined_folders(snapshot_path):
        with suppress(GalleryError):
            _checked(folder, whole=True)
            whole.append(folder)
    return whole


class LostTable(NamedTuple):
    """Table of a version that its engine lost, or that is another gallery's, which this one is a copy of."""

    source: EngineSource
    files: DerivedFiles[Any]
    names: tuple[str, str]
    vectors: str
    space: str


def lost_tables(snapshot: Snapshot) -> list[LostTable]:
    """Tables of a version that have to be made again; asks its engine."""
    places: list[tuple[DerivedFiles[Any], tuple[str, str], str, str]] = [
        (_checked(folder, whole=False), (_INDEX, _MANIFEST), "refined", "refined")
        for folder in _refined_folders(snapshot.path)
    ]
    # Last the version itself, with whose folder the others move.
    places.append((snapshot.files, SNAPSHOT_FILES, "embeddings", "initial"))
    sources = ((place[0].index(place[1][0], snapshot.tables), place) for place in places)
    return [
        LostTable(source, *place)
        for source, place in sources
        if isinstance(source, EngineSource) and not snapshot.tables.is_whole(source)
    ]


def mend_tables(snapshot: Snapshot) -> int:
    """Make the lost tables of a version again; their number. Who has the version open opens it again."""
    tables, version, lost = snapshot.tables, snapshot.manifest.version, lost_tables(snapshot)
    for source, files, names, vectors, space in lost:
        with built_index(source.spec, tables, version, space, snapshot.item_table) as make_index:
            rebuild_index(files, names, files.array(vectors), make_index)
        tables.drop([source.file.name])
    return len(lost)


def refinements(snapshot_path: Path) -> list[tuple[str, int]]:
    """Fingerprint and steps of each folder of refined items."""
    parts = [one.name.split("-") for one in _refined_folders(snapshot_path)]
    return [(refiner, int(n_steps)) for _, refiner, n_steps in parts]


def _refined_folders(snapshot_path: Path) -> list[Path]:
    folders = snapshot_path.glob(f"{_PREFIX}*")
    return sorted(one for one in folders if not one.name.endswith(".partial"))


def _folder(snapshot_path: Path, refiner: str, n_steps: int) -> Path:
    return snapshot_path / f"{_PREFIX}{refiner}-{n_steps}"


def _checked(path: Path, *, whole: bool, on_read: OnRead = uncounted) -> DerivedFiles[RefinedManifest]:
    files = DerivedFiles(path, read_manifest(path / _MANIFEST, RefinedManifest))
    files.check(whole=whole, on_read=on_read)
    return files
