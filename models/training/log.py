"""Training log: one record a validation, as CSV, for TensorBoard, and as curves."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from vicinal.models.errors import MissingPackageError
from vicinal.models.training.curves import draw_curves

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

__all__ = ["CSV_FILE", "CURVES_FILE", "TENSORBOARD_FOLDER", "StepRecord", "TrainingLog"]

CSV_FILE = "training.csv"
CURVES_FILE = "training.png"
TENSORBOARD_FOLDER = "tensorboard"


@dataclass(frozen=True)
class StepRecord:
    """One validation during training.

    Attributes:
        step: Steps done.
        loss: Mean training loss since the last record.
        hit_rate_1: Hit rate at rank 1 on held-out classes; NaN without validation classes.
        map_at_r: MAP@R on held-out classes.
        seconds: Seconds since training began.
    """

    step: int
    loss: float
    hit_rate_1: float
    map_at_r: float
    seconds: float


class TrainingLog:
    """Writes the records of a run into its folder; what needs a missing package is left out and said once.

    training.csv   one line a record
    tensorboard/   the same for TensorBoard
    training.png   curves, drawn at the end

    Args:
        folder: Folder of the run; None writes nothing.
        notice: Called with a line about what is left out.
        first_step: Steps done before, by the run that is resumed; TensorBoard forgets what came after.
    """

    def __init__(self, folder: Path | None, notice: Callable[[str], None], *, first_step: int = 0) -> None:
        self.folder = folder
        self._notice = notice
        self._board = _open_board(folder, notice, first_step) if folder else None

    def write(self, records: Sequence[StepRecord]) -> None:
        """Bring the files to these records, of which the last is new."""
        if self.folder is None:
            return
        _write_csv(self.folder / CSV_FILE, records)
        if self._board:
            latest = records[-1]
            for name in ("loss", "hit_rate_1", "map_at_r"):
                self._board.add_scalar(name, getattr(latest, name), latest.step)
            self._board.flush()

    def finish(self, records: Sequence[StepRecord], best: StepRecord) -> None:
        """Draw the curves and close what is open."""
        if self._board:
            self._board.close()
        if self.folder is None:
            return
        try:
            draw_curves(self.folder / CURVES_FILE, records, best)
        except MissingPackageError as error:
            self._notice(f"no {CURVES_FILE}: {error}")


def _open_board(folder: Path, notice: Callable[[str], None], first_step: int) -> SummaryWriter | None:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        missing = MissingPackageError("tensorboard", "train", "a log for TensorBoard")
        notice(f"no {TENSORBOARD_FOLDER}: {missing}")
        return None
    return SummaryWriter(folder / TENSORBOARD_FOLDER, purge_step=first_step + 1 if first_step else None)


def _write_csv(path: Path, records: Sequence[StepRecord]) -> None:
    # Written anew each time, so that a resumed run continues exactly where its checkpoint was.
    partial = path.with_suffix(".csv.partial")
    with partial.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, [field.name for field in fields(StepRecord)])
        writer.writeheader()
        writer.writerows(asdict(record) for record in records)
    partial.replace(path)
