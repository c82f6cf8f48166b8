"""Offline side: sources of images, galleries on disk, vector indexes, the index job."""

from indexer.build import BuildProgress, BuildResult, build_gallery
from indexer.gallery import Gallery, list_galleries
from indexer.sources import SourceItem, read_source

__all__ = [
    "BuildProgress",
    "BuildResult",
    "Gallery",
    "SourceItem",
    "build_gallery",
    "list_galleries",
    "read_source",
]
