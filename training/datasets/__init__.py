"""Labelled image sets for training and evaluation.

A layout of `layouts` lists a set, one row an image; `labelled` names the images of any of them, opens them
one by one, and holds the decoded ones in memory.
"""

from vicinal.training.datasets.files import LabelledFile
from vicinal.training.datasets.labelled import (
    ImageListing,
    LabelledImages,
    list_images,
    load_datasets,
)

__all__ = [
    "ImageListing",
    "LabelledFile",
    "LabelledImages",
    "list_images",
    "load_datasets",
]
