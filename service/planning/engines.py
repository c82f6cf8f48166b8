"""Costs of an engine beside us for the same vectors: by its layout, by measurement, by what is published.

pgvector lays its graph into pages of 8 KiB, of which each holds as many items as fit: a vector with its
head, and 2 m places of neighbors. Memory of Milvus is what two published calculators name, 31.2 GB for
22.9 GB of vectors and 1.1 GB for 488.3 MB. docs/SCALE.md has the addresses.
"""

from __future__ import annotations

import math

from vicinal.service.planning.formulas import Range, measured

# Longest vectors that pgvector makes a graph of, and that Milvus takes.
LONGEST = {"postgres": 2_000, "milvus": 32_768}
_LINKS, _LOOKED_AT = 16, 64
_PAGE, _USED = 8192, 8160
_MILVUS = (31.2 / 22.9, 1.1e9 / (488.3 * 2**20))
# 1 million x 1536 took one worker 87 minutes, with 200 items looked at for each.
_PUBLISHED_SECONDS, _PUBLISHED_OF = 87 * 60.0, (1_000_000, 1536)


def postgres_graph_bytes(n: int, dim: int) -> float:
    """Bytes of pgvector's graph with m = 16, which has to be in memory to be quick."""
    element = math.ceil((4 * dim + 84) / 8) * 8 + 4
    neighbors = 8 + 12 * _LINKS + 4
    if element + neighbors > _USED:
        return n * _PAGE * (math.ceil(element / _USED) + neighbors / _USED)
    return n * _PAGE / (_USED // (element + neighbors))


def postgres_memory(n: int, dim: int) -> Range:
    """Memory in which pgvector's graph is quick; what upper levels take comes on top."""
    return Range.exactly(postgres_graph_bytes(n, dim)).times(1.0, 1.02).by_formula()


def postgres_building(n: int, dim: int) -> Range:
    """Memory that a build of the graph wants; with less it takes much longer."""
    low, high = measured("graph of pgvector beside a vector, bytes")
    return Range(low=n * (4.0 * dim + low), high=n * (4.0 * dim + high), is_measured=False)


def postgres_products(n: int, dim: int) -> float:
    """Growth of a graph's seconds, but for a factor: items looked at on log n levels, and their links."""
    return n * math.log2(max(2, n)) * _LOOKED_AT * (_LINKS + dim / 16)


def postgres_seconds(n: int, dim: int) -> Range:
    """Seconds of one core for a graph: from what was measured to what is published."""
    low, high = measured("graph of pgvector, s")
    published = _PUBLISHED_SECONDS / postgres_products(*_PUBLISHED_OF)
    return Range.exactly(postgres_products(n, dim)).times(low, max(high, published)).by_formula()


def milvus_memory(n: int, dim: int) -> Range:
    """Memory of all query nodes together."""
    return Range.exactly(4.0 * n * dim).times(*_MILVUS).by_formula()
