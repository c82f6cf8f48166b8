"""Whether k-reciprocal re-ranking helps, and with which settings: chosen on calibration classes only.

For the embeddings of training runs of the loss study, and for every setting: the threshold for an FPIR of 5 %
on the queries without a mate, the FNIR that it leaves, the hit rate, MAP@R, and how well the best score
tells queries with a mate from those without (AUROC). Test classes are not touched. As in the service, the 100
most similar items are re-ranked; all others follow them by similarity.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.common.record import save_result
from benchmarks.losses.images import load_parts
from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.graph.neighbor_graph import NeighborGraph, build_neighbor_graph
from vicinal.models.similarity import exact_similarities, normalize
from vicinal.refine.k_reciprocal import ItemLists, ReciprocalGraph, k_reciprocal_scores, reciprocal_encodings
from vicinal.refine.reranking import contextual_scores, kth_similarities
from vicinal.training.datasets import LabelledImages
from vicinal.training.evaluation import auroc

FPIR = 0.05
N_CANDIDATES = 100
CONTEXTUAL = [(8, 0.1), (8, 0.3)]
K1, K2, LAM = (5, 8, 12, 20), (1, 3, 6), (0.1, 0.3, 0.5, 0.7, 0.9)
Scores = np.ndarray


@dataclass(frozen=True)
class Searched:
    """Candidates of every query of one run, most similar first.

    Attributes:
        queries: (B, d) queries with a mate, then those without.
        positions: (B, n) positions in the gallery.
        similarities: (B, n) exact cosines.
        is_mate: (B, n) whether a candidate is of the query's class.
        n_mates: (B,) mates in the whole gallery; 0 for a query without.
    """

    gallery: FloatArray
    graph: NeighborGraph
    queries: FloatArray
    positions: np.ndarray
    similarities: FloatArray
    is_mate: np.ndarray
    n_mates: np.ndarray


def search(embeddings: np.ndarray, part: LabelledImages) -> Searched:
    """Search for the queries of a part among its gallery.

    Args:
        embeddings: (n, d) embeddings of the part's images, not normalized.
        part: Their labels and roles.
    """
    unit = normalize(embeddings)
    is_gallery = part.roles == "gallery"
    order = np.concatenate([np.flatnonzero(part.roles == role) for role in ("query", "absent")])
    gallery, queries = unit[is_gallery], unit[order]
    every = np.stack([exact_similarities(query, gallery) for query in queries])
    positions = np.argsort(-every, axis=1, kind="stable")[:, :N_CANDIDATES]
    mates = part.labels[order][:, None] == part.labels[is_gallery]
    return Searched(
        gallery,
        build_neighbor_graph(gallery),
        queries,
        positions,
        np.take_along_axis(every, positions, axis=1),
        np.take_along_axis(mates, positions, axis=1),
        mates.sum(axis=1),
    )


def settings(found: Searched) -> dict[str, Callable[[], Scores]]:
    """How to score the candidates, by the name of the setting."""
    ways: dict[str, Callable[[], Scores]] = {
        "off": lambda: np.exp(2.0 * found.similarities.astype(float) - 2.0)
    }
    for k, beta in CONTEXTUAL:
        ways[f"contextual k={k} beta={beta}"] = lambda k=k, beta=beta: contextual(found, k, beta)
    lists = ItemLists(found.gallery, found.graph.ids, found.graph.similarities)
    for k1 in K1:
        graph = ReciprocalGraph(lists, len(found.gallery), k1)
        graph = replace(graph, encodings=reciprocal_encodings(graph))
        for k2 in K2:
            jaccard = k_reciprocal_scores(
                found.queries, found.positions, found.similarities, graph, k2=k2, lam=0
            )[1]
            for lam in LAM:
                ways[f"k_reciprocal k1={k1} k2={k2} lam={lam}"] = lambda j=jaccard, lam=lam: (
                    (1.0 - lam) * j + lam * np.exp(2.0 * found.similarities.astype(float) - 2.0)
                )
    return ways


def contextual(found: Searched, k: int, beta: float) -> Scores:
    """(B, n) contextual scores of the candidates."""
    kth = kth_similarities(found.graph.similarities[found.positions], k)
    scores, _ = contextual_scores(
        found.similarities, found.gallery[found.positions], kth, k=k, beta=beta, eps=0.05
    )
    return scores


def measure(found: Searched, scores: Scores) -> dict[str, float]:
    """FNIR at the target FPIR, R@1, MAP@R and AUROC of (B, n) scores."""
    known, absent = found.n_mates > 0, found.n_mates == 0
    best = scores.max(axis=1)
    threshold = np.nextafter(np.sort(best[absent])[::-1][int(FPIR * absent.sum())], np.inf)
    best_mate = np.where(found.is_mate, scores, -np.inf).max(axis=1)[known]
    order = np.argsort(-scores[known], axis=1, kind="stable")
    hits = np.take_along_axis(found.is_mate[known], order, axis=1)
    return {
        "fnir": float(1.0 - (best_mate >= threshold).mean()),
        "hit_rate_1": float(hits[:, 0].mean()),
        "map_at_r": float(map_at_r(hits, found.n_mates[known])),
        "auroc": auroc(best[known], best[absent]),
    }


def map_at_r(hits: np.ndarray, n_mates: np.ndarray) -> float:
    """Mean over queries of the average precision in the first R places, R the mates of the query.

    Args:
        hits: (B, n) whether each candidate is a mate, best first.
        n_mates: (B,) mates in the whole gallery, at least 1.
    """
    ranks = np.arange(1, hits.shape[1] + 1)
    counted = hits & (ranks <= n_mates[:, None])
    precisions = np.cumsum(hits, axis=1) / ranks
    return float(((precisions * counted).sum(axis=1) / n_mates).mean())


def main() -> None:
    """Measure every setting on every run, print the means by FNIR, and save all rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with one protocol folder a set")
    parser.add_argument("--work", type=Path, required=True, help="folder that the loss study worked in")
    parser.add_argument("--sets", nargs="+", default=["grocery", "dogfacenet", "omniglot"])
    parser.add_argument("--losses", nargs="+", default=["multi_similarity", "contrastive", "contextual"])
    arguments = parser.parse_args()
    rows: dict[str, dict[str, list[float]]] = {}
    means: dict[str, list[dict[str, float]]] = defaultdict(list)
    for images in arguments.sets:
        part = load_parts(arguments.data / images, arguments.work).calibration
        for loss in arguments.losses:
            path = arguments.work / "runs" / f"{images}--losses--{loss}--seed0.npz"
            found = search(np.load(path)["calibration"].astype(np.float32), part)
            measured = {name: measure(found, score()) for name, score in settings(found).items()}
            rows[path.stem] = {name: [round(x, 4) for x in one.values()] for name, one in measured.items()}
            for name, one in measured.items():
                means[name].append(one)
            print(f"{path.stem}: off {measured['off']}", file=sys.stderr)
    for name, found_rows in sorted(means.items(), key=lambda pair: np.mean([one["fnir"] for one in pair[1]])):
        shown = " ".join(f"{key} {np.mean([one[key] for one in found_rows]):.3f}" for key in found_rows[0])
        print(f"{shown}  {name}")
    columns = ["fnir", "hit_rate_1", "map_at_r", "auroc"]
    print(
        save_result("k_reciprocal_settings", {"target": f"FPIR {FPIR:.0%}", "columns": columns, "runs": rows})
    )


if __name__ == "__main__":
    main()
