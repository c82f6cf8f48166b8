"""Calibration records of a gallery: immutable files, and which one is active for which pipeline.

<gallery>/calibrations/<id>.json         one record each, never changed
<gallery>/calibrations/<id>.scores.npz   the scores that it was made from (`.record`)
<gallery>/calibrations/<id>.evidence.json.gz   curves and examples (`.curves`)
<gallery>/calibrations/checks/<id>.json  the newest try of what it promised (`.promise`)
<gallery>/calibrations/active.json       what is in force (`.activations`)
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from vicinal.indexer.storage.files import (
    SealedFile,
    identity_of,
    read_bound,
    write_bound,
    write_sealed,
)
from vicinal.models.configs.sealed_json import BrokenSealError
from vicinal.service.errors import CalibrationNotFoundError, CalibrationRecordError
from vicinal.service.measuring.records.activations import ACTIVATION_FILES, Activation, Activations
from vicinal.service.measuring.records.curves import CalibrationCurves
from vicinal.service.measuring.records.promise import PromiseCheck
from vicinal.service.measuring.records.record import CalibrationRecord, StoredScores
from vicinal.service.search.pipeline import Pipeline

_ID = re.compile(r"[\w.-]{1,64}")
# No key of a pipeline holds it.
_SLOT_MARK = ": "


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
        self._files: dict[str, SealedFile[CalibrationRecord]] = {}
        self._checks: dict[str, SealedFile[PromiseCheck]] = {}

    def add(
        self,
        record: CalibrationRecord,
        scores: StoredScores | None = None,
        curves: CalibrationCurves | None = None,
        *,
        activate: bool = True,
    ) -> CalibrationRecord:
        """Keep a record, and let searches with its pipeline use it."""
        self.path.mkdir(parents=True, exist_ok=True)
        file = self._file(record.id)
        if file.exists():
            raise CalibrationRecordError(f"calibration '{record.id}' exists: records are never changed")
        folder = self.path.parent
        bound = {"gallery": record.gallery or folder.name, "gallery_id": identity_of(folder)}
        if scores is not None:
            bound["scores_sha256"] = write_bound(self._scores_file(record.id), scores.to_bytes())
        if curves is not None:
            bound["curves_sha256"] = write_bound(self._curves_file(record.id), curves.to_bytes())
        kept = record.model_copy(update=bound)
        # Last, so that a record that is there is complete.
        write_sealed(file, kept.model_dump_json(indent=2))
        if activate:
            self.activate(kept)
        return kept

    def activate(self, record: CalibrationRecord) -> None:
        """Let searches with the record's pipeline use it from their next request on."""
        self.activations.activate(_slot(record.pipeline.slot, self.calibrated_as), record.id)

    def prepare(self, record: CalibrationRecord, version: int) -> None:
        """Make a record a version's own: it is in force from the moment in which the version is searched."""
        self.activations.activate(_slot(record.pipeline.slot, version), record.id)

    def has_own(self, version: int) -> bool:
        """Whether a version has calibrations of its own."""
        return any(slot.startswith(_slot("", version)) for slot in self.activations.all())

    def activation(self, pipeline: Pipeline) -> Activation | None:
        """What is in force for a pipeline: the version's own, or else the gallery's.

        Of pipelines that differ in the form of their group score alone, one calibration decides, and with it
        comes its form.
        """
        return self._activation(pipeline.slot)

    def _activation(self, slot: str) -> Activation | None:
        active = self.activations.all()
        return active.get(_slot(slot, self.calibrated_as)) or active.get(slot)

    def in_use(self, versions: set[int]) -> list[CalibrationRecord]:
        """Records that are in force for the gallery, or would be with one of some versions."""
        known = {_slot("", version) for version in versions} | {""}
        slots = self.activations.all().items()
        return [self.get(one.calibration) for slot, one in slots if _owner(slot) in known]

    def in_force(self) -> set[str]:
        """Ids of the records that searches use now."""
        pipelines = {slot.rpartition(_SLOT_MARK)[2] for slot in self.activations.all()}
        return {one.calibration for one in map(self._activation, pipelines) if one is not None}

    def roll_back(self, pipeline: Pipeline) -> CalibrationRecord:
        """Let searches with a pipeline use the record again that was in force before the present one."""
        own = _slot(pipeline.slot, self.calibrated_as)
        return self.get(self.activations.roll_back(own if own in self.activations.all() else pipeline.slot))

    def active(self, pipeline: Pipeline) -> CalibrationRecord | None:
        """The record in use for a pipeline, whatever the form of its group score, or None."""
        activation = self.activation(pipeline)
        return self.get(activation.calibration) if activation else None

    def active_with_other_refiner(self, pipeline: Pipeline) -> CalibrationRecord | None:
        """A record in use for a pipeline that differs in nothing but its refiner, or None."""
        if pipeline.refine.sides == "off":
            return None
        others = (self.get(one) for one in sorted(self.in_force()))
        return next((one for one in others if one.pipeline.is_of_other_refiner(pipeline)), None)

    def get(self, record_id: str) -> CalibrationRecord:
        """One record."""
        file = self._files.get(record_id)
        if file is None:
            file = SealedFile(self._file(record_id), CalibrationRecord.model_validate_json)
        try:
            record = file.read()
            if record.id != record_id:
                raise BrokenSealError(f"it is that of calibration '{record.id}'")
        except (OSError, BrokenSealError) as error:
            name = self.path.parent.name
            raise CalibrationRecordError(
                f"calibration '{record_id}' is missing or damaged: calibrate again, or put another one in "
                f"force by `vicinal calibration activate ID -g {name}`"
            ) from error
        # Every search asks for the one in force.
        self._files[record_id] = file
        return record

    def find(self, record_id: str) -> CalibrationRecord:
        """One record that somebody asks for by its id."""
        name = f"{record_id}.json"
        if not _ID.fullmatch(record_id) or name in ACTIVATION_FILES or not self._file(record_id).is_file():
            raise CalibrationNotFoundError(
                f"gallery '{self.path.parent.name}' has no calibration '{record_id}'"
            )
        return self.get(record_id)

    def scores(self, record: CalibrationRecord) -> StoredScores | None:
        """The scores that a record was made from; None where there are none."""
        if record.scores_sha256 is None:
            return None
        stored = self._bound(record.id, self._scores_file(record.id), record.scores_sha256, "scores")
        return StoredScores.from_bytes(stored)

    def _bound(self, record_id: str, path: Path, sha256: str, what: str) -> bytes:
        """Content of a file that a record names."""
        try:
            return read_bound(path, sha256)
        except (OSError, BrokenSealError) as error:
            state = "missing" if isinstance(error, OSError) else "damaged"
            raise CalibrationRecordError(
                f"the {what} of calibration '{record_id}' are {state}: calibrate again"
            ) from error

    def curves(self, record: CalibrationRecord) -> CalibrationCurves | None:
        """The curves and examples of a record; None where there are none."""
        if record.curves_sha256 is None:
            return None
        stored = self._bound(record.id, self._curves_file(record.id), record.curves_sha256, "curves")
        return CalibrationCurves.from_bytes(stored)

    def keep_check(self, check: PromiseCheck) -> None:
        """Keep the newest try of what a record promised, in place of the one before.

        A promise that was found broken stays so until photos show that it holds: too few are no answer.
        """
        file = self._check_file(check.calibration)
        if check.verdict == "unclear":
            with suppress(CalibrationRecordError):
                before = self.last_check(self.get(check.calibration))
                if before is not None and before.verdict == "broken":
                    return
        file.parent.mkdir(exist_ok=True)
        write_sealed(file, check.model_dump_json(indent=2))

    def last_check(self, record: CalibrationRecord) -> PromiseCheck | None:
        """The newest try of what a record promised; None where there is none."""
        file = self._checks.get(record.id)
        if file is None:
            file = SealedFile(self._check_file(record.id), PromiseCheck.model_validate_json)
        try:
            found = file.read()
        except FileNotFoundError:
            return None
        except (OSError, BrokenSealError) as error:
            raise CalibrationRecordError(
                f"the check of calibration {record.id} is damaged, so that nobody knows whether its promise "
                "was found broken: check again by "
                f"`vicinal calibration check -g {self.path.parent.name} --queries FOLDER`"
            ) from error
        # Every search asks for that of the one in force.
        self._checks[record.id] = file
        return found

    def history(self) -> list[CalibrationRecord]:
        """All records, newest first."""
        ids = [file.stem for file in self.path.glob("*.json") if file.name not in ACTIVATION_FILES]
        records = [self.get(record_id) for record_id in ids]
        return sorted(records, key=lambda record: (record.created_at, record.id), reverse=True)

    def _file(self, record_id: str) -> Path:
        return self.path / f"{Path(record_id).name}.json"

    def _curves_file(self, record_id: str) -> Path:
        return self.path / f"{Path(record_id).name}.evidence.json.gz"

    def _check_file(self, record_id: str) -> Path:
        return self.path / "checks" / f"{Path(record_id).name}.json"

    def _scores_file(self, record_id: str) -> Path:
        return self.path / f"{Path(record_id).name}.scores.npz"


def _owner(slot: str) -> str:
    """What comes before the pipeline: nothing for the gallery."""
    before, mark, _ = slot.rpartition(_SLOT_MARK)
    return before + mark


def _slot(pipeline: str, version: int) -> str:
    """Where it is noted what is in force for a pipeline: for the gallery, or for one version alone."""
    return f"version {version}{_SLOT_MARK}{pipeline}" if version else pipeline
