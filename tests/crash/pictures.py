"""Pictures that a crash run adds to its gallery: few, small, and told apart by their embeddings."""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from vicinal.calibration.arrays import FloatArray
from vicinal.models.embedder import Embedder

__all__ = ["N_PICTURES", "Pictures"]

N_PICTURES = 48


@dataclass(frozen=True)
class Pictures:
    """Numbered pictures.

    Attributes:
        encoded: PNG files.
        digests: Their SHA-256.
        embeddings: (N_PICTURES, d) float32, as the bundle embeds them.
    """

    encoded: list[bytes]
    digests: list[bytes]
    embeddings: FloatArray

    @classmethod
    def drawn(cls, embedder: Embedder) -> Pictures:
        encoded = [_draw(number) for number in range(N_PICTURES)]
        return cls(encoded, [hashlib.sha256(one).digest() for one in encoded], embedder.embed(encoded))

    def write(self, number: int, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.encoded[number])


def _draw(number: int) -> bytes:
    coarse = np.random.default_rng(number).integers(0, 256, (4, 4, 3), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(coarse).resize((16, 16)).save(stream, "PNG")
    return stream.getvalue()
