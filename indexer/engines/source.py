"""Engine source: candidates of one version and space from a table of an engine, measured when it is built."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Literal, Self

import numpy as np
import pyarrow as pa

from vicinal.calibration.arrays import FloatArray, Ints, Mask
from vicinal.calibration.frozen import Frozen
from vicinal.indexer.engines.engine import ENGINE, Engine
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


class EngineFile(Frozen):
    """Content of the file that stands for an index: the name of a table that was made for a version and
    space, and the share of the ten and of the hundred nearest that it was measured to find. It says nothing
    of where the engine is.
    """

    engine: Literal["milvus"] = ENGINE
    name: str
    n_items: int
    recall_of_few: float
    recall_of_many: float


class EngineSource:
    """Candidates from a table that the engine holds for a version and space, see `CandidateSource`;
    `candidates` says how much of it a search looks at.
    """

    spec = device = ENGINE
    is_exact = False
    can_select = needs_filter = True

    def __init__(self, file: EngineFile, candidates: Candidates, engine: Engine) -> None:
        self.file = file
        self.candidates = candidates
        self._engine = engine
        # Whether the table is that of a gallery that this one was copied from, or a search found it missing.
        self.is_foreign = self.is_lost = False

    @classmethod
    def build(
        cls,
        engine: Engine,
        name: str,
        embeddings: FloatArray,
        items: pa.Table,
        on_progress: OnProgress = no_progress,
    ) -> Self:
        """Make a table of (n, d) float32 vectors, L2-normalized, and measure how much a search looks at."""
        try:
            with engine.asking() as asked:
                asked.build(name, embeddings, items, on_progress)
                find = partial(asked.search, name)
                looked_at, recall = measured_candidates(find, asked.most_looked_at, embeddings)
        except BaseException:
            engine.drop(name)
            raise
        file = EngineFile(
            name=name, n_items=len(embeddings), recall_of_few=recall[0], recall_of_many=recall[1]
        )
        return cls(file, Candidates(*looked_at), engine)

    @classmethod
    def open(cls, path: Path, candidates: Candidates, seal: FileSeal, engine: Engine) -> Self:
        """Open what `save` wrote; the engine is asked when it is searched."""
        return cls(read_engine_file(path, seal), candidates, engine)

    def save(self, path: Path) -> None:
        """Write what was measured, and where it holds, to a file."""
        with storing(f"index file '{path}'"):
            path.write_bytes(sealed(self.file.model_dump_json(indent=2)))

    def n_fetched(self, n: int) -> int:
        """Items to search for: as many as are wanted, since an engine compares vectors in full."""
        return n

    def drop(self) -> None:
        """Remove the table."""
        self._engine.drop(self.file.name)

    def wider(self, times: int) -> EngineSource:
        """This one: it looks as far as it is asked for."""
        del times
        return self

    def search(
        self, queries: FloatArray, n: int, among: Mask | None = None, filter: Filter | None = None
    ) -> Ints:
        """(B, n) positions of the nearest items; see `CandidateSource.search`."""
        if among is None:
            return in_blocks(lambda block: self._find(block, n), queries, n)
        return in_blocks(lambda block: self._found_among(block, n, among, filter), queries, n)

    def fetch(self, positions: Ints) -> FloatArray:
        """(n, d) vectors as they were built, bit for bit."""
        with self._engine.asking() as engine:
            return engine.fetch(self.file.name, positions)

    def _find(self, queries: FloatArray, n: int, share: float = 1.0, filter: Filter | None = None) -> Ints:
        if self.is_foreign:
            raise EngineTableError(f"this version was copied, and has no table of its own yet: {_REMEDY}")
        # The fewer items may be found, the further away they lie.
        looked_at = min(max(n, math.ceil(self.candidates.fetched(n) / share)), self.file.n_items)
        try:
            with self._engine.asking() as engine:
                return engine.search(
                    self.file.name, np.ascontiguousarray(queries, np.float32), n, looked_at, filter
                )
        except EngineTableError as error:
            self.is_lost = True
            raise EngineTableError(f"{error}: {_REMEDY}") from error

    def _found_among(self, queries: FloatArray, n: int, among: Mask, filter: Filter | None) -> Ints:
        """See `search`: the engine knows the filter, but not which of its rows are gone."""
        share = max(1.0, float(among.sum())) / max(1, len(among))
        found = np.full((len(queries), n), -1, np.int64)
        left, n_asked = np.arange(len(queries)), 2 * n + _SPARE
        while len(left):
            rows = self._find(queries[left], min(n_asked, self.file.n_items), share, filter)
            has_more = ((rows >= 0).sum(axis=1) == n_asked) & (n_asked < self.file.n_items)
            for place, row in zip(left, rows, strict=True):
                kept = row[(row >= 0) & among[row]][:n]
                found[place, : len(kept)] = kept
            left = left[has_more & (found[left] < 0).any(axis=1)]
            n_asked *= 2
        return found


def read_engine_file(path: Path, seal: FileSeal | None = None) -> EngineFile:
    """The file that `save` wrote, as it was sealed; `DamagedGalleryError` for any other."""
    try:
        if seal is not None and not seal.fits(path, whole=True):
            raise BrokenSealError
        with path.open("rb") as stream:
            # What is longer is an index of Faiss.
            return EngineFile.model_validate_json(unsealed(stream.read(_LONGEST_FILE)))
    except (OSError, BrokenSealError, ValueError) as error:
        raise DamagedGalleryError(f"index file '{path}' is missing or damaged", path) from error
