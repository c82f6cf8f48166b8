"""Sources of a gallery: folders and manifests of images, how they are read, and a look before they are."""

from vicinal.indexer.sources.archives import TarMember
from vicinal.indexer.sources.datasets import ROW_SCHEME, DatasetImage
from vicinal.indexer.sources.hub import HubDataset, is_on_hub
from vicinal.indexer.sources.items import SourceItem, SourceOptions
from vicinal.indexer.sources.look import SourceLook
from vicinal.indexer.sources.manifests import MANIFEST_SUFFIXES
from vicinal.indexer.sources.remote import ImageFile, RemoteFile, file_at, is_address, place_of, read_file
from vicinal.indexer.sources.source import Source, read_source, source_name
from vicinal.indexer.sources.web import ANYWHERE, PUBLIC, WebAccess

__all__ = [
    "ANYWHERE",
    "DatasetImage",
    "HubDataset",
    "ImageFile",
    "MANIFEST_SUFFIXES",
    "PUBLIC",
    "ROW_SCHEME",
    "RemoteFile",
    "Source",
    "SourceItem",
    "SourceLook",
    "SourceOptions",
    "TarMember",
    "WebAccess",
    "file_at",
    "is_address",
    "is_on_hub",
    "place_of",
    "read_file",
    "read_source",
    "source_name",
]
