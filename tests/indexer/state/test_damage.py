"""Damage: a byte or a cut anywhere in a database is told, or changes nothing that is read."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Float, LargeBinary, Table, Text

from vicinal.indexer.errors import GalleryError
from vicinal.indexer.state import schema, state_of
from vicinal.indexer.state.state import State

N_ROWS = 40


def value_of(column: Any, number: int, draw: random.Random) -> Any:
    if column.primary_key and isinstance(column.type, LargeBinary):
        return number.to_bytes(32, "big")
    if column.primary_key or column.unique:
        return number if isinstance(column.type, Float) or column.type.python_type is int else f"key {number}"
    if isinstance(column.type, Text):
        return "x" * draw.randrange(300)
    if isinstance(column.type, LargeBinary):
        return draw.randbytes(draw.randrange(2000))
    return draw.random() if isinstance(column.type, Float) else draw.randrange(1000)


def row_of(table: Table, number: int, draw: random.Random) -> dict[str, Any]:
    return {
        one.name: value_of(one, number, draw) for one in table.c if one.name not in ("seal", "gallery_key")
    }


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> State:
    """Every table with some rows, of which some were changed and removed again."""
    state, draw = state_of(tmp_path_factory.mktemp("galleries") / "shoes"), random.Random(0)
    for part in range(4):
        with state.changing() as rows:
            for table in schema.GALLERY.sorted_tables:
                rows.add(table, *(row_of(table, part * N_ROWS + n, draw) for n in range(N_ROWS)))
    with state.changing() as rows:
        for table in schema.GALLERY.sorted_tables:
            first = next(iter(table.primary_key.columns.values()[1:]), None)
            if first is not None:
                rows.remove_each(first, [value_of(first, n, draw) for n in range(0, 4 * N_ROWS, 3)])
    return state


def content_of(state: State) -> dict[str, list[Any]]:
    with state.reading() as rows:
        return {table.name: sorted(rows.all(table), key=repr) for table in schema.GALLERY.sorted_tables}


@pytest.mark.parametrize("kind", ["byte", "zeros", "cut", "swap"])
def test_nothing_else_is_read_than_was_written(filled: State, tmp_path: Path, kind: str) -> None:
    expected, stored, told = content_of(filled), filled.path.read_bytes(), 0
    for seed in range(25):
        draw = random.Random(seed)
        content = bytearray(stored)
        place = draw.randrange(len(content))
        if kind == "byte":
            content[place] ^= 1 << draw.randrange(8)
        elif kind == "zeros":
            content[place : place + 512] = bytes(len(content[place : place + 512]))
        elif kind == "cut":
            del content[place:]
        else:
            first, second = (4096 * draw.randrange(1, len(content) // 4096) for _ in range(2))
            content[first : first + 4096], content[second : second + 4096] = (
                content[second : second + 4096],
                content[first : first + 4096],
            )
        state = state_of(tmp_path / f"shoes-{seed}")
        state.folder.mkdir()
        state.path.write_bytes(content)
        try:
            found = content_of(state)
        except GalleryError:
            told += 1
        else:
            assert found == expected, f"seed {seed}"
        shutil.rmtree(state.folder)
    assert told > 5
