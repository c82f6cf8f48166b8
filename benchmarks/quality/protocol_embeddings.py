"""Embeddings of image sets with a fixed protocol, kept in a folder so that they are made once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from vicinal.calibration.arrays import FloatArray, Ints, Mask, Objects
from vicinal.models.embedder import Embedder
from vicinal.training.datasets.layouts.demo_catalog import DemoCatalogConfig
from vicinal.training.datasets.layouts.protocol import ProtocolConfig

__all__ = ["DRAWN", "PartEmbeddings"]

# Drawn products, of other catalogs than the demo's and those that the bundled model has learned from.
DRAWN = DemoCatalogConfig(kind="demo_catalog", seeds=(201, 202), side=224)
_AT_ONCE = 64


@dataclass(frozen=True)
class PartEmbeddings:
    """(n, d) float32 embeddings of one part of a set, L2-normalized, with their (n,) labels and roles."""

    embeddings: FloatArray
    labels: Objects
    roles: Objects

    @classmethod
    def of(cls, root: Path, split: str, embedder: Embedder, cache: Path | None) -> Self:
        """Embed a split of a protocol folder, or of `drawn`, or read what an earlier run kept of it."""
        kept = None if cache is None else cache / f"{root.name}-{split}.npz"
        if kept is not None and kept.is_file():
            with np.load(kept) as stored:
                texts = [stored[name].astype(object) for name in ("labels", "roles")]
                return cls(stored["embeddings"], *texts)
        roles = ("train",) if split == "train" else ("gallery", "query", "absent")
        config = ProtocolConfig(kind="protocol", root=root, split=split, roles=roles)
        made = cls._embedded(DRAWN if root.name == "drawn" else config, embedder)
        if kept is not None:
            kept.parent.mkdir(parents=True, exist_ok=True)
            named, played = made.labels.astype(str), made.roles.astype(str)
            np.savez(kept, embeddings=made.embeddings, labels=named, roles=played)
        return made

    @classmethod
    def _embedded(cls, config: ProtocolConfig | DemoCatalogConfig, embedder: Embedder) -> Self:
        rows, vectors = list(config.rows()), []
        with config.open() as read:
            for start in range(0, len(rows), _AT_ONCE):
                images = [embedder.prepare_source(read(row)) for row in rows[start : start + _AT_ONCE]]
                vectors.append(embedder.finish(embedder.infer(images, alone=False)))
        labels, roles = (np.array([getattr(row, of) for row in rows], object) for of in ("label", "role"))
        return cls(np.concatenate(vectors), labels, roles)

    def take(self, rows: Mask | Ints) -> PartEmbeddings:
        """Some of the photos."""
        return PartEmbeddings(self.embeddings[rows], self.labels[rows], self.roles[rows])

    def of_role(self, role: str) -> PartEmbeddings:
        """The photos of one role: gallery, query or absent."""
        return self.take(self.roles == role)
