"""Groups: no chains, the best file is kept, and kinds are told."""

from __future__ import annotations

import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.photos import draw_photo
from vicinal.indexer.duplicates.comparison import ComparedPairs
from vicinal.service.duplicates.groups import group_copies, make_groups


def pairs(*rows: tuple[int, int, float], orientation: int = 0, area: float = 1.0) -> ComparedPairs:
    n = len(rows)
    return ComparedPairs(
        np.array([row[:2] for row in rows], np.int64).reshape(-1, 2),
        np.array([row[2] for row in rows], np.float32),
        np.full(n, orientation),
        np.full(n, area, np.float32),
    )


def table(uris: list[str], taken: list[datetime.datetime | None] | None = None) -> pa.Table:
    n = len(uris)
    return pa.table(
        {
            "id": [f"item {i}" for i in range(n)],
            "uri": uris,
            "label": pa.nulls(n, pa.string()),
            "taken_at": pa.array(taken or [None] * n, pa.timestamp("s")),
            "added_at": pa.nulls(n, pa.timestamp("us", tz="UTC")),
            "content_sha256": [bytes([i]) * 32 for i in range(n)],
        }
    )


def save(path: Path, image: Image.Image, quality: int = 90) -> str:
    image.save(path, quality=quality)
    return str(path)


def test_a_copy_of_a_copy_is_not_one_of_the_kept() -> None:
    """0 - 1 - 2 - 3 in a row: 1 goes with 0, and 2 is compared with what is left."""
    found = group_copies(pairs((0, 1, 0.9), (1, 2, 0.9), (2, 3, 0.9)), order=[0, 1, 2, 3])
    assert {kept: [copy.position for copy in copies] for kept, copies in found.items()} == {0: [1], 2: [3]}


@given(
    edges=st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 9)).filter(lambda one: one[0] < one[1]), unique=True
    ),
    order=st.permutations(range(10)),
)
def test_every_copy_is_a_partner_of_the_kept_one_and_in_one_group(
    edges: list[tuple[int, int]], order: list[int]
) -> None:
    found = group_copies(pairs(*[(a, b, 0.9) for a, b in edges]), order)
    known = {frozenset(edge) for edge in edges}
    members = [*found, *(copy.position for copies in found.values() for copy in copies)]
    assert len(members) == len(set(members))
    assert all(frozenset((kept, copy.position)) in known for kept, copies in found.items() for copy in copies)
    # Whatever is left over could not have gone.
    assert all({a, b} & {copy.position for copies in found.values() for copy in copies} for a, b in edges)


def test_the_largest_picture_is_kept_then_the_largest_file(tmp_path: Path) -> None:
    photo = draw_photo(0)
    uris = [
        save(tmp_path / "small.jpg", photo.resize((80, 60)), 95),
        save(tmp_path / "pressed.jpg", photo, 40),
        save(tmp_path / "best.jpg", photo, 90),
    ]
    found = pairs((0, 1, 0.9), (0, 2, 0.8), (1, 2, 0.95))
    (group,), notes = make_groups(table(uris), [[0], [1], [2]], found, np.full((3, 2), 64))
    assert (group.kept.id, [one.id for one in group.copies]) == ("item 2", ["item 1", "item 0"])
    assert [one.kinds for one in group.copies] == [("recompressed",), ("resized",)]
    assert group.kept.n_bytes == (tmp_path / "best.jpg").stat().st_size
    assert notes == ()


def test_a_name_that_came_over_the_network_opens_no_file_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "sent.jpg", draw_photo(0))
    (group,), _ = make_groups(table(["sent.jpg", "sent.jpg"]), [[0, 1]], None, None)
    assert (group.kept.n_bytes, group.kept.width) == (None, None)
