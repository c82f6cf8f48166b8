"""Labelled images: what a data set has, one by one, or decoded to the training size within some memory."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import partial

import numpy as np
from PIL import Image

from vicinal.calibration.arrays import Bytes, Indices, Ints, Mask, Texts
from vicinal.models.decoding import accepted_formats
from vicinal.models.errors import DatasetError
from vicinal.training.datasets.files import LabelledFile, ReadImage, decoded
from vicinal.training.datasets.layouts import DatasetConfig
from vicinal.training.datasets.stored_pixels import Fit, PixelStore, StoredPixels
from vicinal.training.evaluation.open_set import hold_out_classes


@dataclass(frozen=True)
class ImageListing:
    """The images of one data set, one file a row, none of them decoded.

    `open` gives a context manager whose value reads one row: what it returns, `decode_image` and the embedder
    take. `with listing.open() as read: embedder.embed([read(file) for file in batch])` embeds a set of any
    size without holding its pixels. The `name` stands before the colon of labels and super-labels.
    """

    name: str
    files: tuple[LabelledFile, ...]
    open: Callable[[], AbstractContextManager[ReadImage]]

    def __len__(self) -> int:
        return len(self.files)

    @property
    def labels(self) -> Texts:
        """(n,) class names, each with the data set's name before a colon."""
        return np.array([f"{self.name}:{file.label}" for file in self.files], np.str_)

    @property
    def super_labels(self) -> Texts:
        """(n,) groups of classes, named like labels; the data set's name alone where it has none."""
        return np.array(
            [f"{self.name}:{file.super_label}" if file.super_label else self.name for file in self.files],
            np.str_,
        )

    @property
    def roles(self) -> Texts:
        """(n,) roles; see `LabelledFile`."""
        return np.array([file.role for file in self.files], np.str_)

    def only(self, *roles: str) -> ImageListing:
        """The images with one of these roles, which may be none."""
        return replace(self, files=tuple(file for file in self.files if file.role in roles))


def list_images(config: DatasetConfig) -> ImageListing:
    """List the images of a data set with labels, super-labels and roles.

    Refused with DatasetError when it is incomplete, has a malformed line, or no images.
    """
    files = tuple(config.rows())
    if not files:
        place = getattr(config, "root", config.name)
        raise DatasetError(f"'{place}' holds no images ({', '.join(accepted_formats())})")
    return ImageListing(config.name, files, config.open)


@dataclass(frozen=True)
class LabelledImages:
    """Images and labels.

    Attributes:
        pixels: (n, S, S, 3) uint8 RGB; (n, 0, 0, 3) where they are not wanted, or those of a store.
        labels: (n,) class names, each with its data set's name before a colon.
        roles: (n,) roles; see `training.datasets.files.LabelledFile`.
        super_labels: (n,) groups of classes, named like labels. The classes of a data set without any are
            one group with the data set's name; left out, that holds for all.
        positions: (n,) place of each image among all of the data sets, which a subset keeps.
    """

    pixels: Bytes | StoredPixels
    labels: Texts
    roles: Texts
    super_labels: Texts = field(default_factory=lambda: np.empty(0, np.str_))
    positions: Indices = field(default_factory=lambda: np.empty(0, np.intp))

    def __post_init__(self) -> None:
        if not len(self.super_labels):
            object.__setattr__(self, "super_labels", self.sources)
        if not len(self.positions):
            object.__setattr__(self, "positions", np.arange(len(self.labels)))

    @property
    def class_ids(self) -> Ints:
        """(n,) labels as integers, in the order of the sorted names."""
        return np.unique(self.labels, return_inverse=True)[1].astype(np.int64)

    @property
    def sources(self) -> Texts:
        """(n,) name of the data set of each image."""
        return np.array([label.partition(":")[0] for label in self.labels])

    @property
    def labels_sha256(self) -> str:
        """SHA-256 of the sorted class names, one a line."""
        return hashlib.sha256("\n".join(np.unique(self.labels).tolist()).encode()).hexdigest()

    def subset(self, mask: Mask) -> LabelledImages:
        """The images where `mask` (n,) is true."""
        return LabelledImages(*(getattr(self, field.name)[mask] for field in fields(self)))

    def split_classes(self, share: float, seed: int) -> tuple[LabelledImages, LabelledImages]:
        """Split by class into the larger part and the held-out one, a `share` in [0, 1) of each data set."""
        mask = hold_out_classes(self.labels, self.sources, share, seed)
        return self.subset(~mask), self.subset(mask)


def load_datasets(
    configs: Sequence[DatasetConfig], fit: Fit, *, limit: int | None = None, target_side: int | None = None
) -> LabelledImages:
    """Load the images of data sets, also of several parts of one folder, and `fit` them to the training size.

    With a `limit` of bytes they are those of a `PixelStore` that holds no more, which decodes them as
    `decode_image` does for a `target_side` and is closed afterwards; without one all are decoded here, to one
    size.

    Refused with DatasetError when a data set is missing, has no images, or one that cannot be decoded, when
    one is named twice, or two different ones have the same name.
    """
    listings = _list_all(configs)
    n_images = sum(map(len, listings))
    if limit is not None:
        store = PixelStore(partial(_opened, listings, target_side), fit, limit)
        return _labelled(StoredPixels(store, np.arange(n_images)), listings)
    with _opened(listings, target_side) as read:
        first = np.asarray(fit(read(0)), dtype=np.uint8)
        # Filled image by image, because two copies of a large set need not fit.
        pixels = np.empty((n_images, *first.shape), np.uint8)
        pixels[0] = first
        for position in range(1, n_images):
            pixels[position] = fit(read(position))
    return _labelled(pixels, listings)


@contextmanager
def _opened(
    listings: Sequence[ImageListing], target_side: int | None = None
) -> Iterator[Callable[[int], Image.Image]]:
    with ExitStack() as stack:
        rows = []
        for listing in listings:
            read = stack.enter_context(listing.open())
            rows += [(listing.name, read, file) for file in listing.files]

        def image(position: int) -> Image.Image:
            name, read, file = rows[position]
            return decoded(read(file), f"data set '{name}': image '{file.path}'", target_side=target_side)

        yield image


def _labelled(pixels: Bytes | StoredPixels, listings: Sequence[ImageListing]) -> LabelledImages:
    return LabelledImages(
        pixels,
        np.concatenate([listing.labels for listing in listings]),
        np.concatenate([listing.roles for listing in listings]),
        np.concatenate([listing.super_labels for listing in listings]),
    )


def _list_all(configs: Sequence[DatasetConfig]) -> list[ImageListing]:
    places: dict[str, object] = {}
    for position, config in enumerate(configs):
        name, place = config.name, (config.kind, getattr(config, "root", None))
        if config in configs[:position]:
            raise DatasetError(f"data set '{name}' is named twice: its images would count double")
        if places.setdefault(name, place) != place:
            raise DatasetError(
                f"two data sets have a folder named '{name}': rename one, "
                "or their classes would be taken for the same"
            )
    return [list_images(config) for config in configs]
