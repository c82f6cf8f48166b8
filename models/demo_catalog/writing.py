"""Write a demo catalog to disk: a gallery, queries with a match in it, and queries without one."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from vicinal.models.demo_catalog.products import Product, make_catalog
from vicinal.models.demo_catalog.scene import render_view

_JPEG_QUALITY = 90


@dataclass(frozen=True)
class DemoCatalog:
    """The folders of a written demo catalog and what they hold.

    Pictures lie at `<folder>/<product id>/<view>.jpg`. `gallery` and `queries` show `products`; `absent`
    shows `absent_products`, which the gallery lacks, so that the right answer to those queries is 'no
    match'. The path tuples are in the order of products, then views.
    """

    gallery: Path
    queries: Path
    absent: Path
    products: tuple[Product, ...]
    absent_products: tuple[Product, ...]
    gallery_images: tuple[Path, ...]
    query_images: tuple[Path, ...]
    absent_images: tuple[Path, ...]


def write_demo_catalog(
    folder: Path,
    *,
    seed: int = 0,
    n_products: int = 60,
    n_absent: int = 10,
    n_views: int = 8,
    n_gallery_views: int = 5,
    size: int = 224,
    on_image: Callable[[int, int], None] | None = None,
) -> DemoCatalog:
    """Render a catalog below `folder` as JPEG files of quality 90; pictures already there are replaced.

    The absent products end the catalog, so that with enough products each has relatives of its kind in the
    gallery: the hard case for 'no match'. Both kinds are at most 1000 products together. Of each one's views
    the first `n_gallery_views`, fewer than all, go to `gallery/`, the others to `queries/` and `absent/`.
    `on_image` is called after each picture with (pictures written, pictures in all).
    """
    if n_products < 1 or n_absent < 0:
        raise ValueError(f"expected n_products >= 1 and n_absent >= 0, got {n_products} and {n_absent}")
    if not 1 <= n_gallery_views < n_views:
        raise ValueError(f"expected 1 <= n_gallery_views < n_views, got {n_gallery_views} and {n_views}")
    catalog = make_catalog(seed, n_products + n_absent)
    present, absent = catalog[:n_products], catalog[n_products:]
    shelf, asked = range(n_gallery_views), range(n_gallery_views, n_views)
    pictures = {
        name: [(folder / name / one.id / f"{view}.jpg", one, view) for one in products for view in views]
        for name, products, views in (
            ("gallery", present, shelf),
            ("queries", present, asked),
            ("absent", absent, asked),
        )
    }
    everything = [*itertools.chain(*pictures.values())]
    for name in pictures:
        (folder / name).mkdir(parents=True, exist_ok=True)
    for number, (path, product, view) in enumerate(everything, start=1):
        path.parent.mkdir(exist_ok=True)
        render_view(product, view, size=size).save(path, "JPEG", quality=_JPEG_QUALITY)
        if on_image is not None:
            on_image(number, len(everything))
    return DemoCatalog(
        gallery=folder / "gallery",
        queries=folder / "queries",
        absent=folder / "absent",
        products=tuple(present),
        absent_products=tuple(absent),
        gallery_images=tuple(path for path, _, _ in pictures["gallery"]),
        query_images=tuple(path for path, _, _ in pictures["queries"]),
        absent_images=tuple(path for path, _, _ in pictures["absent"]),
    )
