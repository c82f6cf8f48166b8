"""Engines: programs beside us that find candidates. They hold built versions, and nothing that changes."""

from vicinal.indexer.engines.engine import ENGINES, Engine, Engines, EngineState, EngineTable
from vicinal.indexer.engines.source import EngineSource
from vicinal.indexer.engines.tables import GalleryTables, check_index

__all__ = [
    "ENGINES",
    "Engine",
    "EngineSource",
    "EngineState",
    "EngineTable",
    "Engines",
    "GalleryTables",
    "check_index",
]
