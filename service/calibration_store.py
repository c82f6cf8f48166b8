"""Calibration records of a gallery: immutable files, and which one is active for which pipeline.

<gallery>/calibrations/<id>.json     one record each, never changed
<gallery>/calibrations/active.json   {pipeline key: id}
"""

from __future__ import annotations

import json
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from calibration import Target
from service.calibration_evidence import Evidence
from service.errors import CalibrationRecordError
from service.pipeline import Pipeline

__all__ = ["CalibrationRecord", "CalibrationStore", "Rates", "new_calibration_id"]


class Rates(BaseModel):
    """Error rates at the threshold; None where there was nothing to measure it on.

    Attributes:
        far: Share of negative pairs accepted.
        frr: Share of positive pairs rejected.
        fpir: Share of queries without a mate that get any match.
        fnir: Share of queries with a mate that get none of their mates.
        hit_rate_1: Share of queries with a mate whose best candidate is one; no threshold involved.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    far: float | None
    frr: float | None
    fpir: float | None
    fnir: float | None
    hit_rate_1: float | None


class CalibrationRecord(BaseModel):
    """One threshold, what it was measured on, and what it holds for.

    Attributes:
        source: `leave_one_out` over the gallery, labelled `queries`, or set `by_hand`.
        target: The rate that was asked for; None when set by hand.
        threshold: Lowest accepted final score, in full precision.
        pipeline: The pipeline whose scores were measured; the threshold means nothing for another.
        bundle: Fingerprint of the bundle.
        version: Gallery version that was searched.
        n_items: Its size; FPIR grows with the gallery.
        n_negative_pairs: Pairs of different labels that were scored.
        n_positive_pairs: Pairs of one label.
        n_with_mate: Queries with a mate.
        n_without_mate: Queries without; in leave-one-out each query again, with its label taken out.
        n_labels: Labels among the queries.
        n_labels_without_mate: Labels among the queries without a mate: what FPIR really rests on.
        warnings: What could make the rates too good.
        evidence: Intervals and predictions; None when set by hand, and in records of format 1.
        format_version: 1 for records that know no evidence, which can still be read; 2 for those of today.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format_version: Literal[1, 2] = 1
    id: str
    created_at: datetime
    source: Literal["leave_one_out", "queries", "by_hand"]
    target: Target | None
    threshold: float
    rates: Rates | None
    pipeline: Pipeline
    bundle: str
    version: int
    n_items: int
    n_negative_pairs: int = 0
    n_positive_pairs: int = 0
    n_with_mate: int = 0
    n_without_mate: int = 0
    n_labels: int = 0
    n_labels_without_mate: int = 0
    seed: int = 0
    warnings: tuple[str, ...] = ()
    evidence: Evidence | None = None


def new_calibration_id() -> str:
    """An id that sorts by time and cannot collide by accident."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


class CalibrationStore:
    """Records of one gallery.

    Args:
        path: The gallery's folder of calibrations; it is made when the first record is added.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, record: CalibrationRecord, *, activate: bool = True) -> None:
        """Keep a record, and let searches with its pipeline use it."""
        self.path.mkdir(parents=True, exist_ok=True)
        self._file(record.id).write_text(record.model_dump_json(indent=2) + "\n", encoding="utf-8")
        if activate:
            self.activate(record)

    def activate(self, record: CalibrationRecord) -> None:
        """Let searches with the record's pipeline use it from their next request on."""
        active = {**self._active_ids(), record.pipeline.key: record.id}
        staging = self.path / "active.json.partial"
        staging.write_text(json.dumps(active, indent=2) + "\n", encoding="utf-8")
        staging.replace(self.path / "active.json")

    def active(self, pipeline: Pipeline) -> CalibrationRecord | None:
        """The record in use for exactly this pipeline, or None.

        Raises:
            CalibrationRecordError: The record is missing or damaged.
        """
        record_id = self._active_ids().get(pipeline.key)
        return self.get(record_id) if record_id else None

    def get(self, record_id: str) -> CalibrationRecord:
        """One record.

        Raises:
            CalibrationRecordError: It is missing or damaged.
        """
        try:
            return CalibrationRecord.model_validate_json(self._file(record_id).read_bytes())
        except (OSError, ValidationError) as error:
            raise CalibrationRecordError(
                f"calibration '{record_id}' is missing or damaged: calibrate again"
            ) from error

    def history(self) -> list[CalibrationRecord]:
        """All records, newest first."""
        ids = [file.stem for file in self.path.glob("*.json") if file.name != "active.json"]
        records = [self.get(record_id) for record_id in ids]
        return sorted(records, key=lambda record: (record.created_at, record.id), reverse=True)

    def _active_ids(self) -> dict[str, str]:
        try:
            return dict(json.loads((self.path / "active.json").read_text(encoding="utf-8")))
        except FileNotFoundError:
            return {}
        except (TypeError, ValueError) as error:
            raise CalibrationRecordError(f"'{self.path / 'active.json'}' is damaged") from error

    def _file(self, record_id: str) -> Path:
        return self.path / f"{Path(record_id).name}.json"
