"""Retrieval test: what a bundle's embeddings can do on classes that its training never saw."""

from __future__ import annotations

import numpy as np

from models.config import RetrievalTest
from models.datasets.protocol import open_archives, read_protocol
from models.embedder import Embedder
from models.evaluation import auroc, retrieval_metrics
from models.similarity import FloatArray

__all__ = ["measure"]


def measure(embedder: Embedder, test: RetrievalTest) -> dict[str, float]:
    """Retrieval metrics of the initial embeddings on a protocol's gallery, query and absent images.

    Returns:
        `hit_rate_1`, `map_at_r`, the counts, and `auroc` of the top similarity between queries with a
        mate and absent ones, when there are absent ones.
    """
    embeddings, labels, roles = _embed_protocol(embedder, test)
    gallery, query, absent = (roles == role for role in ("gallery", "query", "absent"))
    metrics = retrieval_metrics(
        embeddings[query],
        labels[query],
        gallery_embeddings=embeddings[gallery],
        gallery_labels=labels[gallery],
        ks=(1,),
    )
    measured = {
        "hit_rate_1": round(metrics.hit_rate[1], 4),
        "map_at_r": round(metrics.map_at_r, 4),
        "n_gallery": float(gallery.sum()),
        "n_queries": float(query.sum()),
    }
    if absent.any():
        top = (embeddings @ embeddings[gallery].T).max(axis=1)
        measured["auroc"] = round(auroc(top[query], top[absent]), 4)
        measured["n_absent"] = float(absent.sum())
    return measured


def _embed_protocol(embedder: Embedder, test: RetrievalTest) -> tuple[FloatArray, np.ndarray, np.ndarray]:
    config = test.dataset
    rows = read_protocol(config.root, split=config.split, roles=config.roles)
    with open_archives(config.root) as read:
        parts = [
            embedder.embed([read(row) for row in rows[start : start + 256]])
            for start in range(0, len(rows), 256)
        ]
    labels = np.array([row.label for row in rows])
    return np.concatenate(parts), labels, np.array([row.role for row in rows])
