"""Demo catalog: products that the generator draws, as a labelled set without files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import ClassVar, Literal

from PIL import Image
from pydantic import Field

from vicinal.calibration.frozen import Frozen
from vicinal.models.demo_catalog import Product, make_catalog, render_view
from vicinal.training.datasets.files import LabelledFile, ReadImage


class DemoCatalogConfig(Frozen):
    """Products of the demo catalog generator; the demo itself uses seed 0.

    Attributes:
        seeds: One catalog each.
        products: Products of a catalog.
        views: Photos of a product.
        side: Side of a photo in pixels; the scene is the same at every size, and drawing takes the time.
    """

    name: ClassVar[str] = "demo"
    kind: Literal["demo_catalog"]
    seeds: tuple[int, ...] = Field(min_length=1)
    products: int = Field(60, ge=1)
    views: int = Field(8, ge=2)
    side: int = Field(96, ge=16, le=2048)

    def rows(self) -> Iterator[LabelledFile]:
        """Views of every product; labels are `<seed>/<product>`, super-labels kinds of products."""
        for label, product in self._catalogs().items():
            for view in range(self.views):
                yield LabelledFile(f"{label}/{view}", label, super_label=product.kind)

    def open(self) -> AbstractContextManager[ReadImage]:
        """Give what draws the picture of a row."""
        products = self._catalogs()

        def draw(row: LabelledFile) -> Image.Image:
            return render_view(products[row.label], int(row.path.rpartition("/")[2]), size=self.side)

        return nullcontext(draw)

    def _catalogs(self) -> dict[str, Product]:
        return {
            f"{seed}/{product.id}": product
            for seed in self.seeds
            for product in make_catalog(seed, self.products)
        }
