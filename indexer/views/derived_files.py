"""Derived files: a folder that is made of a version's rows at once, sealed, and never changed afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict

from vicinal.calibration.arrays import AnyArray, FloatArray
from vicinal.indexer.errors import DamagedGalleryError
from vicinal.indexer.graph.neighbor_graph import NeighborGraph
from vicinal.indexer.graph.vector_index import Candidates, FaissIndex
from vicinal.indexer.storage.files import FileSeal, read_sealed, sync_path
from vicinal.indexer.storage.sealed_folder import SealedFolder
from vicinal.models.configs.sealed_json import sealed

_GRAPH = ("neighbor_ids", "neighbor_similarities")


class DerivedManifest(BaseModel):
    """Content of every manifest of such a folder."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    index: str
    candidates: Candidates
    files: dict[str, FileSeal]


Manifest = TypeVar("Manifest", bound=DerivedManifest)


class DerivedFiles(SealedFolder, Generic[Manifest]):
    """The files of one folder."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        super().__init__(path, manifest.files)
        self.manifest = manifest

    def graph(self) -> NeighborGraph:
        """Memory maps of a neighbor graph."""
        return NeighborGraph(*(self.array(name) for name in _GRAPH))

    def index(self, name: str) -> FaissIndex:
        """The vector index in a file."""
        return FaissIndex.open(
            self.path / name, self.manifest.index, self.manifest.candidates, self.seals[name]
        )


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
