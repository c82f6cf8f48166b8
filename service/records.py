"""Records of a gallery: rows that are never changed, and what to do about damaged ones."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import ClassVar, Generic, Protocol, Self, TypeVar

from pydantic import ValidationError
from sqlalchemy import ColumnElement

from vicinal.calibration.advice import Advice, Names, advise, own_names
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.state import DamagedRowError, Rows, schema, state_of
from vicinal.indexer.state.schema import attachments, documents
from vicinal.indexer.storage.files import broken_tags
from vicinal.service.errors import RecordNotFoundError, ServiceError

logger = logging.getLogger(__name__)
_ID = re.compile(r"[\w-][\w.-]{0,63}")
# What to do, by the kind of a document or the table of a row.
_REMEDIES = {
    "beside": "fit again, or {forget_fit()}",
    "calibration": "calibrate again, or put another one in force by {activate()}",
    "check": "check again by {check()}",
    "comparison": "compare again by {compare()}",
    "duplicates": "look for them again by {duplicates()}",
    "metric": "calibrate again",
    "pipeline": "let the settings choose again by {use_settings()}",
    "labelling": "begin anew by {label_anew()}",
    "report": "the gallery is searched as before",
    **dict.fromkeys(schema.GALLERY.tables, "it is left out"),
    "removals": "bring it back from a backup",
    "activations": "put a calibration in force again by {activate()}",
}
_BACKUP = "bring it back from a backup, or index the gallery again"


def remedy_of_row(gallery: Path, kind: str) -> Advice:
    """Advice where a document of a kind, or a row of a table of that name, is damaged."""
    return advise(_REMEDIES.get(kind, _BACKUP), gallery=gallery.name)


def damaged_records(gallery: Gallery, names: Names = own_names) -> list[str]:
    """Damaged rows and files of a gallery, each with what to do; the rest is for `check_version`."""
    lines = [f"'{path}' is damaged: {_BACKUP}" for path in broken_tags(gallery.path)]
    for damage in state_of(gallery.path).damaged():
        is_document = damage.table in (documents.name, attachments.name)
        remedy = remedy_of_row(gallery.path, damage.row["kind"] if is_document else damage.table)
        if damage.table == schema.moves.name:
            remedy = gallery.pointer.remedy
        lines.append(f"{damage}: {remedy.said(names)}")
    return lines


class _Record(Protocol):
    @property
    def id(self) -> str: ...

    @property
    def created_at(self) -> datetime: ...

    @classmethod
    def model_validate_json(cls, json_data: str) -> Self: ...

    def model_dump_json(self) -> str: ...


Record = TypeVar("Record", bound=_Record)


class Records(Generic[Record]):
    """Records of one kind of the gallery in a folder; a class of a kind says what they are."""

    model: type[Record]
    # Of its documents; in words it is that of `not_found`.
    kind: ClassVar[str]
    not_found: ClassVar[type[RecordNotFoundError]]
    error: ClassVar[type[ServiceError]]

    def __init__(self, gallery: Path) -> None:
        self.gallery = gallery
        self.state = state_of(gallery)
        self._known: dict[str, Record] = {}

    def keep(self, record: Record, attached: Mapping[str, bytes] | None = None) -> None:
        """Keep a record, and bytes beside it by name."""
        with self.state.changing() as rows:
            self.keep_in(rows, record, attached)

    def keep_in(self, rows: Rows, record: Record, attached: Mapping[str, bytes] | None = None) -> None:
        """The same as a part of a transaction."""
        if rows.has(documents, *self._is(record.id)):
            raise self.error(f"{self.not_found.kind} '{record.id}' exists: records are never changed")
        name = {"kind": self.kind, "id": record.id}
        rows.add(
            documents, {**name, "at": record.created_at.timestamp(), "content": record.model_dump_json()}
        )
        rows.add(
            attachments, *({**name, "name": one, "content": what} for one, what in (attached or {}).items())
        )

    def get(self, record_id: str) -> Record:
        """Read a record; it stays in memory, because it never changes."""
        if record_id in self._known:
            return self._known[record_id]
        with self.state.reading() as rows:
            return self._read(rows, record_id)

    def find(self, record_id: str) -> Record:
        """Find a record that somebody asks for by its id."""
        with self.state.reading() as rows:
            if not _ID.fullmatch(record_id) or not rows.has(documents, *self._is(record_id)):
                raise self.not_found(self.gallery.name, record_id)
            return self._read(rows, record_id)

    def history(self, *, passes_over_damaged: bool = False) -> list[Record]:
        """All records, newest first; damaged ones are logged where they are passed over, as those of a form
        always are that is not read any more.
        """
        found = []
        with self.state.reading() as rows:
            for record_id in self.ids(rows):
                try:
                    found.append(self._read(rows, record_id))
                except self.error as error:
                    if not passes_over_damaged and not isinstance(error.__cause__, ValidationError):
                        raise
                    logger.warning("%s", error)
        return found

    def ids(self, rows: Rows) -> list[str]:
        """Ids of all records, newest first."""
        newest = [documents.c.at.desc(), documents.c.id.desc()]
        return rows.values(documents.c.id, documents.c.kind == self.kind, order_by=newest)

    def attached(self, record_id: str, name: str) -> bytes | None:
        """The bytes of a name beside a record; None where there are none."""
        where = attachments.c.kind == self.kind, attachments.c.id == record_id, attachments.c.name == name
        try:
            with self.state.reading() as rows:
                found = rows.first(attachments, *where)
        except DamagedRowError as error:
            raise self.error(
                f"the {name} of {self.not_found.kind} '{record_id}' are damaged: ",
                remedy_of_row(self.gallery, self.kind),
            ) from error
        return None if found is None else bytes(found.content)

    def _is(self, record_id: str) -> tuple[ColumnElement[bool], ...]:
        return documents.c.kind == self.kind, documents.c.id == record_id

    def _read(self, rows: Rows, record_id: str) -> Record:
        if record_id in self._known:
            return self._known[record_id]
        try:
            row = rows.first(documents, *self._is(record_id))
        except DamagedRowError as error:
            raise self._damaged(record_id) from error
        if row is None:
            raise self._damaged(record_id)
        try:
            record = self.model.model_validate_json(row.content)
        except ValidationError as error:
            raise self._damaged(record_id, "of a form that is not read any more") from error
        self._known[record_id] = record
        return record

    def _damaged(self, record_id: str, state: str = "missing or damaged") -> ServiceError:
        remedy = remedy_of_row(self.gallery, self.kind)
        return self.error(f"{self.not_found.kind} '{record_id}' is {state}: ", remedy)
