"""Vector indexes: which items are near a query, approximately; exact scores come later."""

from __future__ import annotations

import math
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np

from vicinal.calibration.arrays import FloatArray, Ints, Mask
from vicinal.indexer.errors import DamagedGalleryError, GalleryError
from vicinal.indexer.filters import Filter
from vicinal.indexer.storage.files import FileSeal, storing
from vicinal.models.errors import MissingPackageError
from vicinal.models.runtime import usable_processors

Part = TypeVar("Part")
Result = TypeVar("Result")


# Above this, scanning every vector costs more than all other stages of a query together.
FLAT_LIMIT = 10_000
# From here on four dimensions a code leave enough to tell candidates apart, where many are compared.
_LONG, _MANY = 256, 50_000
# Where the nearest items lie in more of the lists than this, one list with finer codes takes less time and
# misses less, see benchmarks/speed/index_recall.py.
_MOST_PROBED = 1 / 3
_MOST_TRAINED, _FEWEST_TRAINED = 200_000, 65_536
_TRAINED_PER_LIST = 32

# Queries that Faiss takes at once. From 20 on it multiplies matrices, which rounds differently, and a query
# would find other items than alone.
_TOGETHER = 16
# As many inverted lists are looked into as hold this share of the ten nearest of some items, measured when an
# index is built. Queries, which the lists were not made of, find a little less: about .99.
RECALL, _MEASURED_BY = 0.995, 512
# Exact re-scoring chooses among as many candidates as hold the same share of the few or the many nearest that
# are found at all; measured too, up to the most.
_FEW_NEAREST, _MANY_NEAREST, _MOST_CANDIDATES = 10, 100, 400

# Whether what this thread works on was shared out to it.
_shared = threading.local()

_LONGEST_FACTORY = 64
_MOST_LISTS = 65_536
# Versions that have one are searched on; the next one is made as `auto` says.
GONE_KINDS = ("graph", "HNSW")
_CODES = r"SQ(?:4|8|fp16)|PQ(?P<subquantizers>[1-9][0-9]{0,4})(?:x4(?:fsr?)?|x8)?"
_KINDS = re.compile(rf"auto|(?:IVF(?P<lists>[1-9][0-9]{{0,8}}),)?(?:Flat|{_CODES})")
_KINDS_IN_WORDS = (
    "auto, Flat, SQ4, SQ8, SQfp16, PQ16 (also x4, x4fs, x8), or inverted lists before them, such as "
    f"IVF1024,SQ8, of up to IVF{_MOST_LISTS}; or milvus"
)


def automatic_factories(n_items: int, dim: int) -> tuple[str, ...]:
    """Strings for `faiss.index_factory` that `auto` chooses from, the one that is tried first in front.

    Exact up to `FLAT_LIMIT` items. Above, inverted lists with 4-bit product quantization of residuals, two
    dimensions a code or of very many long vectors four. Items without groups lie near others in most of the
    lists: then one list of all, with two dimensions a code. See benchmarks/speed/index_recall.py.
    """
    if n_items <= FLAT_LIMIT:
        return ("Flat",)
    n_lists = 2 ** round(math.log2(2.0 * math.sqrt(n_items)))
    if dim % 2:
        return (f"IVF{n_lists},SQ8",)
    per_code = math.gcd(dim, 4) if dim >= _LONG and n_items > _MANY else 2
    return f"IVF{n_lists},PQ{dim // per_code}x4fsr", f"IVF1,PQ{dim // 2}x4fsr"


@dataclass(frozen=True)
class Candidates:
    """Numbers of an approximate index's candidates that hold the ten and the hundred nearest items."""

    of_few: int
    of_many: int

    def fetched(self, n: int) -> int:
        """Candidates among which the n nearest are looked for."""
        if n > _MANY_NEAREST:
            return math.ceil(n * self.of_many / _MANY_NEAREST)
        between = np.interp(n, (_FEW_NEAREST, _MANY_NEAREST), (self.of_few, self.of_many))
        return max(n, math.ceil(between))


# Of flat indexes in float16.
_UNMEASURED = Candidates(160, 400)


class FaissIndex:
    """Nearest neighbors by inner product, over positions 0..n-1; never changed after it was built.

    `spec` is its factory string; a search among all items looks into `n_probed` inverted lists, 0 of a kind
    without lists.
    """

    device = "cpu"
    needs_filter = False

    def __init__(self, index: Any, spec: str, candidates: Candidates) -> None:
        self.as_faiss = index
        self.spec = spec
        self.candidates = candidates
        self._faiss = import_faiss()
        inner = self._faiss.downcast_index(index)
        self._n_lists: int = getattr(inner, "nlist", 0)
        self.n_probed: int = getattr(inner, "nprobe", 0)

    @property
    def is_exact(self) -> bool:
        """Tell whether every vector is compared in full."""
        return self.spec == "Flat"

    @classmethod
    def build(cls, embeddings: FloatArray, factory: str = "auto") -> Self:
        """Train and fill an index with (n, d) float32, L2-normalized."""
        check_factory(factory, embeddings.shape[1])
        specs = automatic_factories(*embeddings.shape) if factory == "auto" else (factory,)
        return cls(*_built(import_faiss(), embeddings, specs))

    @classmethod
    def open(cls, path: Path, spec: str, candidates: Candidates, seal: FileSeal) -> Self:
        """Open a saved index, memory-mapped where its kind allows, after comparing every byte with its seal:
        cut to 25 to 31 bytes, a flat index ends the process, and so does one changed bit of inverted lists.
        """
        if not seal.fits(path, whole=True):
            raise DamagedGalleryError(f"index file '{path}' is missing or damaged", path)
        faiss = import_faiss()
        # Inverted lists are mapped in another way than flat vectors; all else is read.
        flags = faiss.IO_FLAG_MMAP | faiss.IO_FLAG_READ_ONLY if spec.startswith("IVF") else 0
        flags = faiss.IO_FLAG_MMAP_IFC if spec == "Flat" else flags
        try:
            return cls(faiss.read_index(str(path), flags), spec, candidates)
        except (MemoryError, RuntimeError) as error:
            raise GalleryError(f"index file '{path}' cannot be read") from error

    def save(self, path: Path) -> None:
        """Write the index to one file."""
        # Not by Faiss itself, which does not notice when the last bytes find no room.
        with storing(f"index file '{path}'"), path.open("wb") as stream:
            self._faiss.write_index(self.as_faiss, self._faiss.PyCallbackIOWriter(stream.write))

    @property
    def can_select(self) -> bool:
        """Tell whether Faiss can restrict this kind of index: flat ones and inverted lists."""
        return self.is_exact or self._n_lists > 0

    def n_fetched(self, n: int) -> int:
        """Items to search for, so that the n nearest are among them when all are compared exactly."""
        return n if self.is_exact else self.candidates.fetched(n)

    def wider(self, times: int) -> FaissIndex:
        """The same index, of which more lists are looked into."""
        other = copy(self)
        other.n_probed *= times
        return other

    def search(
        self, queries: FloatArray, n: int, among: Mask | None = None, filter: Filter | None = None
    ) -> Ints:
        """(B, n) positions of the nearest items, nearest first, -1 where there are fewer."""
        del filter  # The mask says all.
        selector = None
        if among is not None:
            selector = self._faiss.IDSelectorBitmap(np.packbits(among, bitorder="little"))
        parameters = self._parameters(selector, among)
        blocks = [queries[start : start + _TOGETHER] for start in range(0, len(queries), _TOGETHER)]

        def find(block: FloatArray) -> Ints:
            with _one_thread(self._faiss):
                return np.asarray(self.as_faiss.search(block, n, params=parameters)[1])

        found = shared_out(find, blocks)
        return np.concatenate(found) if found else np.empty((0, n), np.int64)

    def _parameters(self, selector: Any, among: Mask | None) -> Any:
        """Parameters of a search; None where there is nothing to say."""
        if not self._n_lists:
            return None if selector is None else self._faiss.SearchParameters(sel=selector)
        # The fewer items may be found, the further away they lie: as many of them are compared as of all.
        n_left = self.as_faiss.ntotal if among is None else max(1, int(among.sum()))
        n_probed = math.ceil(self.n_probed * self.as_faiss.ntotal / n_left)
        return self._faiss.SearchParametersIVF(nprobe=min(self._n_lists, n_probed), sel=selector)


def check_factory(factory: str, dim: int) -> None:
    """Refuse an index of no known kind and size unbuilt: Faiss reserves 13 GB for `IVF100000000,Flat`."""
    shown = factory if len(factory) <= _LONGEST_FACTORY else f"{factory[:_LONGEST_FACTORY]}…"
    found = _KINDS.fullmatch(factory) if len(factory) <= _LONGEST_FACTORY else None
    if factory.startswith(GONE_KINDS):
        raise GalleryError(f"index '{shown}' is no more: choose auto, or milvus, which keeps a graph")
    if found is None:
        raise GalleryError(f"'{shown}' is no kind of index that can be built: expected {_KINDS_IN_WORDS}")
    lists, subquantizers = (int(found[name] or 0) for name in ("lists", "subquantizers"))
    if lists > _MOST_LISTS:
        raise GalleryError(f"an index '{shown}' would be too large: expected {_KINDS_IN_WORDS}")
    if subquantizers and (subquantizers > dim or dim % subquantizers):
        raise GalleryError(f"an index '{shown}' needs embeddings whose length {subquantizers} divides: {dim}")


def import_faiss() -> Any:
    """The faiss module."""
    if "faiss" not in sys.modules and (usable := usable_processors()) < (os.cpu_count() or 1):
        # OpenMP knows nothing of a quota. It looks once.
        os.environ.setdefault("OMP_NUM_THREADS", str(usable))
    try:
        import faiss
    except ImportError as error:
        raise MissingPackageError("faiss", "cpu", "the vector index") from error
    return faiss


def nearest_rows(queries: FloatArray, rows: FloatArray, n: int) -> tuple[FloatArray, Ints]:
    """(B, n) inner products and places of the rows nearest to each query, all of which are compared."""
    faiss = import_faiss()
    left, right = np.ascontiguousarray(queries), np.ascontiguousarray(rows)
    products, places = faiss.knn(left, right, n, metric=faiss.METRIC_INNER_PRODUCT)
    return products, places


def products_at(queries: FloatArray, rows: FloatArray, positions: Ints) -> FloatArray:
    """(B, w) products of queries with rows of a C-ordered array, not copied, in float32; -inf at -1."""
    faiss = import_faiss()
    products = np.full(positions.shape, -np.inf, np.float32)
    if getattr(rows, "is_fetched", False):
        needed = np.unique(positions[positions >= 0])
        rows, positions = rows[needed], np.where(positions < 0, -1, np.searchsorted(needed, positions))
    wanted, left = np.ascontiguousarray(positions, np.int64), np.ascontiguousarray(queries)
    pointers = (faiss.swig_ptr(array) for array in (products, left, np.asarray(rows), wanted))
    with _one_thread(faiss):
        faiss.fvec_inner_products_by_idx(*pointers, rows.shape[1], *positions.shape)
    return products


def n_threads() -> int:
    """Threads that a task is shared out to here, one a core; 1 where it is a part of a task itself."""
    return 1 if getattr(_shared, "out", False) else int(import_faiss().omp_get_max_threads())


def shared_out(task: Callable[[Part], Result], parts: Sequence[Part]) -> list[Result]:
    """Results of a task for each part, in order, by `n_threads()`, not by OpenMP, whose threads wait for each
    other: beside another process sixteen queries took 8 ms in place of 1.
    """
    n = min(len(parts), n_threads()) if len(parts) > 1 else 1
    if n == 1:
        return [task(part) for part in parts]
    with ThreadPoolExecutor(
        n, thread_name_prefix="search", initializer=setattr, initargs=(_shared, "out", True)
    ) as pool:
        return list(pool.map(task, parts))


@contextmanager
def _one_thread(faiss: Any) -> Iterator[None]:
    """Lets Faiss use no thread but the calling one."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def _built(faiss: Any, embeddings: FloatArray, specs: Sequence[str]) -> tuple[Any, str, Candidates]:
    """An index, trained, filled and measured, its factory string, and how many candidates it needs."""
    n_items = len(embeddings)
    sample = NearestSample.of(embeddings) if n_items > 1 and specs[0] != "Flat" else None
    for spec in specs:
        try:
            index = _trained(faiss, embeddings, spec)
            lists = faiss.try_extract_index_ivf(index)
            if sample is not None and lists is not None:
                _choose_probes(faiss, lists, sample.queries, [embeddings[near] for near in sample.few])
                if lists.nprobe > _MOST_PROBED * lists.nlist and spec != specs[-1]:
                    continue
            index.add(embeddings)
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[-1]
            raise GalleryError(f"Faiss cannot build '{spec}' over {n_items} items: {reason}") from error
        break
    return index, spec, _UNMEASURED if sample is None else _measured(index, sample)


def _trained(faiss: Any, embeddings: FloatArray, spec: str) -> Any:
    """An index without items."""
    index = faiss.index_factory(embeddings.shape[1], spec, faiss.METRIC_INNER_PRODUCT)
    _leave_out_polysemous_codes(faiss, index)
    index.train(_training_sample(faiss, index, embeddings))
    return index


@dataclass(frozen=True)
class NearestSample:
    """Items by (q,) rows and (q, d) queries, and of each at most the hundred nearest others in order."""

    rows: Ints
    queries: FloatArray
    many: list[Ints]

    @property
    def few(self) -> list[Ints]:
        """At most the ten nearest others of each."""
        return [near[:_FEW_NEAREST] for near in self.many]

    @classmethod
    def of(cls, embeddings: FloatArray) -> Self:
        """Draw items by a seed."""
        n = len(embeddings)
        rows = np.random.default_rng(0).choice(n, min(n, _MEASURED_BY), replace=False)
        queries = np.ascontiguousarray(embeddings[rows])
        found = nearest_rows(queries, embeddings, min(n, _MANY_NEAREST + 1))[1]
        # A copy of an item can come before it.
        others = [near[near != row][:_MANY_NEAREST] for row, near in zip(rows, found, strict=True)]
        return cls(rows, queries, others)


def _measured(index: Any, sample: NearestSample) -> Candidates:
    """Numbers of an index's candidates that hold the nearest of some items."""
    fetched = index.search(sample.queries, min(index.ntotal, _MOST_CANDIDATES + 1))[1]
    found = [among[among != row] for row, among in zip(sample.rows, fetched, strict=True)]
    few, many = (
        1 + _covering(np.concatenate([np.isin(*pair).nonzero()[0] for pair in zip(found, near, strict=True)]))
        for near in (sample.few, sample.many)
    )
    # Where there are no hundred others, none is left out.
    return Candidates(few, max(few, many, _MANY_NEAREST))


def _choose_probes(faiss: Any, lists: Any, queries: FloatArray, nearest: list[FloatArray]) -> None:
    """Have inverted lists be looked into as far as most of the nearest items lie."""
    quantizer = faiss.downcast_index(lists.quantizer)
    centers = quantizer.reconstruct_n(0, lists.nlist)
    ranks = []
    for query, near in zip(queries, nearest, strict=True):
        products = centers @ query
        ranks.append((products > products[quantizer.search(near, 1)[1]]).sum(axis=1))
    lists.nprobe = 1 + _covering(np.concatenate(ranks))


def _covering(ranks: Ints) -> int:
    """The rank that most are not above; 0 without any."""
    ascending = np.sort(ranks)
    return int(ascending[math.ceil(RECALL * len(ascending)) - 1]) if len(ascending) else 0


def _leave_out_polysemous_codes(faiss: Any, index: Any) -> None:
    """Spare product quantization ten seconds for an order of its codes, which no search here uses."""
    quantized = faiss.downcast_index(faiss.try_extract_index_ivf(index) or index)
    if hasattr(quantized, "do_polysemous_training"):
        quantized.do_polysemous_training = False


def _training_sample(faiss: Any, index: Any, embeddings: FloatArray) -> FloatArray:
    """Items to train an index on, of a large gallery few (benchmarks/speed/ready_embeddings.py), in all
    rounds of k-means: after five in place of ten, three times as many lists had to be looked into.
    """
    if len(embeddings) <= _MOST_TRAINED:
        return embeddings
    most, lists = _MOST_TRAINED, faiss.try_extract_index_ivf(index)
    if lists is not None:
        # Faiss would warn that it likes more.
        lists.cp.min_points_per_centroid = 1
        most = min(_MOST_TRAINED, max(_FEWEST_TRAINED, _TRAINED_PER_LIST * int(lists.nlist)))
    chosen = np.random.default_rng(0).choice(len(embeddings), most, replace=False)
    return np.ascontiguousarray(embeddings[np.sort(chosen)])
