"""Demo catalogs as a labelled set."""

from __future__ import annotations

from collections import Counter

import numpy as np
from PIL import Image

from vicinal.models.demo_catalog import make_catalog, render_view
from vicinal.training.datasets import list_images, load_datasets
from vicinal.training.datasets.layouts.demo_catalog import DemoCatalogConfig


def _small(image: Image.Image) -> Image.Image:
    return image.resize((8, 8))


def test_demo_catalog_gives_each_product_its_views() -> None:
    config = DemoCatalogConfig(kind="demo_catalog", seeds=(3, 4), products=2, views=3)
    loaded = load_datasets([config], _small)
    assert len(loaded.labels) == 12
    assert set(Counter(loaded.labels.tolist()).values()) == {3}
    seeds = {label.removeprefix("demo:").partition("/")[0] for label in loaded.labels}
    assert seeds == {"3", "4"}


def test_a_row_is_drawn_as_the_view_it_names() -> None:
    listing = list_images(DemoCatalogConfig(kind="demo_catalog", seeds=(3, 4), products=2, views=3))
    product = make_catalog(4, 2)[1]
    assert listing.files[-1].path == f"4/{product.id}/2"
    with listing.open() as read:
        drawn = np.asarray(read(listing.files[-1]))
    assert np.array_equal(drawn, np.asarray(render_view(product, 2, size=96)))


def test_kinds_of_products_are_super_labels() -> None:
    listing = list_images(DemoCatalogConfig(kind="demo_catalog", seeds=(3,), products=2, views=2))
    kinds = [f"demo:{product.kind}" for product in make_catalog(3, 2) for _ in range(2)]
    assert listing.super_labels.tolist() == kinds
