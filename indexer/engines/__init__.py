"""Engines: programs beside us that find candidates. They hold built versions, and nothing that changes."""

from vicinal.indexer.engines.engine import ENGINES, Engine, Engines, EngineTable
from vicinal.indexer.engines.source import EngineSource

__all__ = ["ENGINES", "Engine", "EngineSource", "EngineTable", "Engines"]
