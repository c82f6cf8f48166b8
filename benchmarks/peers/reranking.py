"""Re-ranking 1,000 queries over 20,000 items: Vicinal's search, the dense formula, and k-reciprocal encoding.

Each starts with embeddings and ends with scores. The dense formula (CSO, app. I.5) is timed over all queries
and items at once, which is the cheapest way to it; its scores are compared over the items and one query, as a
search means it. k-reciprocal encoding is written down as published (Zhong et al., CVPR 2017), in numpy.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.common.large_gallery import items_and_queries, write_bundle, write_gallery
from benchmarks.common.record import save_result
from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.reader import GalleryReader
from vicinal.refine.reranking import dense_contextual_scores
from vicinal.service.search.pipeline import Pipeline, Refine, Rerank
from vicinal.service.search.scorer import Scorer

K1, K2, WEIGHT = 20, 6, 0.3


def k_reciprocal_distances(queries: FloatArray, items: FloatArray) -> npt.NDArray[np.float32]:
    """(q, n) distances after k-reciprocal re-ranking, as published."""
    everyone = np.concatenate([queries, items])
    distances = 2.0 - 2.0 * (everyone @ everyone.T.copy())
    distances /= distances.max(axis=0)
    nearest = np.argpartition(distances, np.arange(1, K1 + 2), axis=1)[:, : K1 + 1]
    encodings = np.zeros_like(distances)
    for row in range(len(everyone)):
        members = _reciprocal(nearest, row, K1)
        expanded = [members]
        for member in members:
            others = _reciprocal(nearest, member, round(K1 / 2))
            if 3 * len(np.intersect1d(others, members)) > 2 * len(others):
                expanded.append(others)
        columns = np.unique(np.concatenate(expanded))
        weights = np.exp(-distances[row, columns])
        encodings[row, columns] = weights / weights.sum()
    encodings = np.stack([encodings[row[:K2]].mean(axis=0) for row in nearest])
    holders = [np.flatnonzero(column) for column in encodings.T]
    n = len(queries)
    jaccard = np.empty((n, len(everyone)), np.float32)
    for row in range(n):
        shared = np.zeros(len(everyone), np.float32)
        for column in np.flatnonzero(encodings[row]):
            rows = holders[column]
            shared[rows] += np.minimum(encodings[row, column], encodings[rows, column])
        jaccard[row] = 1.0 - shared / (2.0 - shared)
    return ((1.0 - WEIGHT) * jaccard + WEIGHT * distances[:n])[:, n:]


def _reciprocal(nearest: npt.NDArray[np.int64], row: int, k: int) -> npt.NDArray[np.int64]:
    """Those of the k nearest of a row that have it among theirs, itself among them."""
    forward = nearest[row, : k + 1]
    return forward[(nearest[forward, : k + 1] == row).any(axis=1)]


def dense_scores(queries: FloatArray, items: FloatArray, rerank: Rerank) -> npt.NDArray[np.float64]:
    """(q, n) scores of the items for the queries, by the dense formula over all of them together."""
    everyone = np.concatenate([queries, items])
    scores = dense_contextual_scores(everyone @ everyone.T.copy(), rerank.k, rerank.beta, rerank.eps)
    return scores[: len(queries), len(queries) :]


def main() -> None:
    """Time all three, compare the scores of the first two, and save the seconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=20_000)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3, help="runs of Vicinal, whose median counts")
    parser.add_argument("--no-result", action="store_true", help="print only")
    arguments = parser.parse_args()
    items, queries = items_and_queries(arguments.items, arguments.queries, arguments.dim)
    rerank = Rerank(method="contextual")
    with tempfile.TemporaryDirectory() as folder:
        gallery = Gallery(Path(folder) / "gallery")
        write_gallery(gallery, items, write_bundle(Path(folder) / "bundle", arguments.dim))
        scorer = Scorer(
            GalleryReader(gallery).view().snapshot, Pipeline(refine=Refine(sides="off"), rerank=rerank)
        )
        scorer.score(queries[:32], 100)
        spent = []
        for _ in range(arguments.rounds):
            began = time.perf_counter()
            scored = scorer.score(queries, 100)
            spent.append(time.perf_counter() - began)
    alone = dense_scores(queries[:1], items, rerank)[0]
    difference = float(np.abs(alone[scored.positions[0]] - scored.scores[0]).max())
    # A matrix of gigabytes hangs on it.
    del alone
    began = time.perf_counter()
    dense_scores(queries, items, rerank)
    dense_seconds = time.perf_counter() - began
    began = time.perf_counter()
    k_reciprocal_distances(queries, items)
    seconds = {
        "Vicinal, contextual": float(np.median(spent)),
        "dense formula": dense_seconds,
        "k-reciprocal encoding": time.perf_counter() - began,
    }
    result = {
        "items": arguments.items,
        "queries": arguments.queries,
        "dim": arguments.dim,
        "seconds": {name: round(value, 3) for name, value in seconds.items()},
        "raw_seconds": [round(value, 4) for value in spent],
        "times_as_long": {name: round(value / float(np.median(spent)), 1) for name, value in seconds.items()},
        "largest_difference_to_dense": difference,
    }
    result["ratios"] = {f"{name} over Vicinal": value for name, value in result["times_as_long"].items()}
    print(result)
    if not arguments.no_result:
        print(save_result("peers_reranking", result))


if __name__ == "__main__":
    main()
