"""Demo catalog: products that the generator draws, as a labelled set without files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import ClassVar, Literal

from PIL import Image
from pydantic import BaseModel, ConfigDict, Field

from vicinal.models.datasets.files import LabelledFile, ReadImage
from vicinal.models.demo_catalog import make_catalog, render_view

__all__ = ["DemoCatalogConfig"]

# Training never needs more pixels, and drawing is what takes the time.
_SIDE = 96


class DemoCatalogConfig(BaseModel):
    """Products of the demo catalog generator; the demo itself uses seed 0."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: ClassVar[str] = "demo"
    kind: Literal["demo_catalog"]
    seeds: tuple[int, ...] = Field(min_length=1)
    products: int = Field(60, ge=1)
    views: int = Field(8, ge=2)

    def rows(self) -> Iterator[LabelledFile]:
        """Views of every product; labels are `<seed>/<product>`, super-labels kinds of products."""
        for seed in self.seeds:
            for product in make_catalog(seed, self.products):
                label = f"{seed}/{product.id}"
                for view in range(self.views):
                    yield LabelledFile(f"{label}/{view}", label, super_label=product.kind)

    def open(self) -> AbstractContextManager[ReadImage]:
        """What draws the picture of a row."""
        products = {
            f"{seed}/{product.id}": product
            for seed in self.seeds
            for product in make_catalog(seed, self.products)
        }

        def draw(row: LabelledFile) -> Image.Image:
            return render_view(products[row.label], int(row.path.rpartition("/")[2]), size=_SIDE)

        return nullcontext(draw)
