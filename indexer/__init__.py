"""Offline side: sources of images, galleries on disk, vector indexes, the index job."""

from vicinal.indexer.gallery import Gallery, list_galleries
from vicinal.indexer.jobs.build import BuildProgress, BuildResult, build_gallery
from vicinal.indexer.sources import SourceItem, read_source

__all__ = [
    "BuildProgress",
    "BuildResult",
    "Gallery",
    "SourceItem",
    "build_gallery",
    "list_galleries",
    "read_source",
]
