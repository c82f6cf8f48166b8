"""Vector indexes: which items are near a query, approximately; exact scores come later."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from vicinal.indexer.errors import DamagedGalleryError, GalleryError
from vicinal.indexer.storage.files import storing
from vicinal.indexer.storage.seals import FileSeal
from vicinal.models.errors import MissingPackageError
from vicinal.models.similarity import FloatArray

__all__ = [
    "FLAT_LIMIT",
    "Bools",
    "FaissIndex",
    "Positions",
    "check_factory",
    "choose_factory",
    "import_faiss",
]

Bools = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.int64]

# Above this, scanning every vector costs more than all other stages of a query together.
FLAT_LIMIT = 10_000
_MOST_TRAINED, _FEWEST_TRAINED = 200_000, 65_536
_TRAINED_PER_LIST, _ITERATIONS = 32, 5

# Queries that Faiss takes at once, and shares among the cores. From 20 on it multiplies matrices, which
# rounds differently, and a query would find other items than alone.
_TOGETHER = 16
# Items whose codes are compared with a query at least, about.
_FEWEST_COMPARED = 20_000

_LONGEST_FACTORY = 64
_MOST_LISTS, _MOST_EDGES = 65_536, 64
_CODES = r"SQ(?:4|8|fp16)|PQ(?P<subquantizers>[1-9][0-9]{0,4})(?:x4(?:fs)?|x8)?"
_KINDS = re.compile(
    rf"auto|HNSW(?P<edges>[2-9]|[1-9][0-9]{{1,3}})(?:,Flat)?|"
    rf"(?:IVF(?P<lists>[1-9][0-9]{{0,8}}),)?(?:Flat|{_CODES})"
)
_KINDS_IN_WORDS = (
    f"auto, Flat, SQ4, SQ8, SQfp16, PQ16 (also x4, x4fs, x8), HNSW2 to HNSW{_MOST_EDGES}, or inverted lists "
    f"before them, such as IVF1024,SQ8, of up to IVF{_MOST_LISTS}"
)


def choose_factory(n_items: int, dim: int) -> str:
    """The `faiss.index_factory` string that `auto` stands for.

    Exact up to `FLAT_LIMIT` items. Above, inverted lists with 4-bit product quantization, two
    dimensions a code: see benchmarks/speed/index_recall.py. Candidates are re-scored exactly, so only
    which items become candidates is approximate.
    """
    if n_items <= FLAT_LIMIT:
        return "Flat"
    n_lists = 2 ** round(math.log2(4.0 * math.sqrt(n_items)))
    codes = f"PQ{dim // 2}x4fs" if dim % 2 == 0 else "SQ8"
    return f"IVF{n_lists},{codes}"


class FaissIndex:
    """Nearest neighbors by inner product, over positions 0..n-1; never changed after it was built.

    Args:
        index: The Faiss index, trained and filled.
        spec: Its factory string.
    """

    def __init__(self, index: Any, spec: str) -> None:
        self._index = index
        self._spec = spec
        self._faiss = import_faiss()

    @property
    def spec(self) -> str:
        """The factory string."""
        return self._spec

    @property
    def device(self) -> str:
        """Where searches are made: `cpu`."""
        return "cpu"

    @property
    def as_faiss(self) -> Any:
        """The Faiss index."""
        return self._index

    @property
    def is_exact(self) -> bool:
        """Whether every vector is compared in full."""
        return self._spec == "Flat"

    @classmethod
    def build(cls, embeddings: FloatArray, factory: str = "auto") -> Self:
        """Train and fill an index.

        Args:
            embeddings: (n, d) float32, L2-normalized.
            factory: A `faiss.index_factory` string, or `auto`.

        Raises:
            GalleryError: It is no kind that is known, or cannot be trained on so few items.
        """
        faiss = import_faiss()
        n_items, dim = embeddings.shape
        check_factory(factory, dim)
        spec = choose_factory(n_items, dim) if factory == "auto" else factory
        try:
            index = faiss.index_factory(dim, spec, faiss.METRIC_INNER_PRODUCT)
            _leave_out_polysemous_codes(faiss, index)
            index.train(_training_sample(embeddings, _most_trained(faiss, index, n_items)))
            index.add(embeddings)
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[-1]
            raise GalleryError(f"Faiss cannot build '{spec}' over {n_items} items: {reason}") from error
        return cls(index, spec)

    @classmethod
    def open(cls, path: Path, spec: str, seal: FileSeal) -> Self:
        """Open a saved index, memory-mapped where its kind allows.

        Every byte is compared first. Faiss follows the sizes that it reads: cut to 25 to 31 bytes, a flat
        index ends the process, and so does one changed bit of inverted lists.

        Args:
            path: The file.
            spec: Its factory string.
            seal: What the file must look like.

        Raises:
            DamagedGalleryError: The file is missing or damaged.
        """
        if not seal.fits(path, whole=True):
            raise DamagedGalleryError(f"index file '{path}' is missing or damaged", path)
        faiss = import_faiss()
        # Inverted lists and flat vectors are mapped in different ways; all else is read.
        flags = faiss.IO_FLAG_MMAP | faiss.IO_FLAG_READ_ONLY if spec.startswith("IVF") else 0
        flags = faiss.IO_FLAG_MMAP_IFC if spec == "Flat" else flags
        try:
            return cls(faiss.read_index(str(path), flags), spec)
        except (MemoryError, RuntimeError) as error:
            raise GalleryError(f"index file '{path}' cannot be read") from error

    def save(self, path: Path) -> None:
        """Write the index to one file.

        Raises:
            StorageError: The disk refuses.
        """
        # Not by Faiss itself, which does not notice when the last bytes find no room.
        with storing(f"index file '{path}'"), path.open("wb") as stream:
            self._faiss.write_index(self._index, self._faiss.PyCallbackIOWriter(stream.write))

    @property
    def can_select(self) -> bool:
        """Whether Faiss can restrict this kind of index: flat ones and inverted lists."""
        return self.is_exact or self._n_lists is not None

    def search(self, queries: FloatArray, n: int, among: Bools | None = None) -> Positions:
        """Positions of the n nearest items, (B, n), nearest first, -1 where there are fewer.

        Args:
            queries: (B, d) float32, L2-normalized.
            n: Number of items, at least 1.
            among: (n_items,) whether an item may be found; all when None.
        """
        parameters = self._parameters(among)
        blocks = [queries[start : start + _TOGETHER] for start in range(0, len(queries), _TOGETHER)]
        found = [self._index.search(block, n, params=parameters)[1] for block in blocks]
        return np.concatenate(found) if found else np.empty((0, n), np.int64)

    def _parameters(self, among: Bools | None) -> Any:
        selector = None if among is None else self._selector(among)
        n_lists = self._n_lists
        if n_lists is None:
            return None if selector is None else self._faiss.SearchParameters(sel=selector)
        n_probed = self.n_probed
        if among is not None:
            # The fewer items may be found, the further away they lie: as many of them are compared as of all.
            n_probed = math.ceil(n_probed * len(among) / max(1, int(among.sum())))
        return self._faiss.SearchParametersIVF(nprobe=min(n_lists, n_probed), sel=selector)

    @property
    def n_probed(self) -> int:
        """Inverted lists that a search among all items looks into; 0 of a kind without lists."""
        n_lists = self._n_lists
        if n_lists is None:
            return 0
        # An eighth of the lists keeps 99 % of the ten nearest of a large gallery. The lists of a small one
        # hold few items, and its nearest lie in more of them: see benchmarks/speed/index_recall.py.
        of_small = math.ceil(n_lists * _FEWEST_COMPARED / max(1, self._index.ntotal))
        return min(n_lists, max(32, min(256, n_lists // 8), of_small))

    def _selector(self, among: Bools) -> Any:
        return self._faiss.IDSelectorBitmap(np.packbits(among, bitorder="little"))

    @property
    def _n_lists(self) -> int | None:
        n_lists: int | None = getattr(self._inner(), "nlist", None)
        return n_lists

    def _inner(self) -> Any:
        return self._faiss.downcast_index(self._index)


def check_factory(factory: str, dim: int) -> None:
    """Refuse an index that is not of a known kind and size; nothing is built to find out.

    Faiss reserves memory for what a string names before it sees an item: 13 GB for `IVF100000000,Flat`.

    Args:
        factory: A `faiss.index_factory` string, or `auto`.
        dim: Length of the embeddings.

    Raises:
        GalleryError: It is not, or does not fit the dimension.
    """
    shown = factory if len(factory) <= _LONGEST_FACTORY else f"{factory[:_LONGEST_FACTORY]}…"
    found = _KINDS.fullmatch(factory) if len(factory) <= _LONGEST_FACTORY else None
    if found is None:
        raise GalleryError(f"'{shown}' is no kind of index that can be built: expected {_KINDS_IN_WORDS}")
    lists, edges, subquantizers = (int(found[name] or 0) for name in ("lists", "edges", "subquantizers"))
    if lists > _MOST_LISTS or edges > _MOST_EDGES:
        raise GalleryError(f"an index '{shown}' would be too large: expected {_KINDS_IN_WORDS}")
    if subquantizers and (subquantizers > dim or dim % subquantizers):
        raise GalleryError(f"an index '{shown}' needs embeddings whose length {subquantizers} divides: {dim}")


def import_faiss() -> Any:
    """The faiss module.

    Raises:
        MissingPackageError: Neither faiss-cpu nor faiss-gpu is installed.
    """
    try:
        import faiss
    except ImportError as error:
        raise MissingPackageError("faiss", "cpu", "the vector index") from error
    return faiss


def _leave_out_polysemous_codes(faiss: Any, index: Any) -> None:
    """Spare product quantization ten seconds for an order of its codes, which no search here uses."""
    quantized = faiss.downcast_index(faiss.try_extract_index_ivf(index) or index)
    if hasattr(quantized, "do_polysemous_training"):
        quantized.do_polysemous_training = False


def _most_trained(faiss: Any, index: Any, n_items: int) -> int:
    """Items to train an index on; of a large gallery few, and with fewer iterations.

    That takes a third of the time, and as many of the nearest are found: see
    benchmarks/speed/ready_embeddings.py.
    """
    lists = faiss.try_extract_index_ivf(index)
    if lists is None or n_items <= _MOST_TRAINED:
        return _MOST_TRAINED
    lists.cp.niter = _ITERATIONS
    # Faiss would warn that it likes more.
    lists.cp.min_points_per_centroid = 1
    return min(_MOST_TRAINED, max(_FEWEST_TRAINED, _TRAINED_PER_LIST * int(lists.nlist)))


def _training_sample(embeddings: FloatArray, most: int) -> FloatArray:
    if len(embeddings) <= most:
        return embeddings
    chosen = np.random.default_rng(0).choice(len(embeddings), most, replace=False)
    return np.ascontiguousarray(embeddings[np.sort(chosen)])
