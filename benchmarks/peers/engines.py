"""Engines that find the nearest of many vectors: Vicinal's own line, and what a user would take instead.

Each is built as its makers advise for a recall of .98 and more, and is searched with an effort that the
benchmark chooses by the recall it gives. It is built into a folder once, and opened from it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

import faiss
import numpy as np
import numpy.typing as npt

from benchmarks.common.large_gallery import write_bundle, write_gallery
from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.graph.neighbor_graph import N_NEIGHBORS, NeighborGraph
from vicinal.indexer.graph.vector_index import shared_out
from vicinal.indexer.reader import GalleryReader
from vicinal.models.similarity import exact_similarities
from vicinal.service.search.pipeline import Pipeline, Refine, Rerank
from vicinal.service.search.scorer import Scorer

__all__ = ["ENGINES", "Engine"]

Positions = npt.NDArray[np.int64]

# Edges a node, and candidates while the graph is built: what hnswlib and Faiss advise for high recall.
_EDGES, _BUILD_EFFORT = 32, 200
_EFFORTS = (16, 32, 64, 128, 256, 512, 1024)


class Engine(ABC):
    """An index over the positions of vectors, opened from the folder that it was built into.

    Args:
        folder: The folder.

    Attributes:
        efforts: What a search can be told to spend, least first.
        builds: Name of the engine whose files it opens, where it has none of its own.
    """

    efforts: tuple[int, ...] = _EFFORTS
    builds: str | None = None

    @staticmethod
    @abstractmethod
    def build(items: FloatArray, folder: Path) -> None:
        """Build it over (n, d) float32 unit vectors into an empty folder."""

    @abstractmethod
    def __init__(self, folder: Path) -> None: ...

    @abstractmethod
    def search(self, queries: FloatArray, k: int, effort: int) -> Positions:
        """(B, k) positions of the nearest by inner product, best first, of (B, d) queries."""

    @staticmethod
    def files(folder: Path) -> list[Path]:
        """What it keeps of the items, their vectors included."""
        return [path for path in folder.rglob("*") if path.is_file()]


class Vicinal(Engine):
    """The service's own code, from the index on the disk to a decision: its effort is measured at the build.

    It scores 400 candidates to decide among 100, whatever k is: matches do not depend on the limit.
    """

    efforts = (0,)

    @classmethod
    def build(cls, items: FloatArray, folder: Path) -> None:
        """See `Engine`; neighbor lists, which such a search does not use, are left empty."""
        n = len(items)
        lists = NeighborGraph(
            np.full((n, N_NEIGHBORS), -1, np.int32), np.full((n, N_NEIGHBORS), -np.inf, np.float32)
        )
        bundle = write_bundle(folder / "bundle", items.shape[1])
        write_gallery(Gallery(folder / "gallery"), items, bundle, graph=lists)

    def __init__(self, folder: Path) -> None:
        self._view = GalleryReader(Gallery(folder / "gallery")).view()
        pipeline = Pipeline(refine=Refine(sides="off"), rerank=Rerank(method="off"))
        self._scorer = Scorer(self._view, pipeline)

    def search(self, queries: FloatArray, k: int, effort: int) -> Positions:
        """See `Engine`."""
        del effort
        return self._scorer.score(queries, k).positions

    @staticmethod
    def files(folder: Path) -> list[Path]:
        """See `Engine`: of the version's files those that a search reads."""
        wanted = ("initial.index", "embeddings.npy")
        return [path for path in folder.rglob("*") if path.name in wanted]


class VicinalNearest(Vicinal):
    """The same index and the same exact scores, but of the k nearest alone, as the others find them."""

    builds = "Vicinal"

    def search(self, queries: FloatArray, k: int, effort: int) -> Positions:
        """See `Engine`."""
        del effort
        blocks = [queries[start : start + 16] for start in range(0, len(queries), 16)]
        return np.concatenate(shared_out(lambda block: self._nearest(block, k), blocks))

    def _nearest(self, queries: FloatArray, k: int) -> Positions:
        found = self._view.nearest(queries, k)
        scores = exact_similarities(queries, self._view.vectors(found))
        return np.take_along_axis(found, np.lexsort((found, -scores), axis=1)[:, :k], axis=1)


class FaissHnsw(Engine):
    """Faiss, HNSW over full vectors."""

    @staticmethod
    def build(items: FloatArray, folder: Path) -> None:
        """See `Engine`."""
        index = faiss.IndexHNSWFlat(items.shape[1], _EDGES, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = _BUILD_EFFORT
        index.add(items)
        faiss.write_index(index, str(folder / "index"))

    def __init__(self, folder: Path) -> None:
        self._index = faiss.read_index(str(folder / "index"))

    def search(self, queries: FloatArray, k: int, effort: int) -> Positions:
        """See `Engine`."""
        return self._index.search(queries, k, params=faiss.SearchParametersHNSW(efSearch=effort))[1]


class FaissRefined(Engine):
    """Faiss, 4-bit product quantization in inverted lists, and its own exact re-scoring of 4k candidates."""

    @staticmethod
    def build(items: FloatArray, folder: Path) -> None:
        """See `Engine`."""
        n, dim = items.shape
        lists = 2 ** round(np.log2(4.0 * np.sqrt(n)))
        spec = f"IVF{lists},PQ{dim // 2}x4fs,RFlat"
        index = faiss.index_factory(dim, spec, faiss.METRIC_INNER_PRODUCT)
        # What Faiss asks for at least; it would take all.
        sample = np.random.default_rng(0).choice(n, min(n, 39 * lists), replace=False)
        index.train(items[np.sort(sample)])
        index.add(items)
        faiss.write_index(index, str(folder / "index"))

    def __init__(self, folder: Path) -> None:
        self._index = faiss.read_index(str(folder / "index"))

    def search(self, queries: FloatArray, k: int, effort: int) -> Positions:
        """See `Engine`."""
        probes = faiss.SearchParametersIVF(nprobe=effort)
        parameters = faiss.IndexRefineSearchParameters(k_factor=4, base_index_params=probes)
        return self._index.search(queries, k, params=parameters)[1]


class Hnswlib(Engine):
    """hnswlib, over full vectors."""

    @staticmethod
    def build(items: FloatArray, folder: Path) -> None:
        """See `Engine`."""
        import hnswlib

        index = hnswlib.Index("ip", items.shape[1])
        index.init_index(len(items), M=_EDGES // 2, ef_construction=_BUILD_EFFORT)
        index.add_items(items)
        index.save_index(str(folder / "index"))
        (folder / "dim").write_text(str(items.shape[1]))

    def __init__(self, folder: Path) -> None:
        import hnswlib

        self._index = hnswlib.Index("ip", int((folder / "dim").read_text()))
        self._index.load_index(str(folder / "index"))

    def search(self, queries: FloatArray, k: int, effort: int) -> Positions:
        """See `Engine`."""
        self._index.set_ef(effort)
        return self._index.knn_query(queries, k)[0].astype(np.int64)


class Usearch(Engine):
    """USearch, HNSW over vectors in bfloat16."""

    @staticmethod
    def build(items: FloatArray, folder: Path) -> None:
        """See `Engine`."""
        from usearch.index import Index

        index = Index(
            ndim=items.shape[1],
            metric="ip",
            dtype="bf16",
            connectivity=_EDGES // 2,
            expansion_add=_BUILD_EFFORT,
        )
        index.add(np.arange(len(items)), items)
        index.save(str(folder / "index"))

    def __init__(self, folder: Path) -> None:
        from usearch.index import Index

        self._index = Index.restore(str(folder / "index"))

    def search(self, queries: FloatArray, k: int, effort: int) -> Positions:
        """See `Engine`."""
        self._index.expansion_search = effort
        return np.atleast_2d(self._index.search(queries, k).keys).astype(np.int64)


class Scann(Engine):
    """ScaNN: a tree, anisotropic 4-bit quantization, and exact re-scoring of 100 candidates."""

    @staticmethod
    def build(items: FloatArray, folder: Path) -> None:
        """See `Engine`."""
        import scann

        n = len(items)
        n_leaves, n_trained = int(2 * np.sqrt(n)), min(n, 250_000)
        index = (
            scann.scann_ops_pybind.builder(items, 10, "dot_product")
            .tree(num_leaves=n_leaves, num_leaves_to_search=32, training_sample_size=n_trained)
            .score_ah(2, anisotropic_quantization_threshold=0.2)
            .reorder(100)
            .build()
        )
        index.serialize(str(folder))

    def __init__(self, folder: Path) -> None:
        import scann

        self._index = scann.scann_ops_pybind.load_searcher(str(folder))

    def search(self, queries: FloatArray, k: int, effort: int) -> Positions:
        """See `Engine`."""
        if len(queries) == 1:
            return self._index.search(queries[0], k, 100, effort)[0][None].astype(np.int64)
        found = self._index.search_batched_parallel(queries, k, 100, effort)
        return found[0].astype(np.int64)


class QdrantEdge(Engine):
    """Qdrant's engine in this process: HNSW over 8-bit codes in memory, and full vectors to re-score with."""

    @staticmethod
    def build(items: FloatArray, folder: Path) -> None:
        """See `Engine`."""
        import qdrant_edge as qdrant

        codes = qdrant.ScalarQuantizationConfig(type=qdrant.ScalarType.Int8, always_ram=True)
        vectors = qdrant.EdgeVectorParams(
            size=items.shape[1], distance=qdrant.Distance.Dot, quantization_config=codes
        )
        graph = qdrant.HnswIndexConfig(m=_EDGES // 2, ef_construct=_BUILD_EFFORT, full_scan_threshold=10)
        config = qdrant.EdgeConfig(vectors=vectors, hnsw_config=graph)
        shard = qdrant.EdgeShard.create(str(folder), config)
        for start in range(0, len(items), 1000):
            points = [
                qdrant.Point(id=start + i, vector=row.tolist())
                for i, row in enumerate(items[start : start + 1000])
            ]
            shard.update(qdrant.UpdateOperation.upsert_points(points))
        shard.optimize()
        shard.flush()
        shard.close()

    def __init__(self, folder: Path) -> None:
        import qdrant_edge as qdrant

        self._qdrant = qdrant
        self._shard = qdrant.EdgeShard.load(str(folder))

    def search(self, queries: FloatArray, k: int, effort: int) -> Positions:
        """See `Engine`."""
        qdrant = self._qdrant
        codes = qdrant.QuantizationSearchParams(rescore=True, oversampling=2.0)
        parameters = qdrant.SearchParams(hnsw_ef=effort, quantization=codes)
        asked = [
            qdrant.QueryRequest(limit=k, query=qdrant.Query.Nearest(row.tolist()), params=parameters)
            for row in queries
        ]
        rows = self._shard.query_batch(qdrant.QueryBatchRequest(asked))
        return np.array([[point.id for point in row] for row in rows], np.int64)


class Lance(Engine):
    """Lance: inverted lists of product codes in its table, and exact re-scoring of 20 times k candidates."""

    @staticmethod
    def build(items: FloatArray, folder: Path) -> None:
        """See `Engine`."""
        import lance
        import pyarrow as pa

        from vicinal.indexer.storage.item_table import as_fixed_lists

        rows = pa.table({"id": pa.array(np.arange(len(items))), "vector": as_fixed_lists(items)})
        table = lance.write_dataset(rows, str(folder / "table.lance"))
        table.create_index(
            "vector",
            "IVF_PQ",
            metric="dot",
            num_partitions=int(np.sqrt(len(items))),
            num_sub_vectors=items.shape[1] // 8,
        )

    def __init__(self, folder: Path) -> None:
        import lance

        self._table = lance.dataset(str(folder / "table.lance"))

    def search(self, queries: FloatArray, k: int, effort: int) -> Positions:
        """See `Engine`."""
        rows = []
        for query in queries:
            nearest = {"column": "vector", "q": query, "k": k, "nprobes": effort, "refine_factor": 20}
            rows.append(self._table.to_table(columns=["id", "_distance"], nearest=nearest)["id"].to_numpy())
        return np.stack(rows).astype(np.int64)


class MilvusLite(Engine):
    """Milvus Lite, HNSW, in its own process over a local socket."""

    @staticmethod
    def build(items: FloatArray, folder: Path) -> None:
        """See `Engine`."""
        from pymilvus import DataType, MilvusClient

        client = MilvusClient(str(folder / "milvus.db"))
        schema = client.create_schema(auto_id=False)
        schema.add_field("id", DataType.INT64, is_primary=True)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=items.shape[1])
        index = client.prepare_index_params()
        index.add_index(
            "vector",
            index_type="HNSW",
            metric_type="IP",
            params={"M": _EDGES // 2, "efConstruction": _BUILD_EFFORT},
        )
        client.create_collection("items", schema=schema, index_params=index)
        for start in range(0, len(items), 2000):
            rows = [
                {"id": start + i, "vector": row.tolist()} for i, row in enumerate(items[start : start + 2000])
            ]
            client.insert("items", rows)
        client.flush("items")
        client.close()

    def __init__(self, folder: Path) -> None:
        from pymilvus import MilvusClient

        self._client = MilvusClient(str(folder / "milvus.db"))
        self._client.load_collection("items")

    def search(self, queries: FloatArray, k: int, effort: int) -> Positions:
        """See `Engine`."""
        found = self._client.search(
            "items", queries.tolist(), limit=k, search_params={"params": {"ef": max(effort, k)}}
        )
        return np.array([[hit["id"] for hit in row] for row in found], np.int64)


ENGINES: dict[str, type[Engine]] = {
    "Vicinal": Vicinal,
    "Vicinal, 10 nearest": VicinalNearest,
    "Faiss, IVF-PQ re-scored": FaissRefined,
    "Faiss, HNSW": FaissHnsw,
    "hnswlib": Hnswlib,
    "USearch": Usearch,
    "ScaNN": Scann,
    "Qdrant Edge": QdrantEdge,
    "Lance": Lance,
    "Milvus Lite": MilvusLite,
}
