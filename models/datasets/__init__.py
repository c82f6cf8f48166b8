"""Labelled image sets for training and evaluation.

One module a layout lists a set (`read_<set>` gives a row an image); `listing` names the images of any of
them and opens them one by one; `labelled` holds the decoded ones in memory; `revisited` has ground truth
by query instead of classes.
"""

from vicinal.models.datasets.files import LabelledFile
from vicinal.models.datasets.labelled import LabelledImages, load_datasets
from vicinal.models.datasets.listing import ImageListing, list_images
from vicinal.models.datasets.protocol import read_protocol
from vicinal.models.datasets.revisited import RevisitedSet, read_revisited

__all__ = [
    "ImageListing",
    "LabelledFile",
    "LabelledImages",
    "RevisitedSet",
    "list_images",
    "load_datasets",
    "read_protocol",
    "read_revisited",
]
