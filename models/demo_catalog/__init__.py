"""A small synthetic product catalog, drawn with numpy and Pillow: pictures for the demo and for training.

products -> which things there are; kinds -> how each is drawn (outlines, patterns, easel are its tools);
scene -> how a photo of one looks (backdrops); writing -> the folders of a demo.
"""

from vicinal.models.demo_catalog.products import Product, make_catalog
from vicinal.models.demo_catalog.scene import render_view
from vicinal.models.demo_catalog.writing import DemoCatalog, write_demo_catalog

__all__ = ["DemoCatalog", "Product", "make_catalog", "render_view", "write_demo_catalog"]
