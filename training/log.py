"""Training log: one record a validation, as CSV and as curves."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path

from matplotlib.figure import Figure

from vicinal.training.files import replacing
from vicinal.training.observer import StepRecord

CSV_FILE = "training.csv"
CURVES_FILE = "training.png"
_CURVES = {
    "loss": "training loss",
    "hit_rate_1": "R@1 on held-out classes",
    "map_at_r": "MAP@R on held-out classes",
}


class TrainingLog:
    """Writes the records of a run into its folder.

    training.csv   one line a record
    training.png   curves, drawn at the end, with the kept weights marked
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, records: Sequence[StepRecord]) -> None:
        """Bring the files to these records, of which the last is new."""
        # Written anew each time, so that a resumed run continues exactly where its checkpoint was.
        path = self.folder / CSV_FILE
        with replacing(path) as partial, partial.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.DictWriter(stream, [field.name for field in fields(StepRecord)])
            writer.writeheader()
            writer.writerows(asdict(record) for record in records)

    def finish(self, records: Sequence[StepRecord], best: StepRecord) -> None:
        """Draw the curves, `best` being the validation whose weights were kept."""
        figure = Figure(figsize=(12, 3.6), layout="constrained")
        steps = [record.step for record in records]
        for axes, (name, title) in zip(figure.subplots(1, len(_CURVES)), _CURVES.items(), strict=True):
            kept = getattr(best, name)
            axes.plot(steps, [getattr(record, name) for record in records], "o-", markersize=3)
            axes.axvline(best.step, color="tab:red", linestyle="--", linewidth=1)
            axes.set_title(title, loc="left", fontsize=10)
            note = "no held-out classes" if math.isnan(kept) else f"kept: {kept:.3f} at {best.step:,}"
            axes.set_title(note, loc="right", fontsize=9, color="tab:red")
            axes.set_xlabel("steps")
        figure.savefig(self.folder / CURVES_FILE, dpi=120)
