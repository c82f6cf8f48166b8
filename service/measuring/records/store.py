"""Calibration records of a gallery: immutable files, and which one is active for which pipeline.

<gallery>/calibrations/<id>.json         one record each, never changed
<gallery>/calibrations/<id>.scores.npz   the scores that it was made from (`.record`)
<gallery>/calibrations/<id>.evidence.json.gz   curves and examples (`.curves`)
<gallery>/calibrations/checks/<id>.json  the newest try of what it promised (`.promise`)
<gallery>/calibrations/active.json       what is in force (`.activations`)
"""

from __future__ import annotations

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
from vicinal.service.records import RecordFolder, remedy_of
from vicinal.service.search.pipeline import Pipeline

# No key of a pipeline holds it.
_SLOT_MARK = ": "


class CalibrationStore(RecordFolder[CalibrationRecord]):
    """Records of one gallery.

    Args:
        path: The gallery's folder of calibrations; it is made when the first record is added.
        calibrated_as: Version whose own calibrations go before those of the gallery; 0 for none. What is put
            in force is then its own, so that a roll back to another version brings back what held there.
    """

    model, kind = CalibrationRecord, "calibration"
    not_found, error = CalibrationNotFoundError, CalibrationRecordError
    other_files = ACTIVATION_FILES

    def __init__(self, path: Path, *, calibrated_as: int = 0) -> None:
        super().__init__(path)
        self.calibrated_as = calibrated_as
        self.activations = Activations(path)
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
        self.begin(record.id)
        folder = self.path.parent
        bound = {"gallery": record.gallery or folder.name, "gallery_id": identity_of(folder)}
        if scores is not None:
            bound["scores_sha256"] = write_bound(self.file(record.id, ".scores.npz"), scores.to_bytes())
        if curves is not None:
            bound["curves_sha256"] = write_bound(self.file(record.id, ".evidence.json.gz"), curves.to_bytes())
        kept = record.model_copy(update=bound)
        # Last, so that a record that is there is complete.
        self.keep(kept, indent=2)
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

    def scores(self, record: CalibrationRecord) -> StoredScores | None:
        """The scores that a record was made from; None where there are none."""
        stored = self._bound(record.id, ".scores.npz", record.scores_sha256, "scores")
        return None if stored is None else StoredScores.from_bytes(stored)

    def curves(self, record: CalibrationRecord) -> CalibrationCurves | None:
        """The curves and examples of a record; None where there are none."""
        stored = self._bound(record.id, ".evidence.json.gz", record.curves_sha256, "curves")
        return None if stored is None else CalibrationCurves.from_bytes(stored)

    def _bound(self, record_id: str, suffix: str, sha256: str | None, what: str) -> bytes | None:
        """Content of a file that a record names; None where it names none."""
        if sha256 is None:
            return None
        try:
            return read_bound(self.file(record_id, suffix), sha256)
        except (OSError, BrokenSealError) as error:
            state = "missing" if isinstance(error, OSError) else "damaged"
            raise CalibrationRecordError(
                f"the {what} of calibration '{record_id}' are {state}: calibrate again"
            ) from error

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
                f"was found broken: {remedy_of(self.path.parent, file.path)}"
            ) from error
        # Every search asks for that of the one in force.
        self._checks[record.id] = file
        return found

    def _check_file(self, record_id: str) -> Path:
        return self.path / "checks" / f"{Path(record_id).name}.json"


def _owner(slot: str) -> str:
    """What comes before the pipeline: nothing for the gallery."""
    before, mark, _ = slot.rpartition(_SLOT_MARK)
    return before + mark


def _slot(pipeline: str, version: int) -> str:
    """Where it is noted what is in force for a pipeline: for the gallery, or for one version alone."""
    return f"version {version}{_SLOT_MARK}{pipeline}" if version else pipeline
