"""Probe: pictures in a bundle and what its network made of them there, so that another machine can compare.

A wrong installation of ONNX Runtime shows in no error: images only get other embeddings than the gallery's.
The pictures are kept, not drawn again: a level in their pixels changes an embedding more than rounding does.
"""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
from PIL import Image

from vicinal.calibration.arrays import FloatArray
from vicinal.models.bundle import ModelBundle
from vicinal.models.demo_catalog import make_catalog, render_view
from vicinal.models.embedder import Embedder
from vicinal.models.errors import BundleError

PROBE_FILE = "probe.npz"
_N_PICTURES = 8
_SIDE = 64


@dataclass(frozen=True)
class Probe:
    """Pictures, and the embeddings that a network gave where its bundle was made."""

    pictures: list[Image.Image]
    embeddings: FloatArray  # (n, d) float32, L2-normalized, of one picture at a time on the processor


def drawn_pictures() -> list[Image.Image]:
    """Eight products of the demo catalog."""
    return [render_view(one, 1, size=_SIDE) for one in make_catalog(seed=0, n_products=_N_PICTURES)]


def write_probe(bundle: ModelBundle) -> None:
    """Embed drawn pictures on this machine, and put both into the bundle."""
    pictures, embedder = drawn_pictures(), Embedder(bundle, device="cpu")
    np.savez_compressed(
        bundle.path / PROBE_FILE,
        fingerprint=np.array(bundle.fingerprint),
        pictures=np.stack([np.asarray(one) for one in pictures]),
        embeddings=np.concatenate([embedder.embed([one]) for one in pictures]),
    )


def read_probe(bundle: ModelBundle) -> Probe | None:
    """The probe of a bundle; None where it has none, or one of another network."""
    path = bundle.path / PROBE_FILE
    if not path.is_file():
        return None
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as kept:
            if str(kept["fingerprint"]) != bundle.fingerprint:
                return None
            pictures, embeddings = kept["pictures"], kept["embeddings"]
            if embeddings.shape != (len(pictures), bundle.dim) or not len(pictures):
                raise ValueError(f"{len(pictures)} pictures, embeddings {embeddings.shape}")
            return Probe([Image.fromarray(one, "RGB") for one in pictures], embeddings)
    # What numpy, zipfile and zlib raise for a damaged file has no common base.
    except Exception as error:
        raise BundleError(f"'{path}' is damaged: copy the bundle again, or delete this file") from error
