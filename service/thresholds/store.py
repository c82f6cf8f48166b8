"""Calibration records of a gallery: immutable files, and which one is active for which pipeline.

<gallery>/calibrations/<id>.json         one record each, never changed
<gallery>/calibrations/<id>.scores.npz   the scores that it was made from (`service.stored_scores`)
<gallery>/calibrations/<id>.evidence.json.gz   curves and examples (`service.calibration_details`)
<gallery>/calibrations/active.json       what is in force (`service.calibration_activations`)
"""

from __future__ import annotations

import hashlib
import re
import secrets
import zlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from vicinal.calibration import Target
from vicinal.indexer.storage.files import write_atomically
from vicinal.service.calibrator.curves import CalibrationDetails
from vicinal.service.calibrator.evidence import Evidence
from vicinal.service.calibrator.stored_scores import StoredScores
from vicinal.service.errors import CalibrationNotFoundError, CalibrationRecordError
from vicinal.service.scoring.pipeline import Pipeline
from vicinal.service.thresholds.activations import ACTIVATION_FILES, Activation, Activations

__all__ = ["CalibrationRecord", "CalibrationStore", "Rates", "new_calibration_id"]

_ID = re.compile(r"[\w.-]{1,64}")
# No key of a pipeline holds it.
_SLOT_MARK = ": "


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
        gallery: Name of the gallery; None in records of earlier releases, which are taken at their place.
        scores_sha256: Checksum of the stored scores; None where there are none.
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
    gallery: str | None = None
    scores_sha256: str | None = None


def new_calibration_id() -> str:
    """An id that sorts by time and cannot collide by accident."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


class CalibrationStore:
    """Records of one gallery.

    Args:
        path: The gallery's folder of calibrations; it is made when the first record is added.
        calibrated_as: Version whose own calibrations go before those of the gallery; 0 for none. What is put
            in force is then its own, so that a roll back to another version brings back what held there.
    """

    def __init__(self, path: Path, *, calibrated_as: int = 0) -> None:
        self.path = path
        self.calibrated_as = calibrated_as
        self.activations = Activations(path)
        self._last_read: dict[str, tuple[bytes, CalibrationRecord]] = {}

    def add(
        self,
        record: CalibrationRecord,
        scores: StoredScores | None = None,
        details: CalibrationDetails | None = None,
        *,
        activate: bool = True,
    ) -> CalibrationRecord:
        """Keep a record, and let searches with its pipeline use it.

        Args:
            record: A record with an id of its own.
            scores: What it was made from, to try other thresholds on.
            details: What a report is drawn from.
            activate: Whether it is used from the next search on.

        Returns:
            The record as it is kept: bound to this gallery and to its scores.

        Raises:
            CalibrationRecordError: There is a record of this id: records are never changed.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        file = self._file(record.id)
        if file.exists():
            raise CalibrationRecordError(f"calibration '{record.id}' exists: records are never changed")
        bound = {"gallery": record.gallery or self.path.parent.name}
        if scores is not None:
            stored = scores.to_bytes()
            write_atomically(self._scores_file(record.id), stored)
            bound["scores_sha256"] = hashlib.sha256(stored).hexdigest()
        if details is not None:
            write_atomically(self._details_file(record.id), details.to_bytes())
        kept = record.model_copy(update=bound)
        # Last, so that a record that is there is complete.
        write_atomically(file, kept.model_dump_json(indent=2) + "\n")
        if activate:
            self.activate(kept)
        return kept

    def activate(self, record: CalibrationRecord) -> None:
        """Let searches with the record's pipeline use it from their next request on."""
        self.activations.activate(_slot(record.pipeline.key, self.calibrated_as), record.id)

    def prepare(self, record: CalibrationRecord, version: int) -> None:
        """Make a record a version's own: it is in force from the moment in which the version is searched."""
        self.activations.activate(_slot(record.pipeline.key, version), record.id)

    def has_own(self, version: int) -> bool:
        """Whether a version has calibrations of its own."""
        return any(slot.startswith(_slot("", version)) for slot in self.activations.all())

    def activation(self, pipeline: str) -> Activation | None:
        """What is in force for the pipeline of this key: the version's own, or else the gallery's."""
        active = self.activations.all()
        return active.get(_slot(pipeline, self.calibrated_as)) or active.get(pipeline)

    def in_use(self, versions: set[int]) -> list[CalibrationRecord]:
        """Records that are in force for the gallery, or would be with one of some versions.

        Raises:
            CalibrationRecordError: One is missing or damaged.
        """
        known = {_slot("", version) for version in versions} | {""}
        slots = self.activations.all().items()
        return [self.get(one.calibration) for slot, one in slots if _owner(slot) in known]

    def in_force(self) -> set[str]:
        """Ids of the records that searches use now."""
        pipelines = {slot.rpartition(_SLOT_MARK)[2] for slot in self.activations.all()}
        return {one.calibration for one in map(self.activation, pipelines) if one is not None}

    def roll_back(self, pipeline: Pipeline) -> CalibrationRecord:
        """Let searches with a pipeline use the record again that was in force before the present one.

        Raises:
            RequestError: There was none before.
        """
        own = _slot(pipeline.key, self.calibrated_as)
        return self.get(self.activations.roll_back(own if own in self.activations.all() else pipeline.key))

    def active(self, pipeline: Pipeline) -> CalibrationRecord | None:
        """The record in use for exactly this pipeline, or None.

        Raises:
            CalibrationRecordError: The record is missing or damaged.
        """
        activation = self.activation(pipeline.key)
        return self.get(activation.calibration) if activation else None

    def active_with_other_refiner(self, pipeline: Pipeline) -> CalibrationRecord | None:
        """A record in use for a pipeline that differs in nothing but its refiner, or None.

        Raises:
            CalibrationRecordError: A record is missing or damaged.
        """
        if pipeline.refine.sides == "off":
            return None
        others = (self.get(one) for one in sorted(self.in_force()))
        return next((one for one in others if one.pipeline.is_of_other_refiner(pipeline)), None)

    def get(self, record_id: str) -> CalibrationRecord:
        """One record.

        Raises:
            CalibrationRecordError: It is missing or damaged.
        """
        try:
            stored = self._file(record_id).read_bytes()
            known = self._last_read.get(record_id)
            # Every search asks for the one in force; reading it is cheap, understanding it is not.
            if known is not None and known[0] == stored:
                return known[1]
            record = CalibrationRecord.model_validate_json(stored)
        except (OSError, ValidationError) as error:
            raise CalibrationRecordError(
                f"calibration '{record_id}' is missing or damaged: calibrate again"
            ) from error
        self._last_read[record_id] = stored, record
        return record

    def find(self, record_id: str) -> CalibrationRecord:
        """One record that somebody asks for by its id.

        Raises:
            CalibrationNotFoundError: There is none of this id.
            CalibrationRecordError: It is damaged.
        """
        name = f"{record_id}.json"
        if not _ID.fullmatch(record_id) or name in ACTIVATION_FILES or not self._file(record_id).is_file():
            raise CalibrationNotFoundError(
                f"gallery '{self.path.parent.name}' has no calibration '{record_id}'"
            )
        return self.get(record_id)

    def scores(self, record: CalibrationRecord) -> StoredScores | None:
        """The scores that a record was made from; None where there are none.

        Raises:
            CalibrationRecordError: They are missing or damaged.
        """
        if record.scores_sha256 is None:
            return None
        try:
            stored = self._scores_file(record.id).read_bytes()
        except OSError as error:
            raise CalibrationRecordError(
                f"the scores of calibration '{record.id}' are missing: calibrate again"
            ) from error
        if hashlib.sha256(stored).hexdigest() != record.scores_sha256:
            raise CalibrationRecordError(
                f"the scores of calibration '{record.id}' are damaged: calibrate again"
            )
        return StoredScores.from_bytes(stored)

    def details(self, record: CalibrationRecord) -> CalibrationDetails | None:
        """The details of a record; None where there are none.

        Raises:
            CalibrationRecordError: They are damaged.
        """
        try:
            return CalibrationDetails.from_bytes(self._details_file(record.id).read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, EOFError, zlib.error, ValidationError) as error:
            raise CalibrationRecordError(
                f"the details of calibration '{record.id}' are damaged: calibrate again"
            ) from error

    def history(self) -> list[CalibrationRecord]:
        """All records, newest first.

        Raises:
            CalibrationRecordError: One is damaged.
        """
        ids = [file.stem for file in self.path.glob("*.json") if file.name not in ACTIVATION_FILES]
        records = [self.get(record_id) for record_id in ids]
        return sorted(records, key=lambda record: (record.created_at, record.id), reverse=True)

    def _file(self, record_id: str) -> Path:
        return self.path / f"{Path(record_id).name}.json"

    def _details_file(self, record_id: str) -> Path:
        return self.path / f"{Path(record_id).name}.evidence.json.gz"

    def _scores_file(self, record_id: str) -> Path:
        return self.path / f"{Path(record_id).name}.scores.npz"


def _owner(slot: str) -> str:
    """What comes before the pipeline: nothing for the gallery."""
    before, mark, _ = slot.rpartition(_SLOT_MARK)
    return before + mark


def _slot(pipeline: str, version: int) -> str:
    """Where it is noted what is in force for a pipeline: for the gallery, or for one version alone."""
    return f"version {version}{_SLOT_MARK}{pipeline}" if version else pipeline
