"""Figure of an explanation (matplotlib): the way of a query among its neighbors, and their attention.

After figure 4 of "Attend to Context for Refining Embeddings in Deep Metric Learning" (ACR).
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vicinal.models.errors import MissingPackageError
from vicinal.service.matcher.explanation import Explanation

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_explanation"]

_INK, _MUTED, _GRID = "#1f2933", "#616e7c", "#e4e7eb"
_WAY = "#d1495b"
# Told apart also by those who see few colors (Okabe and Ito); further labels share gray.
_LABELS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#f0e442")
_OTHERS = "#9aa5b1"
_LONGEST = 26


def draw_explanation(path: Path, explanation: Explanation, *, title: str) -> None:
    """Draw the way of a query as a PNG.

    Args:
        path: File to write.
        explanation: What to draw.
        title: What was searched for.

    Raises:
        MissingPackageError: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingPackageError("matplotlib", "train", "drawing an explanation") from error
    figure = Figure(figsize=(12, 5.4), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, width_ratios=(1.25, 1.0))
    colors = _colors(explanation)
    _draw_way(left, explanation, colors)
    _draw_attention(right, explanation, colors)
    figure.suptitle(_headline(explanation, title), fontsize=11, x=0.01, ha="left", color=_INK)
    figure.savefig(path, dpi=130, facecolor="white")


def _colors(explanation: Explanation) -> dict[str | None, str]:
    """Color of each label, by the order in which they come."""
    labels = dict.fromkeys(one.label for one in explanation.neighbors if one.label is not None)
    chosen: dict[str | None, str] = dict.fromkeys([*labels, None], _OTHERS)
    chosen.update(zip(labels, _LABELS, strict=False))
    return chosen


def _headline(explanation: Explanation, title: str) -> str:
    moved = f"cosine of first to last {explanation.cosines[-1]:.3f}"
    used = "" if explanation.is_used else " — this search used the query as it was"
    if explanation.candidate is None:
        return f"{title}: no candidates, {moved}{used}"
    before, after = (rank or "beyond 1000" for rank in (explanation.ranks[0], explanation.ranks[-1]))
    return f"{title}: rank of {_short(explanation.candidate)} {before} → {after}, {moved}{used}"


def _draw_way(axes: Axes, explanation: Explanation, colors: dict[str | None, str]) -> None:
    way = np.array(explanation.way)
    for label in dict.fromkeys(one.label for one in explanation.neighbors):
        ours = [one for one in explanation.neighbors if one.label == label]
        places = np.array([one.place for one in ours])
        # The area of a neighbor is its attention, summed over the steps.
        sizes = [110 + 900 * float(np.mean(one.attention)) for one in ours]
        axes.scatter(
            places[:, 0],
            places[:, 1],
            s=sizes,
            color=colors[label],
            alpha=0.75,
            linewidths=0,
            label=label or "no label",
        )
    for start, stop in pairwise(way):
        arrow = {"arrowstyle": "-|>", "color": _WAY, "linewidth": 1.4, "shrinkA": 0, "shrinkB": 2}
        axes.annotate("", xy=tuple(stop), xytext=tuple(start), arrowprops=arrow)
    axes.scatter(way[:, 0], way[:, 1], s=16, color=_WAY, zorder=3, label="query")
    for step, offset in ((0, (7, 7)), (len(way) - 1, (-9, -16))):
        axes.annotate(
            f"$e^{{{step}}}$",
            tuple(way[step]),
            xytext=offset,
            textcoords="offset points",
            color=_WAY,
            zorder=5,
            bbox={"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.8},
        )
    for number, one in enumerate(explanation.neighbors, start=1):
        axes.annotate(
            str(number),
            one.place,
            ha="center",
            va="center",
            fontsize=7,
            color="white",
            weight="bold",
            zorder=4,
        )
    first, second = explanation.variance
    axes.set_xlabel(f"first axis, {first:.0%} of the variance", fontsize=9, color=_MUTED)
    axes.set_ylabel(f"second axis, {second:.0%}", fontsize=9, color=_MUTED)
    axes.set_title("way of the query among its neighbors", fontsize=10, loc="left", color=_INK)
    axes.set_aspect("equal", adjustable="datalim")
    axes.margins(0.15)
    _plain(axes)
    axes.grid(color=_GRID)
    legend = axes.legend(fontsize=8, frameon=False, loc="best", labelcolor=_INK)
    for handle in legend.legend_handles:
        getattr(handle, "set_sizes", lambda _: None)([36.0])


def _draw_attention(axes: Axes, explanation: Explanation, colors: dict[str | None, str]) -> None:
    axes.set_title("attention by step", fontsize=10, loc="left", color=_INK)
    _plain(axes)
    if not explanation.neighbors:
        axes.text(0.5, 0.5, "no neighbors", transform=axes.transAxes, ha="center", color=_MUTED)
        return
    attention = np.array([one.attention for one in explanation.neighbors])
    axes.imshow(attention, cmap="Blues", vmin=0.0, vmax=max(0.01, float(attention.max())), aspect="auto")
    for row, column in np.ndindex(*attention.shape):
        dark = attention[row, column] > 0.6 * attention.max()
        text = f"{100 * attention[row, column]:.0f}"
        axes.text(column, row, text, ha="center", va="center", fontsize=7, color="white" if dark else _INK)
    axes.set_xticks(range(attention.shape[1]), [str(step + 1) for step in range(attention.shape[1])])
    axes.set_xlabel("step; shares in %", fontsize=9, color=_MUTED)
    names = [
        f"{number}  {_short(one.id)}  {one.similarity:.2f}"
        for number, one in enumerate(explanation.neighbors, start=1)
    ]
    axes.set_yticks(range(len(names)), names)
    for text_of, one in zip(axes.get_yticklabels(), explanation.neighbors, strict=True):
        text_of.set_color(colors[one.label])
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)


def _plain(axes: Axes) -> None:
    axes.tick_params(labelsize=8, colors=_MUTED)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST else "…" + name[1 - _LONGEST :]
