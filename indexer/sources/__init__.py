"""Sources of a gallery: folders and manifests of images, how they are read, and a look before they are."""

from vicinal.indexer.sources.archives import TarMember
from vicinal.indexer.sources.datasets import ROW_SCHEME, DatasetImage
from vicinal.indexer.sources.embeddings import EmbeddingSource, holds_embeddings
from vicinal.indexer.sources.hub import HubDataset
from vicinal.indexer.sources.image_tables import MANIFEST_SUFFIXES
from vicinal.indexer.sources.items import SourceItem, SourceLook, SourceOptions
from vicinal.indexer.sources.remote import (
    ANYWHERE,
    PUBLIC,
    ImageFile,
    Refuse,
    RemoteFile,
    SourceAccess,
    file_at,
    is_on_hub,
    place_of,
    read_file,
    refuse_none,
)
from vicinal.indexer.sources.source import Source, open_source, read_source, source_name

__all__ = [
    "ANYWHERE",
    "DatasetImage",
    "EmbeddingSource",
    "HubDataset",
    "ImageFile",
    "MANIFEST_SUFFIXES",
    "PUBLIC",
    "ROW_SCHEME",
    "Refuse",
    "RemoteFile",
    "Source",
    "SourceAccess",
    "SourceItem",
    "SourceLook",
    "SourceOptions",
    "TarMember",
    "file_at",
    "holds_embeddings",
    "is_on_hub",
    "open_source",
    "place_of",
    "read_file",
    "read_source",
    "refuse_none",
    "source_name",
]
