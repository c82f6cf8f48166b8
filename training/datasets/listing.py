"""Listing: which images a data set has and how to read them, without decoding any."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import numpy as np

from vicinal.calibration.arrays import Texts
from vicinal.models.decoding import accepted_formats
from vicinal.models.errors import DatasetError
from vicinal.training.datasets.files import LabelledFile, ReadImage
from vicinal.training.datasets.layouts import DatasetConfig


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

    Refused with DatasetError when it is incomplete, has a malformed line, or no images; with
    MissingPackageError when the layout needs a package that is not installed.
    """
    files = tuple(config.rows())
    if not files:
        place = getattr(config, "root", config.name)
        raise DatasetError(f"'{place}' holds no images ({', '.join(accepted_formats())})")
    return ImageListing(config.name, files, config.open)
