"""Layouts: where labelled images come from; a layout is its section of a recipe and lists its images.

A new one is an `ImageFolder` that has a `kind` and lists its `rows`, with a line in `DatasetConfig`; for a
published data set a function in `recipes/convert.py` is enough.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from vicinal.training.datasets.layouts.demo_catalog import DemoCatalogConfig
from vicinal.training.datasets.layouts.folder import FolderConfig
from vicinal.training.datasets.layouts.manifest import ManifestConfig
from vicinal.training.datasets.layouts.protocol import ProtocolConfig

__all__ = ["DatasetConfig"]

# Published sets that `recipes/convert.py` knows by these names.
_CONVERTED = (
    *("cub200", "cars196", "sop", "in_shop", "inaturalist2018", "vehicle_id", "omniglot"),
    "grocery_store",
)


def _no_published(fields: Any) -> Any:
    kind = fields.get("kind") if isinstance(fields, Mapping) else None
    if kind in _CONVERTED:
        how = f"`python recipes/convert.py {kind} ROOT`"
        raise ValueError(f"'{kind}' is read as a manifest: {how}, then kind = 'manifest'")
    return fields


# Told apart by `kind`.
DatasetConfig = Annotated[
    ProtocolConfig | FolderConfig | ManifestConfig | DemoCatalogConfig,
    Field(discriminator="kind"),
    BeforeValidator(_no_published),
]
