"""Sheets of example answers: one row a query, with its best items, the threshold between them, a verdict."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont, ImageOps

__all__ = ["GROUPS", "Group", "outcome", "pick_rows", "write_sheet"]

N_ANSWERS = 5
_PICTURE, _GAP, _CAPTION, _TITLE = 84, 12, 34, 30
_COLUMN = _PICTURE + _GAP
_VERDICT = 190
_WIDTH = (1 + N_ANSWERS) * _COLUMN + 5 * _GAP + _VERDICT
_ROW = _PICTURE + _CAPTION + 6
_INK, _GREY, _RIGHT, _WRONG = "#202020", "#6b6b6b", "#1a7f37", "#c62828"


@dataclass(frozen=True)
class Group:
    """Rows of one outcome.

    Attributes:
        outcome: As `outcome` names it.
        title: What the rows have in common, and by what rule they were picked.
        verdict: What stands beside each.
        n_rows: At most so many.
        is_right: Whether the service was right.
        by_score: The highest best score first; else in the order of the manifest.
    """

    outcome: str
    title: str
    verdict: str
    n_rows: int
    is_right: bool
    by_score: bool = field(default=True)


GROUPS = (
    Group("found", "Known, and the first answer is right: the first by name", "match, right", 3, True, False),
    Group("refused", "Strangers without a match: the first by name", "no match, right", 2, True, False),
    Group(
        "stranger", "Strangers that get a match: the highest scores", "match, wrong:\na stranger", 4, False
    ),
    Group("other", "Known, but the first match is another: the highest scores", "match, wrong", 3, False),
    Group("missed", "Known, but no match: the highest scores", "no match, wrong:\nmissed", 3, False),
)


def outcome(row: dict[str, Any]) -> str:
    """What came out for a query.

    Returns:
        For a known one `found` (the first match is right), `other` or `missed`; for a stranger `refused` or
        `stranger`.
    """
    if row["role"] == "absent":
        return "refused" if row["no_match"] else "stranger"
    if row["no_match"]:
        return "missed"
    return "found" if row["answers"][0]["label"] == row["label"] else "other"


def pick_rows(rows: list[dict[str, Any]], group: Group) -> list[dict[str, Any]]:
    """The rows of a group by its rule: no more than it may have, one a label."""
    found = [row for row in rows if outcome(row) == group.outcome]
    if group.by_score:
        found.sort(key=lambda row: -row["answers"][0]["score"])
    first: dict[str, dict[str, Any]] = {}
    for row in found:
        first.setdefault(row["label"], row)
    return list(first.values())[: group.n_rows]


def write_sheet(rows: list[dict[str, Any]], threshold: float, pictures: dict[str, Path], path: Path) -> None:
    """Draw the rows of every group into a PNG of 256 colors.

    Args:
        rows: Queries with `id`, `label`, `view`, `role`, `no_match` and `answers`, each with `id`, `label`
            and `score`, best first.
        threshold: The score that decided.
        pictures: Image file of each id, of queries and items.
        path: The PNG.
    """
    picked = [(group, found) for group in GROUPS if (found := pick_rows(rows, group))]
    height = sum(_TITLE + len(found) * _ROW for _, found in picked) + _GAP
    sheet = Image.new("RGB", (_WIDTH, height), "white")
    top = _GAP // 2
    for group, found in picked:
        _text(sheet, (_GAP, top + 6), group.title, size=15, color=_INK)
        top += _TITLE
        for row in found:
            _draw_row(sheet, top, row, threshold, pictures, group)
            top += _ROW
    colors = sheet.quantize(256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    colors.save(path, optimize=True)


def _draw_row(
    sheet: Image.Image,
    top: int,
    row: dict[str, Any],
    threshold: float,
    pictures: dict[str, Path],
    group: Group,
) -> None:
    _draw_picture(sheet, (_GAP, top), pictures[row["id"]], None)
    _caption(sheet, (_GAP, top), row["label"], f"query, {row['view']}")
    answers = row["answers"][:N_ANSWERS]
    n_above = sum(one["score"] >= threshold for one in answers)
    left = _GAP + _COLUMN + 2 * _GAP
    for place, one in enumerate(answers):
        if place == n_above:
            left = _draw_threshold(sheet, left, top)
        color = _RIGHT if one["label"] == row["label"] else _WRONG
        _draw_picture(sheet, (left, top), pictures[one["id"]], color if place < n_above else _GREY)
        _caption(sheet, (left, top), f"{one['score']:.3f}", one["label"])
        left += _COLUMN
    if n_above == len(answers):
        left = _draw_threshold(sheet, left, top)
    color = _RIGHT if group.is_right else _WRONG
    _text(sheet, (_WIDTH - _VERDICT, top + 24), group.verdict, size=15, color=color)


def _draw_threshold(sheet: Image.Image, left: int, top: int) -> int:
    """A bar after the last match; what stands on its right is below the threshold. Returns where to go on."""
    ImageDraw.Draw(sheet).rectangle((left - 4, top - 2, left - 1, top + _PICTURE + 2), fill=_INK)
    return left + _GAP


def _draw_picture(sheet: Image.Image, at: tuple[int, int], path: Path, frame: str | None) -> None:
    with Image.open(path) as opened:
        sheet.paste(ImageOps.fit(opened.convert("RGB"), (_PICTURE, _PICTURE)), at)
    box = (at[0] - 1, at[1] - 1, at[0] + _PICTURE, at[1] + _PICTURE)
    ImageDraw.Draw(sheet).rectangle(box, outline=frame or _INK, width=1 if frame in (None, _GREY) else 3)


def _caption(sheet: Image.Image, at: tuple[int, int], first: str, second: str) -> None:
    for line, text in enumerate((first, second)):
        _text(sheet, (at[0], at[1] + _PICTURE + 3 + 15 * line), _shortened(text), size=12, color=_INK)


def _shortened(text: str) -> str:
    font = ImageFont.load_default(12)
    kept = text
    while font.getlength(kept) > _PICTURE + _GAP - 4:
        kept = kept.removesuffix("…")[:-1] + "…"
    return kept


def _text(sheet: Image.Image, at: tuple[int, int], text: str, *, size: int, color: str) -> None:
    ImageDraw.Draw(sheet).text(at, text, fill=color, font=ImageFont.load_default(size))
