"""Labelled image sets for training and evaluation.

One module of `layouts` a layout lists a set, one row an image; `listing` names the images of any of them
and opens them one by one; `labelled` holds the decoded ones in memory.
"""

from vicinal.training.datasets.files import LabelledFile
from vicinal.training.datasets.labelled import LabelledImages, load_datasets, load_labels, opened_images
from vicinal.training.datasets.listing import ImageListing, list_images

__all__ = [
    "ImageListing",
    "LabelledFile",
    "LabelledImages",
    "list_images",
    "load_datasets",
    "load_labels",
    "opened_images",
]
