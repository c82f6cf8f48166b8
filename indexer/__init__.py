"""Offline side: sources of images, galleries on disk, vector indexes, the index job."""

from vicinal.indexer.gallery import Gallery, list_galleries
from vicinal.indexer.jobs.index_job import index_items
from vicinal.indexer.sources import SourceItem, read_source
from vicinal.indexer.sources.embeddings import EmbeddingSource

__all__ = [
    "EmbeddingSource",
    "Gallery",
    "SourceItem",
    "index_items",
    "list_galleries",
    "read_source",
]
