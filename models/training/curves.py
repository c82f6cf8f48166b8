"""Curves of a training run as a picture (matplotlib)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from vicinal.models.errors import MissingPackageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Validation", "draw_curves"]

_PANELS = (
    ("loss", "training loss"),
    ("hit_rate_1", "R@1 on held-out classes"),
    ("map_at_r", "MAP@R on held-out classes"),
)
_INK, _MUTED, _GRID = "#1f2933", "#616e7c", "#e4e7eb"
_CURVE, _BEST = "#1f6feb", "#d1495b"


class Validation(Protocol):
    """What is drawn of one validation."""

    @property
    def step(self) -> int:
        """Steps done."""
        ...

    @property
    def loss(self) -> float:
        """Mean training loss."""
        ...

    @property
    def hit_rate_1(self) -> float:
        """Hit rate at rank 1, or NaN."""
        ...

    @property
    def map_at_r(self) -> float:
        """MAP@R, or NaN."""
        ...


def draw_curves(path: Path, records: Sequence[Validation], best: Validation) -> None:
    """Draw loss, R@1 and MAP@R over the steps as a PNG, with the kept weights marked.

    Args:
        path: File to write.
        records: All validations.
        best: The validation whose weights were kept.

    Raises:
        MissingPackageError: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingPackageError("matplotlib", "train", "drawing curves") from error
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, (name, title) in zip(figure.subplots(1, len(_PANELS)), _PANELS, strict=True):
        _draw_panel(axes, name, title, records, best)
    figure.savefig(path, dpi=120, facecolor="white")


def _draw_panel(axes: Axes, name: str, title: str, records: Sequence[Validation], best: Validation) -> None:
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    axes.set_title(title, fontsize=10, loc="left", color=_INK)
    axes.set_xlabel("steps", fontsize=9, color=_MUTED)
    axes.tick_params(labelsize=8, colors=_MUTED)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color=_GRID)
    axes.set_axisbelow(True)
    values = [getattr(record, name) for record in records]
    if all(math.isnan(value) for value in values):
        axes.text(0.5, 0.5, "no held-out classes", transform=axes.transAxes, ha="center", color=_MUTED)
        return
    marker: dict[str, Any] = {"marker": "o", "markersize": 3} if len(records) < 40 else {}
    axes.plot([record.step for record in records], values, color=_CURVE, linewidth=1.6, **marker)
    chosen = getattr(best, name)
    axes.axvline(best.step, color=_BEST, linewidth=1, linestyle=(0, (3, 3)))
    axes.plot([best.step], [chosen], "o", color=_BEST, markersize=6)
    axes.set_title(f"kept: {chosen:.3f} at {best.step:,}", fontsize=9, loc="right", color=_BEST)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
