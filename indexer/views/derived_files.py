"""Derived files: a folder that is made of a version's rows at once, sealed, and never changed afterwards.

No reader gets a file of it that was not compared with its seal; see `storage.seals`.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from vicinal.calibration.arrays import AnyArray, FloatArray
from vicinal.indexer.errors import DamagedGalleryError
from vicinal.indexer.graph.neighbor_graph import NeighborGraph
from vicinal.indexer.graph.vector_index import Candidates, FaissIndex
from vicinal.indexer.storage.files import make_folder, making_in, read_sealed, storing, sync_path
from vicinal.indexer.storage.seals import FileSeal, OnRead, uncounted
from vicinal.models.configs.sealed_json import sealed

_GRAPH = ("neighbor_ids", "neighbor_similarities")


class DerivedManifest(BaseModel):
    """What every manifest of such a folder says.

    Attributes:
        index: Kind of the vector index.
        candidates: How many of the index hold the nearest items.
        files: What each file must look like.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    index: str
    candidates: Candidates
    files: dict[str, FileSeal]


Manifest = TypeVar("Manifest", bound=DerivedManifest)


class DerivedFiles(Generic[Manifest]):
    """The files of one folder.

    Args:
        path: The folder.
        manifest: Its manifest.
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest

    @property
    def n_bytes(self) -> int:
        """Size of the files together."""
        return sum(seal.n_bytes for seal in self.manifest.files.values())

    def damaged(self, *, whole: bool) -> list[str]:
        """Names of the files that are missing or are not what they were.

        Args:
            whole: Compare every byte, and not only samples of large files.
        """
        seals = self.manifest.files.items()
        return [name for name, seal in seals if not seal.fits(self.path / name, whole=whole)]

    def check(self, *, whole: bool, on_read: OnRead = uncounted) -> None:
        """Compare the files with their seals, up to the first that does not fit.

        Args:
            whole: Compare every byte, and not only samples of large files.
        """
        for name, seal in self.manifest.files.items():
            path = self.path / name
            if not seal.fits(path, whole=whole, on_read=on_read):
                raise DamagedGalleryError(f"snapshot file '{path}' is missing or damaged", path)

    def array(self, name: str) -> AnyArray:
        """Memory map of `<name>.npy`."""
        array: AnyArray = np.load(self.path / f"{name}.npy", mmap_mode="r", allow_pickle=False)
        return array

    def graph(self) -> NeighborGraph:
        """Memory maps of a neighbor graph."""
        return NeighborGraph(*(self.array(name) for name in _GRAPH))

    def index(self, name: str) -> FaissIndex:
        """The vector index in a file."""
        return FaissIndex.open(
            self.path / name, self.manifest.index, self.manifest.candidates, self.manifest.files[name]
        )

    def table(self, name: str) -> pa.Table:
        """Memory map of an Arrow table."""
        path = self.path / name
        if not self.manifest.files[name].fits(path, whole=True):
            raise DamagedGalleryError(f"snapshot file '{path}' is missing or damaged", path)
        return pa.ipc.open_file(pa.memory_map(str(path))).read_all()


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
    index: str,
    kind: type[DerivedManifest],
    fields: Mapping[str, Any],
) -> None:
    """Write arrays, graph and vector index into a folder, and the manifest of all that is in it.

    Args:
        embeddings: (n, d) float32 that the index is built over.
    """
    for name, array in {**arrays, **dict(zip(_GRAPH, (graph.ids, graph.similarities), strict=True))}.items():
        np.save(folder / f"{name}.npy", array)
    vector_index = FaissIndex.build(embeddings, index)
    vector_index.save(folder / names[0])
    seals = {file.name: FileSeal.of(file) for file in sorted(folder.iterdir())}
    manifest = kind(**fields, index=vector_index.spec, candidates=vector_index.candidates, files=seals)
    (folder / names[1]).write_bytes(sealed(manifest.model_dump_json(indent=2)))
    for file in (*folder.iterdir(), folder):
        sync_path(file)


@contextmanager
def appearing(path: Path) -> Iterator[Path]:
    """A folder to write into that appears at a path whole or not at all, in place of what is there."""
    # Names of their own: two processes may find the same version damaged at the same time.
    token = secrets.token_hex(4)
    staging, before = (path.with_name(f"{path.name}.{token}.{end}.partial") for end in ("new", "old"))
    make_folder(path.parent)
    try:
        with making_in(path.parent), storing(f"version '{path}'"):
            staging.mkdir(mode=0o700)
            yield staging
            if path.exists():
                path.rename(before)
            staging.rename(path)
            sync_path(path.parent)
    finally:
        for folder in (staging, before):
            shutil.rmtree(folder, ignore_errors=True)
