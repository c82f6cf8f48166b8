"""Tables and plots of the loss study, from its raw results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks.losses.runs import BASE_LOSSES, SETS

__all__ = ["by_seed", "cell", "records_of", "replace_tables", "row", "tables", "write_plots"]

Record = dict[str, Any]
_COLUMNS = {
    "R@1": ("hit_rate_1", 1),
    "MAP@R": ("map_at_r", 1),
    "OPIS x 1000": ("opis", 1000),
    "10 %-OPIS": ("epsilon_opis", 1),
    "AUROC": ("auroc", 1),
}


def tables(records: Sequence[Record]) -> dict[str, str]:
    """Markdown tables by name; a cell is mean ± standard deviation over the seeds."""
    made = {f"losses-{images}": _loss_table(records, images) for images in SETS}
    made["tcm"] = _tcm_table(records)
    for group in ("rsk", "designs", "noise", "margins"):
        found = records_of(records, group=group)
        for images in sorted({record["images"] for record in found}):
            made[f"{group}-{images}"] = _plain_table(records_of(found, images=images))
    return made


def replace_tables(page: Path, made: dict[str, str]) -> None:
    """Put each table between its marks `<!-- table NAME -->` and `<!-- end -->`.

    Raises:
        ValueError: The page has no place for a table, or a place for none.
    """
    text = page.read_text(encoding="utf-8")
    for name, table in made.items():
        head, start, rest = text.partition(f"<!-- table {name} -->")
        _, end, tail = rest.partition("<!-- end -->")
        if not (start and end):
            raise ValueError(f"'{page}' has no place for the table '{name}'")
        text = f"{head}{start}\n\n{table}\n{end}{tail}"
    page.write_text(text, encoding="utf-8")


def write_plots(records: Sequence[Record], folder: Path) -> None:
    """The three plots of the page, as PNG."""
    folder.mkdir(parents=True, exist_ok=True)
    _plot_consistency(records, folder / "losses-consistency.png")
    _plot_batches(records, folder / "losses-batch-size.png")
    _plot_noise(records, folder / "losses-label-noise.png")


def records_of(records: Iterable[Record], **wanted: str) -> list[Record]:
    """The records with these values."""
    return [one for one in records if all(one[key] == value for key, value in wanted.items())]


def _values(records: Iterable[Record], metric: str) -> np.ndarray:
    return np.array([one["test"][metric] for one in records])


def cell(values: np.ndarray, factor: float = 1, *, signed: bool = False) -> str:
    """Mean ± standard deviation; with a factor of 1000 two digits of it, else three."""
    digits = 2 if factor == 1000 else 3
    mean, spread = values.mean() * factor, values.std(ddof=1) * factor if len(values) > 1 else np.nan
    return f"{mean:{'+' if signed else ''}.{digits}f} ± {spread:.{digits}f}"


def _loss_table(records: Sequence[Record], images: str) -> str:
    lines = [row(["loss", *_COLUMNS, "OPIS floor x 1000"]), row(["---"] * (len(_COLUMNS) + 2))]
    for name in (variant for base in BASE_LOSSES for variant in (base, f"{base}+tcm")):
        found = records_of(records, group="losses", images=images, name=name)
        cells = [cell(_values(found, metric), factor) for metric, factor in _COLUMNS.values()]
        floor = cell(_values(found, "opis_floor"), 1000)
        lines.append(row([name.replace("+tcm", " + TCM"), *cells, floor]))
    return "\n".join(lines) + "\n"


def _tcm_table(records: Sequence[Record]) -> str:
    """What TCM changed, seed by seed: the same weights, batches and augmentation with and without it."""
    lines = [row(["loss", "set", *_COLUMNS]), row(["---"] * (len(_COLUMNS) + 2))]
    for name in BASE_LOSSES:
        for images in SETS:
            cells = []
            for metric, factor in _COLUMNS.values():
                plain = by_seed(records_of(records, group="losses", images=images, name=name), metric)
                added = by_seed(
                    records_of(records, group="losses", images=images, name=f"{name}+tcm"), metric
                )
                cells.append(cell(added - plain, factor, signed=True))
            lines.append(row([name, images, *cells]))
    return "\n".join(lines) + "\n"


def by_seed(records: Sequence[Record], metric: str) -> np.ndarray:
    """(n,) metric on test classes, in the order of the seeds."""
    return _values(sorted(records, key=lambda one: one["seed"]), metric)


def _plain_table(records: Sequence[Record]) -> str:
    lines = [row(["run", *_COLUMNS]), row(["---"] * (len(_COLUMNS) + 1))]
    for name in dict.fromkeys(one["name"] for one in records):
        found = records_of(records, name=name)
        lines.append(
            row([name, *[cell(_values(found, metric), factor) for metric, factor in _COLUMNS.values()]])
        )
    return "\n".join(lines) + "\n"


def row(cells: Iterable[str]) -> str:
    """One line of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def _figure(n_plots: int) -> tuple[Figure, Any]:
    figure = Figure(figsize=(4.6 * n_plots, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, np.atleast_1d(figure.subplots(1, n_plots))


def _plot_consistency(records: Sequence[Record], path: Path) -> None:
    figure, axes = _figure(len(SETS))
    for axis, images in zip(axes, SETS, strict=True):
        for number, name in enumerate(BASE_LOSSES):
            points = []
            for variant in (name, f"{name}+tcm"):
                found = records_of(records, group="losses", images=images, name=variant)
                points.append((_values(found, "map_at_r").mean(), _values(found, "opis").mean()))
            (x0, y0), (x1, y1) = points
            color = f"C{number % 10}"
            axis.annotate("", (x1, y1), (x0, y0), arrowprops={"arrowstyle": "->", "color": color})
            axis.plot(x0, y0, "o" if number < 10 else "s", color=color, label=name)
            axis.plot(x1, y1, ".", color=color, markersize=2)  # so that the axes reach the arrow's tip
        axis.set(title=images, xlabel="MAP@R on test classes", ylabel="OPIS (lower: one threshold fits more)")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8)
    figure.suptitle("Each loss, and where adding TCM moves it", fontsize=10)
    figure.savefig(path, dpi=110)


def _plot_batches(records: Sequence[Record], path: Path) -> None:
    found = records_of(records, group="rsk")
    sets = [images for images in SETS if records_of(found, images=images)]
    figure, axes = _figure(len(sets))
    for axis, images in zip(axes, sets, strict=True):
        for suffix, label in (("", "RS@k"), ("-simix", "RS@k with SiMix")):
            own = [
                one
                for one in records_of(found, images=images)
                if one["name"].endswith("simix") == bool(suffix)
            ]
            sizes = sorted({int(one["name"].removesuffix("-simix")) for one in own})
            values = [_values(records_of(own, name=f"{size}{suffix}"), "map_at_r") for size in sizes]
            spread = [one.std(ddof=1) for one in values]
            axis.errorbar(sizes, [one.mean() for one in values], spread, marker="o", capsize=3, label=label)
        axis.set(title=images, xlabel="images a batch", ylabel="MAP@R on test classes", xscale="log")
        axis.set_xticks(sizes, [str(size) for size in sizes], minor=False)
        axis.minorticks_off()
        axis.legend()
    figure.savefig(path, dpi=110)


def _plot_noise(records: Sequence[Record], path: Path) -> None:
    sets = [images for images in SETS if records_of(records, group="noise", images=images)]
    figure, axes = _figure(len(sets))
    for axis, images in zip(axes, sets, strict=True):
        for name in ("contextual", "multi_similarity"):
            clean = records_of(records, group="losses", images=images, name=name)
            noisy = [
                records_of(records, group="noise", images=images, name=f"{name}-{share}")
                for share in ("10%", "20%")
            ]
            values = [_values(one, "map_at_r") for one in (clean, *noisy)]
            spread = [one.std(ddof=1) for one in values]
            axis.errorbar(
                (0, 10, 20), [one.mean() for one in values], spread, marker="o", capsize=3, label=name
            )
        axis.set(title=images, xlabel="wrong training labels (%)", ylabel="MAP@R on test classes")
        axis.set_xticks((0, 10, 20))
        axis.legend()
    figure.savefig(path, dpi=110)
