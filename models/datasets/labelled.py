"""Labelled images held in memory at training size."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image

from models.config import DatasetConfig, DemoCatalogConfig, FolderConfig, ProtocolConfig
from models.datasets.protocol import open_archives, read_protocol
from models.decoding import ACCEPTED_FORMATS, IMAGE_SUFFIXES, ImageSource, decode_image
from models.demo_catalog import make_catalog, render_view
from models.errors import DatasetError, ImageError

__all__ = ["LabelledImages", "load_datasets"]

Fit = Callable[[Image.Image], Image.Image]


@dataclass(frozen=True)
class LabelledImages:
    """Images and labels.

    Attributes:
        pixels: (n, S, S, 3) uint8 RGB.
        labels: (n,) class names, each with its data set's name before a colon.
        roles: (n,) `train`, `gallery`, `query` or `absent`.
    """

    pixels: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.str_]
    roles: npt.NDArray[np.str_]

    @property
    def class_ids(self) -> npt.NDArray[np.int64]:
        """(n,) labels as integers, in the order of the sorted names."""
        return np.unique(self.labels, return_inverse=True)[1].astype(np.int64)

    @property
    def sources(self) -> npt.NDArray[np.str_]:
        """(n,) name of the data set of each image."""
        return np.array([label.partition(":")[0] for label in self.labels])

    @property
    def labels_sha256(self) -> str:
        """SHA-256 of the sorted class names, one a line."""
        return hashlib.sha256("\n".join(np.unique(self.labels).tolist()).encode()).hexdigest()

    def subset(self, mask: npt.NDArray[np.bool_]) -> LabelledImages:
        """The images where `mask` (n,) is true."""
        return LabelledImages(self.pixels[mask], self.labels[mask], self.roles[mask])

    def split_classes(self, share: float, seed: int) -> tuple[LabelledImages, LabelledImages]:
        """Split by class, the same share of each data set.

        Args:
            share: Share of the classes that go to the second part, in [0, 1).
            seed: Seed of the draw.

        Returns:
            The larger part and the held-out part, which share no class.
        """
        rng = np.random.default_rng(seed)
        names = np.unique(self.labels)
        sources = np.array([name.partition(":")[0] for name in names])
        held: set[str] = set()
        for source in np.unique(sources):
            own = names[sources == source]
            held.update(rng.permutation(own)[: round(share * len(own))].tolist())
        mask = np.isin(self.labels, sorted(held))
        return self.subset(~mask), self.subset(mask)


def load_datasets(configs: Sequence[DatasetConfig], fit: Fit) -> LabelledImages:
    """Load and fit every image of the data sets.

    Args:
        configs: Where the images are.
        fit: Brings an RGB image to the training size.

    Raises:
        DatasetError: A data set is missing, has no images, or one that cannot be decoded.
    """
    names = [config.root.name for config in configs if not isinstance(config, DemoCatalogConfig)]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise DatasetError(
            f"two data sets have a folder named '{repeated[0]}': rename one, "
            "or their classes would be taken for the same"
        )
    loaded = [_load_one(config, fit) for config in configs]
    return LabelledImages(
        np.concatenate([part.pixels for part in loaded]),
        np.concatenate([part.labels for part in loaded]),
        np.concatenate([part.roles for part in loaded]),
    )


def _load_one(config: DatasetConfig, fit: Fit) -> LabelledImages:
    match config:
        case ProtocolConfig():
            return _load_protocol(config, fit)
        case FolderConfig():
            return _load_folder(config, fit)
        case DemoCatalogConfig():
            return _render_catalogs(config, fit)


def _load_protocol(config: ProtocolConfig, fit: Fit) -> LabelledImages:
    rows = read_protocol(config.root, split=config.split, roles=config.roles)
    name = config.root.name

    def images() -> Iterable[tuple[Image.Image, str, str]]:
        with open_archives(config.root) as read:
            for row in rows:
                yield fit(_decode(read(row), row.path)), f"{name}:{row.label}", row.role

    return _collect(images(), str(config.root))


def _load_folder(config: FolderConfig, fit: Fit) -> LabelledImages:
    if not config.root.is_dir():
        raise DatasetError(f"there is no folder '{config.root}'")
    paths = sorted(path for path in config.root.glob("*/*") if path.suffix.lower() in IMAGE_SUFFIXES)
    name = config.root.name
    images = ((fit(_decode(path, str(path))), f"{name}:{path.parent.name}", "train") for path in paths)
    return _collect(images, str(config.root))


def _render_catalogs(config: DemoCatalogConfig, fit: Fit) -> LabelledImages:
    images = (
        (fit(render_view(product, view, size=96)), f"demo:{seed}/{product.id}", "train")
        for seed in config.seeds
        for product in make_catalog(seed, config.products)
        for view in range(config.views)
    )
    return _collect(images, "demo catalog")


def _decode(source: ImageSource, name: str) -> Image.Image:
    try:
        return decode_image(source)
    except ImageError as error:
        raise DatasetError(f"image '{name}' cannot be used: {error.reason}") from error


def _collect(images: Iterable[tuple[Image.Image, str, str]], name: str) -> LabelledImages:
    pixels, labels, roles = [], [], []
    for image, label, role in images:
        pixels.append(np.asarray(image, dtype=np.uint8))
        labels.append(label)
        roles.append(role)
    if not pixels:
        raise DatasetError(f"'{name}' holds no images ({', '.join(ACCEPTED_FORMATS)})")
    return LabelledImages(np.stack(pixels), np.array(labels), np.array(roles))
