"""Engine source: candidates of one version and space from a table of an engine, measured when it is built."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Generic, Self, TypeVar

import numpy as np
import pyarrow as pa

from vicinal.calibration.arrays import FloatArray, Ints, Mask
from vicinal.calibration.frozen import Frozen
from vicinal.indexer.engines.engine import Engines
from vicinal.indexer.engines.measured import in_blocks, measured_candidates
from vicinal.indexer.errors import DamagedGalleryError, EngineTableError
from vicinal.indexer.filters import Filter
from vicinal.indexer.graph.vector_index import Candidates
from vicinal.indexer.storage.files import FileSeal, storing
from vicinal.models.configs.sealed_json import BrokenSealError, sealed, unsealed
from vicinal.models.progress import OnProgress, no_progress

# What comes first of a filtered graph is not all that is near. And of what a filter selects a few items are
# left out: where these spares do not do, twice as many are fetched.
_SPARE = 32
_LONGEST_FILE = 4096
_REMEDY = "a server makes it again by itself, a check of the gallery does it now"


class SourceFile(Frozen):
    """Content of the file that stands for an index: an engine, and the share of the ten and of the hundred
    nearest that it was measured to find. It says nothing of where the engine is.
    """

    engine: str
    n_items: int
    recall_of_few: float
    recall_of_many: float


class EngineFile(SourceFile):
    """File of a table that was made for a version and space."""

    name: str


File = TypeVar("File", bound=SourceFile)


class MeasuredSource(Generic[File]):
    """Source in an engine, see `CandidateSource`; `candidates` says how much of it a search looks at."""

    is_exact = False
    can_select = True

    def __init__(self, file: File, candidates: Candidates) -> None:
        self.file = file
        self.candidates = candidates

    @property
    def device(self) -> str:
        """Name of the engine."""
        return self.file.engine

    def n_fetched(self, n: int) -> int:
        """Items to search for: as many as are wanted, since an engine compares vectors in full."""
        return n

    def save(self, path: Path) -> None:
        """Write what was measured, and where it holds, to a file."""
        with storing(f"index file '{path}'"):
            path.write_bytes(sealed(self.file.model_dump_json(indent=2)))


class EngineSource(MeasuredSource[EngineFile]):
    """Candidates from a table that an engine holds for a version and space."""

    needs_filter = True

    def __init__(self, file: EngineFile, candidates: Candidates, engines: Engines) -> None:
        super().__init__(file, candidates)
        self._engines = engines
        # Whether the table is that of a gallery that this one was copied from, or a search found it missing.
        self.is_foreign = self.is_lost = False

    @classmethod
    def build(
        cls,
        engines: Engines,
        kind: str,
        name: str,
        embeddings: FloatArray,
        items: pa.Table,
        on_progress: OnProgress = no_progress,
    ) -> Self:
        """Make a table of (n, d) float32 vectors, L2-normalized, and measure how much a search looks at."""
        try:
            with engines.asking(kind) as engine:
                engine.build(name, embeddings, items, on_progress)
                find = partial(engine.search, name)
                looked_at, recall = measured_candidates(find, engine.most_looked_at, embeddings)
        except BaseException:
            engines.drop(kind, name)
            raise
        file = EngineFile(
            engine=kind,
            name=name,
            n_items=len(embeddings),
            recall_of_few=recall[0],
            recall_of_many=recall[1],
        )
        return cls(file, Candidates(*looked_at), engines)

    @classmethod
    def open(cls, path: Path, candidates: Candidates, seal: FileSeal, engines: Engines) -> Self:
        """Open what `save` wrote; the engine is asked when it is searched."""
        return cls(read_source_file(path, EngineFile, seal), candidates, engines)

    def drop(self) -> None:
        """Remove the table."""
        self._engines.drop(self.file.engine, self.file.name)

    @property
    def spec(self) -> str:
        """Name of the engine."""
        return self.file.engine

    def search(
        self, queries: FloatArray, n: int, among: Mask | None = None, filter: Filter | None = None
    ) -> Ints:
        """(B, n) positions of the nearest items; see `CandidateSource.search`."""
        if among is None:
            return in_blocks(lambda block: self._find(block, n), queries, n)
        return in_blocks(lambda block: self._found_among(block, n, among, filter), queries, n)

    def fetch(self, positions: Ints) -> FloatArray:
        """(n, d) vectors as they were built, bit for bit."""
        with self._engines.asking(self.spec) as engine:
            return engine.fetch(self.file.name, positions)

    def _find(self, queries: FloatArray, n: int, share: float = 1.0, filter: Filter | None = None) -> Ints:
        if self.is_foreign:
            raise EngineTableError(f"this version was copied, and has no table of its own yet: {_REMEDY}")
        # The fewer items may be found, the further away they lie.
        looked_at = min(max(n, math.ceil(self.candidates.fetched(n) / share)), self.file.n_items)
        try:
            with self._engines.asking(self.spec) as engine:
                return engine.search(
                    self.file.name, np.ascontiguousarray(queries, np.float32), n, looked_at, filter
                )
        except EngineTableError as error:
            self.is_lost = True
            raise EngineTableError(f"{error}: {_REMEDY}") from error

    def _found_among(self, queries: FloatArray, n: int, among: Mask, filter: Filter | None) -> Ints:
        """See `search`: the engine knows the filter, but not which of its rows are gone."""
        share = max(1.0, float(among.sum())) / max(1, len(among))

        def find(chosen: Ints, n_asked: int) -> tuple[Ints, Mask]:
            rows = self._find(queries[chosen], min(n_asked, self.file.n_items), share, filter)
            has_more = ((rows >= 0).sum(axis=1) == n_asked) & (n_asked < self.file.n_items)
            found = np.full((len(chosen), n), -1, np.int64)
            for place, row in enumerate(rows):
                kept = row[(row >= 0) & among[row]][:n]
                found[place, : len(kept)] = kept
            return found, has_more

        return until_found(find, len(queries), n, 2 * n + _SPARE)


def until_found(find: Callable[[Ints, int], tuple[Ints, Mask]], n_queries: int, n: int, n_asked: int) -> Ints:
    """(n_queries, n) positions, -1 where there are fewer, after twice as many were asked for again and again.

    `find` gives (b, n) positions for (b,) chosen queries and a number of rows, and which of them have more.
    """
    found = np.full((n_queries, n), -1, np.int64)
    chosen = np.arange(n_queries)
    while len(chosen):
        found[chosen], has_more = find(chosen, n_asked)
        chosen = chosen[has_more & (found[chosen] < 0).any(axis=1)]
        n_asked *= 2
    return found


def read_source_file(path: Path, kind: type[File], seal: FileSeal | None = None) -> File:
    """The file of a kind that `save` wrote, as it was sealed; `DamagedGalleryError` for any other."""
    try:
        if seal is not None and not seal.fits(path, whole=True):
            raise BrokenSealError
        with path.open("rb") as stream:
            # What is longer is an index of Faiss.
            return kind.model_validate_json(unsealed(stream.read(_LONGEST_FILE)))
    except (OSError, BrokenSealError, ValueError) as error:
        raise DamagedGalleryError(f"index file '{path}' is missing or damaged", path) from error
