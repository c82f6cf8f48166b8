"""Layouts: where labelled images come from; a layout is its section of a recipe and lists its images.

A new one gets a module with an `ImageFolder` that has a `kind` and lists its `rows`, and a line in
`DatasetConfig`.
"""

from typing import Annotated

from pydantic import Field

from vicinal.models.datasets.layouts.cars196 import Cars196Config
from vicinal.models.datasets.layouts.cub200 import Cub200Config
from vicinal.models.datasets.layouts.demo_catalog import DemoCatalogConfig
from vicinal.models.datasets.layouts.folder import FolderConfig
from vicinal.models.datasets.layouts.grocery_store import GroceryStoreConfig
from vicinal.models.datasets.layouts.in_shop import InShopConfig
from vicinal.models.datasets.layouts.inaturalist2018 import INaturalist2018Config
from vicinal.models.datasets.layouts.manifest import ManifestConfig
from vicinal.models.datasets.layouts.omniglot import OmniglotConfig
from vicinal.models.datasets.layouts.protocol import ProtocolConfig
from vicinal.models.datasets.layouts.revisited import RevisitedConfig
from vicinal.models.datasets.layouts.stanford_online_products import StanfordOnlineProductsConfig
from vicinal.models.datasets.layouts.vehicle_id import VehicleIdConfig

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
