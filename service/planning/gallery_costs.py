"""Costs of a gallery for a replica and for a build: the sums that docs/SCALE.md derives, of the formulas."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from vicinal.service.planning.formulas import (
    EXACT_LIMIT,
    N_NEIGHBORS,
    Range,
    cost,
    index_bytes,
    measured,
    total,
)

_SECONDS = 3600.0
# Faiss leaves room at the ends of lists, of which the formula takes the mean.
_OF_INDEX = 1.05
# Of the gallery that requests were measured with; what its searches took is in their times.
_MEASURED_WITH = (100_000, 256)


@dataclass(frozen=True)
class GalleryCosts:
    """Costs of a gallery; seconds and hours are those of one core.

    Attributes:
        items: How many items.
        dim: Numbers of an embedding.
        cores: Cores of one machine.
        has_images: Whether items and queries are pictures.
        is_refined: Whether items and queries are refined.
        embed_ms: Milliseconds of a core that a picture takes; those of the bundled model when None.
    """

    items: int
    dim: int
    cores: int
    has_images: bool = False
    is_refined: bool = False
    embed_ms: float | None = None

    @property
    def n_spaces(self) -> int:
        """Spaces that are searched: of the embeddings as they are, and of refined ones."""
        return 2 if self.is_refined else 1

    @property
    def vectors(self) -> Range:
        """Bytes of the embeddings."""
        return Range.exactly(4.0 * self.items * self.dim)

    @property
    def index(self) -> Range:
        """Bytes of the indexes."""
        return Range.exactly(index_bytes(self.items, self.dim)).times(1.0, _OF_INDEX).times(self.n_spaces)

    @property
    def mapped(self) -> Range:
        """Bytes of a version's files, which processes map: no less is read when all of it is searched."""
        lists = Range.exactly(2.0 * 4.0 * N_NEIGHBORS * self.items)
        texts = self._each(*measured("texts, bytes"))
        encodings, sequences = self._cost("encodings, bytes"), self._each(8.0, 8.0)
        return total([(self.vectors + lists).times(self.n_spaces), self.index, texts, encodings, sequences])

    @property
    def table(self) -> Range:
        """Bytes of the rows, with thumbnails."""
        rows = self._cost("table, bytes")
        return rows + self._each(*measured("thumbnail, bytes")) if self.has_images else rows

    @property
    def disk(self) -> Range:
        """Bytes of a gallery with one version."""
        return self.mapped + self.table

    @property
    def disk_while_building(self) -> Range:
        """Bytes while a version is made of other rows: both versions, and the staged rows."""
        return (self.disk.times(2) + self.table).by_formula()

    @property
    def process(self) -> Range:
        """Bytes of a process that answers, without the files that it maps."""
        return self._cost("serving, bytes")

    @property
    def building(self) -> Range:
        """Bytes of a build: its own, and the vectors, which are read in no order."""
        return self._cost("building, bytes") + self.vectors

    @property
    def core_hours(self) -> Range:
        """Hours of one core that a version takes."""
        return total(part for part, _ in self._stages()).times(1 / _SECONDS)

    @property
    def hours(self) -> Range:
        """Hours of a build on one machine, where one thread does a share of every stage alone."""
        spread = (
            part.times(*(share + (1 - share) / self.cores for share in alone))
            for part, alone in self._stages()
        )
        hours = total(spread).times(1 / _SECONDS)
        return hours if self.cores <= 2 else hours.by_formula()

    @property
    def searches(self) -> Range:
        """Searches a second that one process answers at most, on one core."""
        name = "refined search" if self.is_refined else "search"
        batched, alone = self._cost(f"{name} of 32, ms"), self._cost(f"{name} alone, ms")
        known = cost("search of 32, ms", *_MEASURED_WITH), cost("search alone, ms", *_MEASURED_WITH)
        request = self._request_ms()
        least = max(request[0] / 2, request[0] - max(one.high for one in known) + min(batched.low, alone.low))
        most = max(least, request[1] - min(one.low for one in known) + max(batched.high, alone.high))
        return Range(low=1e3 / most, high=1e3 / least, is_measured=alone.is_measured)

    def _request_ms(self) -> tuple[float, float]:
        """Milliseconds of a core for a request, with a search of the gallery that it was measured with."""
        of_embedding = measured("request of an embedding, ms")
        if not self.has_images:
            return of_embedding
        if self.embed_ms is None:
            return measured("request of an image, ms")
        return of_embedding[0] + self.embed_ms, of_embedding[1] + self.embed_ms

    def _stages(self) -> Iterator[tuple[Range, tuple[float, float]]]:
        """Seconds of every stage, and least and most share of it that one thread does alone."""
        is_exact = self.items <= EXACT_LIMIT
        lists = self._cost("exact neighbor lists, s" if is_exact else "neighbor lists by cells, s")
        index = self._cost("index and publishing, s")
        lists_alone, index_alone = (measured(f"{one} by one thread") for one in ("lists", "publishing"))
        yield self._cost("staging, s"), (1.0, 1.0)
        yield lists, lists_alone
        yield index, index_alone
        if self.has_images:
            own = None if self.embed_ms is None else self.embed_ms / 1e3
            of_one = measured("staging of an image, s") if own is None else (own, own)
            yield self._each(*of_one), (0.0, 0.0)
        if self.is_refined:
            again = measured("refined lists over lists")
            yield self._cost("refined items, s"), (0.0, 1.0)
            yield lists.times(*again), lists_alone
            yield index.times(*again), index_alone

    def _cost(self, name: str) -> Range:
        return cost(name, self.items, self.dim)

    def _each(self, low: float, high: float) -> Range:
        return Range.exactly(self.items).times(low, high)
