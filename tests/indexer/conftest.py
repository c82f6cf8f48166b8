"""Fixtures of the indexer: galleries of given embeddings, without files or a network."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.graph.neighbor_graph import build_neighbor_graph
from vicinal.indexer.storage.item_table import as_fixed_lists
from vicinal.models.similarity import normalize

BUNDLE = "0123456789abcdef"


def make_rows(
    ids: Sequence[str],
    embeddings: FloatArray,
    *,
    labels: Sequence[str | None] | None = None,
    metadata: Sequence[dict[str, Any]] | None = None,
) -> pa.Table:
    """Rows as an embedding run gives them; the thumbnail spells the id."""
    n = len(ids)
    return pa.table(
        {
            "id": pa.array(ids, pa.string()),
            "label": pa.array(labels or [None] * n, pa.string()),
            "uri": pa.array([f"{item_id}.jpg" for item_id in ids], pa.string()),
            "metadata": pa.array([json.dumps(one) for one in metadata or [{}] * n], pa.string()),
            "thumbnail": pa.array([item_id.encode() for item_id in ids], pa.binary()),
            "content_sha256": pa.array([one.tobytes()[:32] for one in embeddings], pa.binary(32)),
            "source": pa.nulls(n, pa.string()),
            "file_size": pa.nulls(n, pa.int64()),
            "modified_at": pa.nulls(n, pa.timestamp("us", tz="UTC")),
            "embedding": as_fixed_lists(embeddings),
        }
    )


def publish_rows(gallery: Gallery, rows: pa.Table, index: str = "auto") -> int:
    """Make rows a new version of a gallery."""
    gallery.start(rows, bundle=BUNDLE, bundle_name="tiny")
    graph = build_neighbor_graph(gallery.pending_embeddings())
    return gallery.publish(graph, index=index).manifest.version


@pytest.fixture(scope="session")
def rows() -> Callable[..., pa.Table]:
    return make_rows


@pytest.fixture(scope="session")
def publish() -> Callable[..., int]:
    return publish_rows


@pytest.fixture(scope="session")
def unit() -> Callable[..., FloatArray]:
    """Random directions."""

    def draw(n: int, seed: int = 0, dim: int = 8) -> FloatArray:
        return normalize(np.random.default_rng(seed).normal(size=(n, dim)))

    return draw


@pytest.fixture
def live_gallery(tmp_path: Path, unit: Callable[..., FloatArray]) -> Gallery:
    """A gallery of forty items `0`, `1` and so on, in four classes."""
    gallery = Gallery(tmp_path / "galleries" / "shoes")
    labels = [f"class {i % 4}" for i in range(40)]
    metadata = [{"price": i, "color": "red" if i % 2 else "blue"} for i in range(40)]
    publish_rows(gallery, make_rows([str(i) for i in range(40)], unit(40), labels=labels, metadata=metadata))
    return gallery
