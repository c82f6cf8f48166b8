"""Filters: a small closed language on ids, labels and metadata, and the items that one selects."""

from vicinal.indexer.filters.filter import Filter

__all__ = ["Filter"]
