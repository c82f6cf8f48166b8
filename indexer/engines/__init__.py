"""Engines: programs beside us that find candidates, in tables of built versions or in a team's own."""

from vicinal.indexer.engines.engine import (
    ENGINES,
    Engine,
    Engines,
    EngineState,
    EngineTable,
    TeamReader,
    TeamRows,
)
from vicinal.indexer.engines.source import EngineSource
from vicinal.indexer.engines.tables import GalleryTables, check_index
from vicinal.indexer.engines.team import TeamSource, TeamVectors

__all__ = [
    "ENGINES",
    "Engine",
    "EngineSource",
    "EngineState",
    "EngineTable",
    "Engines",
    "GalleryTables",
    "TeamReader",
    "TeamRows",
    "TeamSource",
    "TeamVectors",
    "check_index",
]
