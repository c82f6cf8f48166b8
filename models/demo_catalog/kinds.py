"""Drawings by kind of product."""

from collections.abc import Callable

from PIL import Image

from vicinal.models.demo_catalog import furnishings, vessels, wearables
from vicinal.models.demo_catalog.easel import Easel
from vicinal.models.demo_catalog.products import Product


def draw_product(product: Product, px: int, *, turn: float = 0.0, light: float = -0.5) -> Image.Image:
    """The product alone, upright, as an RGBA picture of (px, px) pixels on a transparent ground.

    Light comes from `light`, -1 the left, 1 the right.
    """
    easel = Easel(product, px, turn=turn, light=light)
    DRAWINGS[product.kind](easel, product)
    return easel.image


DRAWINGS: dict[str, Callable[[Easel, Product], None]] = {
    "backpack": wearables.backpack,
    "book": furnishings.book,
    "bottle": vessels.bottle,
    "can": vessels.can,
    "chair": furnishings.chair,
    "clock": furnishings.clock,
    "cushion": furnishings.cushion,
    "headphones": wearables.headphones,
    "jar": vessels.jar,
    "kettle": vessels.kettle,
    "lamp": furnishings.lamp,
    "mug": vessels.mug,
    "planter": vessels.planter,
    "sneaker": wearables.sneaker,
    "teapot": vessels.teapot,
    "tshirt": wearables.tshirt,
    "umbrella": wearables.umbrella,
    "watch": wearables.watch,
}
