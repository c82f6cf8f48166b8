"""Features of a frozen, pretrained network: each view of each image embedded once, for all heads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

from vicinal.models.decoding import decode_image
from vicinal.models.embedder import Embedder
from vicinal.training.backbones.backbone import BackboneConfig, build_network
from vicinal.training.datasets.labelled import ImageListing, list_images
from vicinal.training.datasets.layouts.protocol import ProtocolConfig
from vicinal.training.export.network import export_network

__all__ = ["BACKBONE", "FeatureParts", "Features", "cached", "load_features", "view"]

BACKBONE = BackboneConfig(
    name="tf_efficientnet_lite0", weights="package", pooling="native", dim=None, layer_norm=False
)
# Characters are drawn at 105 px, and a mirrored character is another one.
_SIDES = {"omniglot": 128}
_SIDE = 224
_VIEWS = {"omniglot": 1}
_LEAST_SHARE = 0.6
_BATCH = 32


@dataclass(frozen=True)
class Features:
    """One part of an image set.

    Attributes:
        views: (n, v, ...) what the frozen part of a network gives: float32 features of length 1, or float16
            maps. The first view of an image is the image as it is.
        labels: (n,) class names.
        roles: (n,) `train`, `gallery`, `query` or `absent`.
    """

    views: npt.NDArray[np.floating]
    labels: npt.NDArray[np.str_]
    roles: npt.NDArray[np.str_]

    @property
    def plain(self) -> npt.NDArray[np.floating]:
        """(n, ...) of the images as they are."""
        return self.views[:, 0]

    @property
    def class_ids(self) -> npt.NDArray[np.int64]:
        """(n,) labels as integers, in the order of the sorted names."""
        return np.unique(self.labels, return_inverse=True)[1].astype(np.int64)

    def subset(self, which: npt.NDArray[np.bool_] | npt.NDArray[np.integer]) -> Features:
        """The images where a mask (n,) is true, or at some positions."""
        return Features(self.views[which], self.labels[which], self.roles[which])


@dataclass(frozen=True)
class FeatureParts:
    """One image set: classes to train on, for thresholds, and to report; no class is in two parts."""

    train: Features
    calibration: Features
    test: Features


def load_features(root: Path, folder: Path, *, training_views: int = 3) -> FeatureParts:
    """Features of a protocol folder, computed where they are missing.

    Args:
        root: Folder with `protocol.csv` and its archives.
        folder: Where features are kept.
        training_views: Views of a training photo; of a character there is always one.
    """
    roles = ("gallery", "query", "absent")
    return FeatureParts(
        _cached(root, "train", ("train",), folder, _VIEWS.get(root.name, training_views)),
        _cached(root, "calibration", roles, folder),
        _cached(root, "test", roles, folder),
    )


def view(image: Image.Image, number: int, rng: np.random.Generator) -> Image.Image:
    """The image as it is for number 0, else a random crop of it, mirrored half of the time."""
    if not number:
        return image
    share, place = rng.uniform(_LEAST_SHARE, 1.0) ** 0.5, rng.random(2)
    width, height = round(share * image.width), round(share * image.height)
    left, top = round(place[0] * (image.width - width)), round(place[1] * (image.height - height))
    crop = image.crop((left, top, left + width, top + height))
    return ImageOps.mirror(crop) if rng.random() < 0.5 else crop


def cached(
    path: Path,
    part: ProtocolConfig,
    make: Callable[[], npt.NDArray[np.floating]],
    dtype: type[np.floating] = np.float32,
) -> Features:
    """What a file keeps of one part, made where it is missing.

    Args:
        make: Gives (n, v, ...) of the part's images.
        dtype: Of what is given back; float16 is kept.
    """
    if not path.exists():
        listing = list_images(part)
        partial = path.with_suffix(".partial.npz")
        np.savez(partial, views=make().astype(np.float16), labels=listing.labels, roles=listing.roles)
        partial.rename(path)
    with np.load(path) as stored:
        return Features(stored["views"].astype(dtype), stored["labels"], stored["roles"])


def _cached(root: Path, split: str, roles: tuple[str, ...], folder: Path, n_views: int = 1) -> Features:
    def make() -> npt.NDArray[np.floating]:
        listing, embedder = list_images(part), _embedder(folder, _SIDES.get(root.name, _SIDE))
        views = np.concatenate([embedder.embed(batch) for batch in _batches(listing, n_views)])
        return views.reshape(len(listing), n_views, -1)

    part = ProtocolConfig(kind="protocol", root=root, split=split, roles=roles)
    return cached(folder / f"{root.name}-{split}.npz", part, make)


def _batches(listing: ImageListing, n_views: int) -> Iterator[Sequence[Image.Image]]:
    """All views of one image, then those of the next."""
    rng = np.random.default_rng(0)
    with listing.open() as read:
        for start in range(0, len(listing), _BATCH):
            images = [decode_image(read(file)) for file in listing.files[start : start + _BATCH]]
            yield [view(image, number, rng) for image in images for number in range(n_views)]


def _embedder(folder: Path, side: int) -> Embedder:
    half = (0.5, 0.5, 0.5)
    fields = {
        "name": BACKBONE.name,
        "backbone": BACKBONE.name,
        "preprocessing": {"input_size": side, "fit": "squash", "mean": half, "std": half},
        "training": {"weights": str(BACKBONE.weights)},
        "licence": "Apache-2.0",
    }
    bundle = export_network(build_network(BACKBONE), folder / f"{BACKBONE.name}-{side}", fields)
    return Embedder(bundle, threads=1, batch_size=_BATCH)
