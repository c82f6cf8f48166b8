"""Engines that find the nearest of many vectors: Vicinal's own line, and what a user would take instead.

Each is built as its makers advise for a recall of .98 and more, and is searched with an effort that the
benchmark chooses by the recall it gives.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

import faiss
import numpy as np
import numpy.typing as npt

from benchmarks.common.large_gallery import write_bundle, write_gallery
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.reader import GalleryReader
from vicinal.models.similarity import FloatArray
from vicinal.service.scoring.pipeline import Pipeline, Refine, Rerank
from vicinal.service.scoring.scorer import Scorer

__all__ = ["ENGINES", "Engine"]

Positions = npt.NDArray[np.int64]

# Edges a node, and candidates while the graph is built: what hnswlib and Faiss advise for high recall.
_EDGES, _BUILD_EFFORT = 32, 200
_EFFORTS = (16, 32, 64, 128, 256, 512, 1024)


class Engine(ABC):
    """An index over the positions of vectors.

    Args:
        items: (n, d) float32 unit vectors.
        folder: An empty folder for its files.

    Attributes:
        efforts: What a search can be told to spend, least first.
        n_bytes: What it keeps of all items, vectors included: in memory, or in its files.
    """

    efforts: tuple[int, ...] = _EFFORTS
    n_bytes: int

    @abstractmethod
    def __init__(self, items: FloatArray, folder: Path) -> None: ...

    @abstractmethod
    def search(self, queries: FloatArray, k: int, effort: int) -> Positions:
        """(B, k) positions of the nearest by inner product, best first, of (B, d) queries."""


class Vicinal(Engine):
    """The service's own code, from the index on the disk to exact scores; it has one effort.

    It scores 400 candidates to decide among 100, whatever k is: matches do not depend on the limit.
    """

    efforts = (0,)

    def __init__(self, items: FloatArray, folder: Path) -> None:
        gallery = Gallery(folder / "gallery")
        write_gallery(gallery, items, write_bundle(folder / "bundle", items.shape[1]))
        snapshot = GalleryReader(gallery).view().snapshot
        files = [snapshot.path / name for name in ("initial.index", "embeddings.npy")]
        self.n_bytes = sum(file.stat().st_size for file in files)
        self._scorer = Scorer(snapshot, Pipeline(refine=Refine(sides="off"), rerank=Rerank(method="off")))

    def search(self, queries: FloatArray, k: int, effort: int) -> Positions:
        """See `Engine`."""
        del effort
        return self._scorer.score(queries, k).positions


class FaissHnsw(Engine):
    """Faiss, HNSW over full vectors."""

    def __init__(self, items: FloatArray, folder: Path) -> None:
        self._index = faiss.IndexHNSWFlat(items.shape[1], _EDGES, faiss.METRIC_INNER_PRODUCT)
        self._index.hnsw.efConstruction = _BUILD_EFFORT
        self._index.add(items)
        faiss.write_index(self._index, str(folder / "index"))
        self.n_bytes = (folder / "index").stat().st_size

    def search(self, queries: FloatArray, k: int, effort: int) -> Positions:
        """See `Engine`."""
        return self._index.search(queries, k, params=faiss.SearchParametersHNSW(efSearch=effort))[1]


class FaissRefined(Engine):
    """Faiss, 4-bit product quantization in inverted lists, and its own exact re-scoring of 4k candidates."""

    def __init__(self, items: FloatArray, folder: Path) -> None:
        n, dim = items.shape
        lists = 2 ** round(np.log2(4.0 * np.sqrt(n)))
        spec = f"IVF{lists},PQ{dim // 2}x4fs,RFlat"
        self._index = faiss.index_factory(dim, spec, faiss.METRIC_INNER_PRODUCT)
        self._index.train(items)
        self._index.add(items)
        faiss.write_index(self._index, str(folder / "index"))
        self.n_bytes = (folder / "index").stat().st_size

    def search(self, queries: FloatArray, k: int, effort: int) -> Positions:
        """See `Engine`."""
        probes = faiss.SearchParametersIVF(nprobe=effort)
        parameters = faiss.IndexRefineSearchParameters(k_factor=4, base_index_params=probes)
        return self._index.search(queries, k, params=parameters)[1]


class Hnswlib(Engine):
    """hnswlib, over full vectors."""

    def __init__(self, items: FloatArray, folder: Path) -> None:
        import hnswlib

        self._index = hnswlib.Index("ip", items.shape[1])
        self._index.init_index(len(items), M=_EDGES // 2, ef_construction=_BUILD_EFFORT)
        self._index.add_items(items)
        self._index.save_index(str(folder / "index"))
        self.n_bytes = (folder / "index").stat().st_size

    def search(self, queries: FloatArray, k: int, effort: int) -> Positions:
        """See `Engine`."""
        self._index.set_ef(effort)
        return self._index.knn_query(queries, k)[0].astype(np.int64)


class Usearch(Engine):
    """USearch, HNSW over vectors in bfloat16."""

    def __init__(self, items: FloatArray, folder: Path) -> None:
        from usearch.index import Index

        del folder
        self._index = Index(
            ndim=items.shape[1],
            metric="ip",
            dtype="bf16",
            connectivity=_EDGES // 2,
            expansion_add=_BUILD_EFFORT,
        )
        self._index.add(np.arange(len(items)), items)
        self.n_bytes = self._index.serialized_length

    def search(self, queries: FloatArray, k: int, effort: int) -> Positions:
        """See `Engine`."""
        self._index.expansion_search = effort
        return np.atleast_2d(self._index.search(queries, k).keys).astype(np.int64)


class Scann(Engine):
    """ScaNN: a tree, anisotropic 4-bit quantization, and exact re-scoring of 100 candidates."""

    def __init__(self, items: FloatArray, folder: Path) -> None:
        import scann

        n = len(items)
        n_leaves, n_trained = int(2 * np.sqrt(n)), min(n, 250_000)
        self._index = (
            scann.scann_ops_pybind.builder(items, 10, "dot_product")
            .tree(num_leaves=n_leaves, num_leaves_to_search=32, training_sample_size=n_trained)
            .score_ah(2, anisotropic_quantization_threshold=0.2)
            .reorder(100)
            .build()
        )
        self._index.serialize(str(folder))
        self.n_bytes = _size(folder)

    def search(self, queries: FloatArray, k: int, effort: int) -> Positions:
        """See `Engine`."""
        if len(queries) == 1:
            return self._index.search(queries[0], k, 100, effort)[0][None].astype(np.int64)
        found = self._index.search_batched_parallel(queries, k, 100, effort)
        return found[0].astype(np.int64)


class QdrantEdge(Engine):
    """Qdrant's engine in this process: HNSW over 8-bit codes in memory, and full vectors to re-score with."""

    def __init__(self, items: FloatArray, folder: Path) -> None:
        import qdrant_edge as qdrant

        self._qdrant = qdrant
        codes = qdrant.ScalarQuantizationConfig(type=qdrant.ScalarType.Int8, always_ram=True)
        vectors = qdrant.EdgeVectorParams(
            size=items.shape[1], distance=qdrant.Distance.Dot, quantization_config=codes
        )
        graph = qdrant.HnswIndexConfig(m=_EDGES // 2, ef_construct=_BUILD_EFFORT, full_scan_threshold=10)
        config = qdrant.EdgeConfig(vectors=vectors, hnsw_config=graph)
        self._shard = qdrant.EdgeShard.create(str(folder), config)
        for start in range(0, len(items), 1000):
            points = [
                qdrant.Point(id=start + i, vector=row.tolist())
                for i, row in enumerate(items[start : start + 1000])
            ]
            self._shard.update(qdrant.UpdateOperation.upsert_points(points))
        self._shard.optimize()
        self._shard.flush()
        self.n_bytes = _size(folder)

    def search(self, queries: FloatArray, k: int, effort: int) -> Positions:
        """See `Engine`."""
        qdrant = self._qdrant
        codes = qdrant.QuantizationSearchParams(rescore=True, oversampling=2.0)
        parameters = qdrant.SearchParams(hnsw_ef=effort, quantization=codes)
        rows = [
            self._shard.query(
                qdrant.QueryRequest(limit=k, query=qdrant.Query.Nearest(row.tolist()), params=parameters)
            )
            for row in queries
        ]
        return np.array([[point.id for point in row] for row in rows], np.int64)


class Lance(Engine):
    """Lance: inverted lists of product codes in its table, and exact re-scoring of 20 times k candidates."""

    def __init__(self, items: FloatArray, folder: Path) -> None:
        import lance
        import pyarrow as pa

        from vicinal.indexer.storage.arrays import as_fixed_lists

        table = pa.table({"id": pa.array(np.arange(len(items))), "vector": as_fixed_lists(items)})
        self._table = lance.write_dataset(table, str(folder / "table.lance"))
        self._table.create_index(
            "vector",
            "IVF_PQ",
            metric="dot",
            num_partitions=int(np.sqrt(len(items))),
            num_sub_vectors=items.shape[1] // 8,
        )
        self.n_bytes = _size(folder)

    def search(self, queries: FloatArray, k: int, effort: int) -> Positions:
        """See `Engine`."""
        rows = []
        for query in queries:
            nearest = {"column": "vector", "q": query, "k": k, "nprobes": effort, "refine_factor": 20}
            rows.append(self._table.to_table(columns=["id", "_distance"], nearest=nearest)["id"].to_numpy())
        return np.stack(rows).astype(np.int64)


class MilvusLite(Engine):
    """Milvus Lite, HNSW, in its own process over a local socket."""

    def __init__(self, items: FloatArray, folder: Path) -> None:
        from pymilvus import DataType, MilvusClient

        self._client = MilvusClient(str(folder / "milvus.db"))
        schema = self._client.create_schema(auto_id=False)
        schema.add_field("id", DataType.INT64, is_primary=True)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=items.shape[1])
        index = self._client.prepare_index_params()
        index.add_index(
            "vector",
            index_type="HNSW",
            metric_type="IP",
            params={"M": _EDGES // 2, "efConstruction": _BUILD_EFFORT},
        )
        self._client.create_collection("items", schema=schema)
        for start in range(0, len(items), 2000):
            rows = [
                {"id": start + i, "vector": row.tolist()} for i, row in enumerate(items[start : start + 2000])
            ]
            self._client.insert("items", rows)
        self._client.flush("items")
        self._client.create_index("items", index)
        self._client.load_collection("items")
        self.n_bytes = _size(folder)

    def search(self, queries: FloatArray, k: int, effort: int) -> Positions:
        """See `Engine`."""
        found = self._client.search(
            "items", queries.tolist(), limit=k, search_params={"params": {"ef": max(effort, k)}}
        )
        return np.array([[hit["id"] for hit in row] for row in found], np.int64)


ENGINES: dict[str, type[Engine]] = {
    "Vicinal": Vicinal,
    "Faiss, IVF-PQ re-scored": FaissRefined,
    "Faiss, HNSW": FaissHnsw,
    "hnswlib": Hnswlib,
    "USearch": Usearch,
    "ScaNN": Scann,
    "Qdrant Edge": QdrantEdge,
    "Lance": Lance,
    "Milvus Lite": MilvusLite,
}


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
