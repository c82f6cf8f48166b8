"""Labelled image sets for training and evaluation."""

from models.datasets.labelled import LabelledImages, load_datasets
from models.datasets.protocol import read_protocol

__all__ = ["LabelledImages", "load_datasets", "read_protocol"]
