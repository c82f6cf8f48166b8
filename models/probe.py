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
from vicinal.models.errors import BundleError, NoDirectionError

PROBE_FILE = "probe.npz"
_N_PICTURES = 8
_SIDE = 64
# An image alone, in a batch and again: sums may be taken in another order, and no more.
SAME_TOLERANCE = 1e-4
# Cosine above which embeddings of all drawn pictures are one and the same.
_ALIKE = 0.999999
_N_TRIED = 4


@dataclass(frozen=True)
class Probe:
    """Pictures, and the embeddings that a network gave where its bundle was made."""

    pictures: list[Image.Image]
    embeddings: FloatArray  # (n, d) float32, L2-normalized, of one picture at a time on the processor


def drawn_pictures() -> list[Image.Image]:
    """Eight products of the demo catalog."""
    return [render_view(one, 1, size=_SIDE) for one in make_catalog(seed=0, n_products=_N_PICTURES)]


def try_out(bundle: ModelBundle, what: str) -> None:
    """Refuse a network, which errors call `what`, that nothing can be searched with.

    Its embeddings of drawn pictures are to be numbers, other for other pictures, and the same alone, in a
    batch and again.
    """
    # With one thread all go through the network at once.
    embedder = Embedder(bundle, device="cpu", threads=1)
    tensors = [embedder.prepare(one) for one in drawn_pictures()[:_N_TRIED]]
    try:
        together, again = (embedder.finish(embedder.infer(tensors)) for _ in range(2))
        alone = np.concatenate([embedder.finish(embedder.infer([one])) for one in tensors])
    except NoDirectionError as error:
        raise BundleError(f"{what} embeds no drawn picture: its output {error.what}") from error
    if float((together @ together.T).min()) > _ALIKE:
        raise BundleError(f"{what} embeds all drawn pictures alike: its output does not follow the image")
    for found, said, advice in (
        (again, "the second time", "export it without what is drawn at random"),
        (alone, "alone", "export it in evaluation mode, and quantize it statically"),
    ):
        difference = float(np.abs(together - found).max())
        if difference >= SAME_TOLERANCE:
            raise BundleError(
                f"{what} embeds an image {said} otherwise than in a batch (by {difference:.1e}, at most "
                f"{SAME_TOLERANCE:.0e} is accepted): {advice}"
            )


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
