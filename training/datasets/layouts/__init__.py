"""Layouts: where labelled images come from; a layout is its section of a recipe and lists its images.

A new one is an `ImageFolder` that has a `kind` and lists its `rows`, with a line in `DatasetConfig`.
"""

from typing import Annotated

from pydantic import Field

from vicinal.training.datasets.layouts.cars196 import Cars196Config
from vicinal.training.datasets.layouts.demo_catalog import DemoCatalogConfig
from vicinal.training.datasets.layouts.folder import FolderConfig
from vicinal.training.datasets.layouts.manifest import ManifestConfig
from vicinal.training.datasets.layouts.protocol import ProtocolConfig
from vicinal.training.datasets.layouts.published import (
    Cub200Config,
    GroceryStoreConfig,
    INaturalist2018Config,
    InShopConfig,
    OmniglotConfig,
    StanfordOnlineProductsConfig,
    VehicleIdConfig,
)
from vicinal.training.datasets.layouts.revisited import RevisitedConfig

__all__ = ["DatasetConfig", "MeasurableConfig"]

# Told apart by `kind`; what can be trained on, with labels.
DatasetConfig = Annotated[
    ProtocolConfig
    | FolderConfig
    | ManifestConfig
    | Cub200Config
    | Cars196Config
    | StanfordOnlineProductsConfig
    | InShopConfig
    | INaturalist2018Config
    | VehicleIdConfig
    | OmniglotConfig
    | GroceryStoreConfig
    | DemoCatalogConfig,
    Field(discriminator="kind"),
]
# What can be measured on: also what has its ground truth by query.
MeasurableConfig = Annotated[DatasetConfig | RevisitedConfig, Field(discriminator="kind")]
