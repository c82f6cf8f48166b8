"""Records of duplicates: immutable files of a gallery, of which the newest are kept.

<gallery>/duplicates/<id>.json    one record each
"""

from __future__ import annotations

import re

from vicinal.indexer.gallery import Gallery
from vicinal.indexer.storage.files import make_folder, read_sealed, write_sealed
from vicinal.service.duplicates.record import DuplicateRecord, DuplicateSummary
from vicinal.service.errors import DuplicatesNotFoundError

_ID = re.compile(r"[\w-][\w.-]{0,63}")
_MOST_KEPT = 10


class DuplicateStore:
    """Records of one gallery.

    Args:
        gallery: The gallery.
    """

    def __init__(self, gallery: Gallery) -> None:
        self.gallery = gallery
        self.path = gallery.path / "duplicates"

    def keep(self, record: DuplicateRecord) -> None:
        """Keep a record, and remove the oldest ones beyond the ten newest."""
        make_folder(self.path)
        write_sealed(self.path / f"{record.id}.json", record.model_dump_json())
        # Ids sort by time.
        for file in sorted(self.path.glob("*.json"))[:-_MOST_KEPT]:
            file.unlink(missing_ok=True)

    def find(self, record_id: str) -> DuplicateRecord:
        """One record."""
        if not _ID.fullmatch(record_id):
            raise DuplicatesNotFoundError(self.gallery.name, record_id)
        try:
            return DuplicateRecord.model_validate_json(read_sealed(self.path / f"{record_id}.json"))
        except (OSError, ValueError) as error:
            raise DuplicatesNotFoundError(self.gallery.name, record_id) from error

    def summaries(self) -> list[DuplicateSummary]:
        """All records without their groups, newest first; damaged ones are passed over."""
        found = []
        for file in sorted(self.path.glob("*.json"), reverse=True):
            try:
                found.append(self.find(file.stem).summary)
            except DuplicatesNotFoundError:
                continue
        return found
