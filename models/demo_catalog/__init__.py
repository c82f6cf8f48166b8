"""A small synthetic product catalog, drawn with numpy and Pillow: pictures for the demo and for training.

products -> which things there are; furnishings, vessels, wearables -> how each is drawn (outlines, prints,
easel are their tools); scene -> how a photo of one looks; writing -> the folders of a demo.
"""

from vicinal.models.demo_catalog.products import Product, make_catalog
from vicinal.models.demo_catalog.scene import render_view
from vicinal.models.demo_catalog.writing import DemoCatalog, write_demo_catalog

__all__ = ["DemoCatalog", "Product", "make_catalog", "render_view", "write_demo_catalog"]
