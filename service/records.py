"""Records of a gallery: sealed `<gallery>/<folder>/<id>.json`, never changed, and what to do about damage."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from vicinal.calibration.advice import Advice, Names, advise, own_names
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.storage.files import (
    SealedFile,
    broken_files,
    make_folder,
    read_bound,
    read_sealed,
    write_sealed,
)
from vicinal.models.configs.sealed_json import BrokenSealError, OtherFormError
from vicinal.service.errors import RecordNotFoundError, ServiceError

logger = logging.getLogger(__name__)
_ID = re.compile(r"[\w-][\w.-]{0,63}")
# What to do, by where a file lies; the first that fits.
_REMEDIES = (
    ("active.copy.json", "nothing is read of it; the next change writes it anew"),
    ("identity.json", "bring it back from a backup, or remove it and calibrate again"),
    ("calibrations/active*.json", "put a calibration in force again by {activate()}"),
    ("calibrations/pipeline.json", "let the settings choose again by {use_settings()}"),
    ("calibrations/checks/*", "check again by {check()}"),
    ("calibrations/drift/*", "it is left out, and can be removed"),
    ("calibrations/metrics/beside.json", "fit again"),
    ("calibrations/metrics/*", "calibrate again, or fit again"),
    ("calibrations/*", "calibrate again, or put another one in force by {activate()}"),
    ("comparisons/*", "compare again by {compare()}"),
    ("duplicates/*", "look for them again by {duplicates()}"),
    ("reports/*", "bring it back from a backup; the gallery is searched as before"),
)
# Files that hold no seal of their own, by the field of the record beside them that says what they are.
_BOUND_FILES = {
    "calibrations/*.json": {
        "scores_sha256": "{0}.scores.npz",
        "curves_sha256": "{0}.evidence.json.gz",
        "points_sha256": "{0}.points.npz",
        "pipeline.group.metric": "metrics/{1}.npz",
    },
    "calibrations/metrics/beside.json": {"sha256": "{1}.npz"},
}
_BACKUP = "bring it back from a backup, or index the gallery again"


def remedy_of(gallery: Path, path: Path) -> Advice:
    """Advice where a file of a gallery's folder is damaged."""
    place = path.relative_to(gallery)
    known = (remedy for pattern, remedy in _REMEDIES if _lies_in(place, pattern))
    return advise(next(known, _BACKUP), gallery=gallery.name)


def _lies_in(place: Path, pattern: str) -> bool:
    if "**" in pattern:
        return place.parts[0] == pattern.split("/")[0]
    return len(place.parts) == pattern.count("/") + 1 and place.match(pattern)


def damaged_records(gallery: Gallery, names: Names = own_names) -> list[str]:
    """Damaged records and pointers of a gallery, each with what to do; the rest is for `check_version`."""
    versions = gallery.path / "versions"
    broken = [path for path in broken_files(gallery.path) if versions not in path.parents]
    paths = dict.fromkeys([*broken, *_unbound_files(gallery.path)])
    own = {gallery.path / "active.json": gallery.pointer.remedy}
    remedies = {path: own.get(path) or remedy_of(gallery.path, path) for path in paths}
    return [f"'{path}' is damaged: {remedy.said(names)}" for path, remedy in remedies.items()]


def _unbound_files(folder: Path) -> Iterator[Path]:
    """Files that are no JSON, and are not what the records beside them say."""
    for pattern, files in _BOUND_FILES.items():
        for record in sorted(folder.glob(pattern)):
            fields: dict[str, Any] = {}
            # A record that is damaged is named itself.
            with suppress(OSError, BrokenSealError):
                fields = json.loads(read_sealed(record))
            for name, file in files.items():
                sha256: Any = fields
                for key in name.split("."):
                    sha256 = (sha256 or {}).get(key)
                path = record.parent / file.format(record.stem, sha256)
                try:
                    if sha256:
                        read_bound(path, sha256)
                except (OSError, BrokenSealError):
                    yield path


class _Record(Protocol):
    @property
    def id(self) -> str: ...

    @property
    def created_at(self) -> datetime: ...

    @classmethod
    def model_validate_json(cls, json_data: bytes) -> Self: ...

    def model_dump_json(self, *, indent: int | None = None) -> str: ...


Record = TypeVar("Record", bound=_Record)


class RecordFolder(Generic[Record]):
    """Records of one kind in a folder, which the first makes; a class of a kind says what they are."""

    model: type[Record]
    kind: ClassVar[str]
    not_found: ClassVar[type[RecordNotFoundError]]
    error: ClassVar[type[ServiceError]]
    other_files: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files: dict[str, SealedFile[Record]] = {}

    def keep(self, record: Record, *, indent: int | None = None) -> None:
        """Keep a record."""
        self.begin(record.id)
        write_sealed(self.file(record.id), record.model_dump_json(indent=indent))

    def begin(self, record_id: str) -> None:
        """Make the folder of a new record."""
        if self.file(record_id).exists():
            raise self.error(f"{self.kind} '{record_id}' exists: records are never changed")
        make_folder(self.path)

    def get(self, record_id: str) -> Record:
        """Read a record, again only where its file was replaced."""
        file = self._files.get(record_id)
        if file is None:
            file = SealedFile(self.file(record_id), self.model.model_validate_json)
        try:
            record = file.read()
            if record.id != record_id:
                raise BrokenSealError(f"it is that of {self.kind} '{record.id}'")
        except (OSError, BrokenSealError) as error:
            raise self.damaged(record_id, is_former=isinstance(error, OtherFormError)) from error
        self._files[record_id] = file
        return record

    def damaged(self, record_id: str, *, is_former: bool = False) -> ServiceError:
        """The error of a record that cannot be read, or is of a form that is not read any more."""
        remedy = remedy_of(self.path.parent, self.file(record_id))
        state = "of a form that is not read any more" if is_former else "missing or damaged"
        return self.error(f"{self.kind} '{record_id}' is {state}: ", remedy)

    def find(self, record_id: str) -> Record:
        """Find a record that somebody asks for by its id."""
        file = self.file(record_id)
        if not _ID.fullmatch(record_id) or file.name in self.other_files or not file.is_file():
            raise self.not_found(self.path.parent.name, record_id)
        return self.get(record_id)

    def history(self, *, passes_over_damaged: bool = False) -> list[Record]:
        """All records, newest first; damaged ones are logged where they are passed over, as those of a form
        always are that is not read any more.
        """
        found = []
        for file in self.path.glob("*.json"):
            try:
                found += [] if file.name in self.other_files else [self.get(file.stem)]
            except self.error as error:
                if not passes_over_damaged and not isinstance(error.__cause__, OtherFormError):
                    raise
                logger.warning("%s", error)
        return sorted(found, key=lambda one: (one.created_at, one.id), reverse=True)

    def file(self, record_id: str, suffix: str = ".json") -> Path:
        """A file of a record."""
        return self.path / f"{Path(record_id).name}{suffix}"
