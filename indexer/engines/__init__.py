"""Engines: Milvus, a program beside us that finds candidates, in tables of built versions."""

from vicinal.indexer.engines.engine import ENGINE, Engine, require_kept
from vicinal.indexer.engines.source import EngineSource
from vicinal.indexer.engines.tables import GalleryTables, check_index

__all__ = ["ENGINE", "Engine", "EngineSource", "GalleryTables", "check_index", "require_kept"]
