"""Damage of rows: columns change, and their seals do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, Table

from vicinal.indexer.state import state_of
from vicinal.indexer.state.schema import documents, moves


def damage(gallery: Path, table: Table, *where: ColumnElement[bool], **values: Any) -> None:
    """Change columns of some rows of a gallery, as a failing disk would."""
    with state_of(gallery).changing() as rows:
        assert rows.connection.execute(table.update().where(*where).values(values)).rowcount


def damage_document(gallery: Path, kind: str, *where: ColumnElement[bool], content: str = "{}") -> None:
    """Change what documents of a kind say."""
    damage(gallery, documents, documents.c.kind == kind, *where, content=content)


def damage_pointer(gallery: Path) -> None:
    """Change what the last move of what is searched says."""
    with state_of(gallery).reading() as rows:
        newest = max(rows.values(moves.c.number))
    damage(gallery, moves, moves.c.number == newest, revision=moves.c.revision + 1)
