"""Where labelled images come from: one configuration class a layout, told apart by `kind`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["DatasetConfig", "DemoCatalogConfig", "FolderConfig", "ProtocolConfig"]


class _Dataset(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ProtocolConfig(_Dataset):
    """A folder with `protocol.csv` and zip archives; see `models.datasets.protocol`."""

    kind: Literal["protocol"]
    root: Path
    split: str = "train"
    roles: tuple[str, ...] = ("train",)


class FolderConfig(_Dataset):
    """A folder with one subfolder a class."""

    kind: Literal["folder"]
    root: Path


class DemoCatalogConfig(_Dataset):
    """Products of the demo catalog generator; the demo itself uses seed 0."""

    kind: Literal["demo_catalog"]
    seeds: tuple[int, ...] = Field(min_length=1)
    products: int = Field(60, ge=1)
    views: int = Field(8, ge=2)


DatasetConfig = Annotated[ProtocolConfig | FolderConfig | DemoCatalogConfig, Field(discriminator="kind")]
