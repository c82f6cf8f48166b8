"""Sources of a gallery: folders and manifests of images, how they are read, and a look before they are."""

from vicinal.indexer.sources.items import SourceItem, SourceOptions, as_json
from vicinal.indexer.sources.look import SourceLook
from vicinal.indexer.sources.source import Source, read_source

__all__ = ["Source", "SourceItem", "SourceLook", "SourceOptions", "as_json", "read_source"]
