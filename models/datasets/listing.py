"""Listing: which images a data set has and how to read them, without decoding any."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from vicinal.models.configs.datasets import (
    AuthoredConfig,
    Cars196Config,
    Cub200Config,
    DatasetConfig,
    DemoCatalogConfig,
    FileDatasetConfig,
    FolderConfig,
    GroceryStoreConfig,
    INaturalist2018Config,
    InShopConfig,
    ManifestConfig,
    OmniglotConfig,
    ProtocolConfig,
    StanfordOnlineProductsConfig,
    VehicleIdConfig,
)
from vicinal.models.datasets.cars196 import read_cars196
from vicinal.models.datasets.cub200 import read_cub200
from vicinal.models.datasets.demo_catalog import draw_demo_catalog
from vicinal.models.datasets.files import LabelledFile, ReadImage, open_files
from vicinal.models.datasets.folder import read_folder
from vicinal.models.datasets.grocery_store import read_grocery_store
from vicinal.models.datasets.in_shop import read_in_shop
from vicinal.models.datasets.inaturalist2018 import read_inaturalist2018
from vicinal.models.datasets.manifest import read_manifest
from vicinal.models.datasets.omniglot import read_omniglot
from vicinal.models.datasets.protocol import read_protocol
from vicinal.models.datasets.stanford_online_products import read_stanford_online_products
from vicinal.models.datasets.vehicle_id import read_vehicle_id
from vicinal.models.decoding import ACCEPTED_FORMATS
from vicinal.models.errors import DatasetError

__all__ = ["ImageListing", "list_images", "source_name"]


@dataclass(frozen=True)
class ImageListing:
    """The images of one data set, none of them decoded.

    Attributes:
        name: Name of the data set, which stands before the colon of labels and super-labels.
        files: One row an image.
        open: Gives a context manager whose value reads one row: what it returns, `decode_image` and the
            embedder take. `with listing.open() as read: embedder.embed([read(file) for file in batch])`
            embeds a set of any size without holding its pixels.
    """

    name: str
    files: tuple[LabelledFile, ...]
    open: Callable[[], AbstractContextManager[ReadImage]]

    def __len__(self) -> int:
        return len(self.files)

    @property
    def labels(self) -> npt.NDArray[np.str_]:
        """(n,) class names, each with the data set's name before a colon."""
        return np.array([f"{self.name}:{file.label}" for file in self.files], np.str_)

    @property
    def super_labels(self) -> npt.NDArray[np.str_]:
        """(n,) groups of classes, named like labels; the data set's name alone where it has none."""
        return np.array(
            [f"{self.name}:{file.super_label}" if file.super_label else self.name for file in self.files],
            np.str_,
        )

    @property
    def roles(self) -> npt.NDArray[np.str_]:
        """(n,) roles; see `LabelledFile`."""
        return np.array([file.role for file in self.files], np.str_)

    def only(self, *roles: str) -> ImageListing:
        """The images with one of these roles, which may be none."""
        return replace(self, files=tuple(file for file in self.files if file.role in roles))


def source_name(config: DatasetConfig) -> str:
    """Name of a data set: that of its folder, or `demo` for drawn catalogs."""
    return "demo" if isinstance(config, DemoCatalogConfig) else config.root.name


def list_images(config: DatasetConfig) -> ImageListing:
    """List the images of a data set with labels, super-labels and roles.

    Raises:
        DatasetError: The data set is incomplete, has a malformed line, or no images.
        MissingPackageError: The layout needs a package that is not installed.
    """
    if isinstance(config, DemoCatalogConfig):
        rows, draw = draw_demo_catalog(config)
        return ImageListing(source_name(config), tuple(rows), lambda: nullcontext(draw))
    files = tuple(_read(config))
    if not files:
        raise DatasetError(f"'{config.root}' holds no images ({', '.join(ACCEPTED_FORMATS)})")
    origin = config.origin if isinstance(config, AuthoredConfig) else ""
    return ImageListing(source_name(config), files, partial(open_files, config.root, origin=origin))


def _read(config: FileDatasetConfig) -> list[LabelledFile]:
    match config:
        case ProtocolConfig():
            return read_protocol(config.root, split=config.split, roles=config.roles)
        case FolderConfig():
            return read_folder(config)
        case ManifestConfig():
            return read_manifest(config)
        case Cub200Config():
            return read_cub200(config)
        case Cars196Config():
            return read_cars196(config)
        case StanfordOnlineProductsConfig():
            return read_stanford_online_products(config)
        case InShopConfig():
            return read_in_shop(config)
        case INaturalist2018Config():
            return read_inaturalist2018(config)
        case VehicleIdConfig():
            return read_vehicle_id(config)
        case OmniglotConfig():
            return read_omniglot(config)
        case GroceryStoreConfig():
            return read_grocery_store(config)
