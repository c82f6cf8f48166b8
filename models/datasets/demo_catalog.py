"""Demo catalog: products that the generator draws, as a labelled set without files."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from PIL import Image

from vicinal.models.configs.datasets import DemoCatalogConfig
from vicinal.models.datasets.files import LabelledFile, ReadImage
from vicinal.models.demo_catalog import make_catalog, render_view

__all__ = ["draw_demo_catalog"]

# Training never needs more pixels, and drawing is what takes the time.
_SIDE = 96


def draw_demo_catalog(config: DemoCatalogConfig) -> tuple[list[LabelledFile], ReadImage]:
    """Views of every product of the catalogs; labels are `<seed>/<product>`, super-labels kinds of products.

    Returns:
        The rows, and what draws the picture of one.
    """
    drawers: dict[str, Callable[[], Image.Image]] = {}
    rows = []
    for seed in config.seeds:
        for product in make_catalog(seed, config.products):
            for view in range(config.views):
                row = LabelledFile(
                    f"{seed}/{product.id}/{view}", f"{seed}/{product.id}", super_label=product.kind
                )
                drawers[row.path] = partial(render_view, product, view, size=_SIDE)
                rows.append(row)
    return rows, lambda row: drawers[row.path]()
