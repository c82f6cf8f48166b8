"""Candidate source: who finds the items near a query. Exact scores come later, and do not depend on it."""

from __future__ import annotations

from typing import Protocol

from vicinal.calibration.arrays import FloatArray, Ints, Mask
from vicinal.indexer.filters import Filter


class CandidateSource(Protocol):
    """Nearest neighbors by inner product, over positions 0..n-1 of one version; never changed once built.

    Implemented by `FaissIndex`, `GpuIndex`, and by `EngineSource` for an engine beside us.
    """

    @property
    def spec(self) -> str:
        """Kind of index as the option `index` names it: a factory string of Faiss, or an engine."""

    @property
    def device(self) -> str:
        """Place of the searches: `cpu`, a GPU, or an engine's name."""

    @property
    def is_exact(self) -> bool:
        """Tell whether every vector is compared in full."""

    @property
    def can_select(self) -> bool:
        """Tell whether it searches among some items."""

    @property
    def needs_filter(self) -> bool:
        """Tell whether it does so only by the filter that selects them, on rows as they were built."""

    def n_fetched(self, n: int) -> int:
        """Items to search for, so that the n nearest are among them when all are compared exactly."""

    def wider(self, times: int) -> CandidateSource:
        """The same, which looks so many times as far where that does not follow from what it is asked for."""

    def search(
        self, queries: FloatArray, n: int, among: Mask | None = None, filter: Filter | None = None
    ) -> Ints:
        """(B, n) positions of the items nearest to (B, d) queries, those of `among` alone where it is given,
        and -1 where there are fewer; `filter` selects at least the items of `among`.
        """
