"""Groups of copies: every photo that could go is itself a copy of the kept one, and not of a copy of it."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from PIL import ExifTags, Image

from vicinal.calibration.arrays import Ints
from vicinal.indexer.duplicates.comparison import ComparedPairs
from vicinal.indexer.duplicates.signatures import ORIENTATIONS, undone
from vicinal.models.decoding import accepted_formats
from vicinal.service.duplicates.record import DuplicateGroup, DuplicateItem

# A picture that takes less of the other is cropped, and not only cut by a pixel.
_WHOLE = 0.95
# A copy with fewer of the pixels that it should have was resized.
_SAME_SIZE = 0.95
# What readers of images and of their EXIF raise.
_DAMAGED = (OSError, SyntaxError, ValueError, KeyError, TypeError, RuntimeError, struct.error)
# From this EXIF orientation on, width and height change places.
_FIRST_ON_ITS_SIDE = 5


class Copy(NamedTuple):
    """Copy of a kept item: its orientation (of `ORIENTATIONS`) on that, and the share that both show."""

    position: int
    score: float
    orientation: int
    area: float


def make_groups(
    items: pa.Table,
    twins: Sequence[Sequence[int]],
    found: ComparedPairs | None,
    thumbnails: Ints | None,
    unchanged: str = "recompressed",
) -> tuple[tuple[DuplicateGroup, ...], tuple[str, ...]]:
    """Groups of copies, largest and most certain first, and what is to be said; thumbnails are (f, 2), and
    `unchanged` is what copies of other bytes are that show no other change.
    """
    partners = set() if found is None else set(found.pairs.ravel().tolist())
    places = sorted(partners | {place for place, rows in enumerate(twins) if len(rows) > 1})
    shown = {row: _item(items, row, place, thumbnails) for place in places for row in twins[place]}

    def worth(row: int) -> tuple[int, int, datetime, str]:
        taken = items["taken_at"][row].as_py() or datetime.max
        return -_pixels(shown[row]), -(shown[row].n_bytes or 0), taken, shown[row].id

    best = {place: sorted(twins[place], key=worth) for place in places}
    order = sorted(places, key=lambda place: worth(best[place][0]))
    near = {} if found is None else group_copies(found, order)
    copied = {copy.position for copies in near.values() for copy in copies}
    groups = []
    for place in order:
        kept, *same = best[place]
        copies = [shown[row].model_copy(update={"kinds": ("exact",), "score": 1.0}) for row in same]
        for copy in sorted(near.get(place, ()), key=lambda one: -one.score):
            for row in best[copy.position]:
                kinds = kinds_of(copy, _pixels(shown[kept]), _pixels(shown[row])) or (unchanged,)
                found_so = {"kinds": kinds, "score": round(copy.score, 4)}
                copies.append(shown[row].model_copy(update=found_so))
        if copies and place not in copied:
            groups.append(DuplicateGroup(kept=shown[kept], copies=tuple(copies)))
    groups.sort(
        key=lambda one: (-len(one.copies), -min(copy.score or 0.0 for copy in one.copies), one.kept.id)
    )
    n_gone = sum(one.n_bytes is None for one in shown.values())
    if not n_gone:
        return tuple(groups), ()
    note = (
        f"{n_gone:,} files of the groups are not where they were indexed from: the pixels of their "
        "thumbnails were compared, and their bytes are not counted"
    )
    return tuple(groups), (note,)


def group_copies(found: ComparedPairs, order: Sequence[int]) -> dict[int, list[Copy]]:
    """Copies by kept position."""
    partners: dict[int, list[Copy]] = defaultdict(list)
    for (first, second), score, turn, area in zip(
        found.pairs.tolist(),
        found.scores.tolist(),
        found.orientations.tolist(),
        found.areas.tolist(),
        strict=True,
    ):
        partners[first].append(Copy(second, score, turn, area))
        partners[second].append(Copy(first, score, undone(turn), area))
    groups: dict[int, list[Copy]] = {}
    taken: set[int] = set()
    for position in order:
        if position in taken:
            continue
        copies = [one for one in partners[position] if one.position not in taken]
        if copies:
            groups[position] = copies
            taken |= {position, *(one.position for one in copies)}
    return groups


def kinds_of(copy: Copy, kept_pixels: int, copy_pixels: int) -> tuple[str, ...]:
    """Kinds of change to a copy that is not exact, as far as can be told; none without any."""
    turns, is_mirrored = ORIENTATIONS[copy.orientation]
    kinds = ["cropped"] if copy.area < _WHOLE else []
    kinds += ["mirrored"] if is_mirrored else []
    # Turns are counted against the clock.
    kinds += [f"rotated by {360 - 90 * turns}°"] if turns else []
    if copy_pixels < _SAME_SIZE**2 * copy.area * kept_pixels:
        kinds.append("resized")
    return tuple(kinds)


def _pixels(item: DuplicateItem) -> int:
    return (item.width or 0) * (item.height or 0)


def _item(items: pa.Table, row: int, place: int, thumbnails: Ints | None) -> DuplicateItem:
    """Item with the size of its file; with that of its thumbnail, and no bytes, where the file is gone."""
    uri = items["uri"][row].as_py() or ""
    path, n_bytes = Path(uri), None
    width, height = (None, None) if thumbnails is None else thumbnails[place].tolist()
    # What came over the network has a name and no place here.
    with suppress(*_DAMAGED, Image.DecompressionBombError, Image.DecompressionBombWarning):
        if path.is_absolute():
            with Image.open(path, formats=accepted_formats()) as image:
                turned = image.getexif().get(ExifTags.Base.Orientation, 1) >= _FIRST_ON_ITS_SIDE
                n_bytes = path.stat().st_size
                width, height = image.size[::-1] if turned else image.size
    known = {name: items[name][row].as_py() for name in ("id", "label", "taken_at", "added_at")}
    content = items["content_sha256"][row].as_py().hex()
    return DuplicateItem(**known, uri=uri, width=width, height=height, n_bytes=n_bytes, content=content)
