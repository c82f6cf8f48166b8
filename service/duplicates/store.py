"""Records of duplicates: immutable `<gallery>/duplicates/<id>.json`, of which the newest are kept."""

from __future__ import annotations

from vicinal.indexer.gallery import Gallery
from vicinal.service.duplicates.record import DuplicateRecord
from vicinal.service.errors import DuplicatesNotFoundError
from vicinal.service.records import RecordFolder

_MOST_KEPT = 10


class DuplicateStore(RecordFolder[DuplicateRecord]):
    """Records of one gallery."""

    model, kind = DuplicateRecord, "record of duplicates"
    not_found = error = DuplicatesNotFoundError

    def __init__(self, gallery: Gallery) -> None:
        super().__init__(gallery.path / "duplicates")

    def keep_newest(self, record: DuplicateRecord) -> None:
        """Keep a record, and remove the oldest ones beyond the ten newest."""
        # An attempt before this one may have kept it.
        self.file(record.id).unlink(missing_ok=True)
        self.keep(record)
        # Ids sort by time.
        for file in sorted(self.path.glob("*.json"))[:-_MOST_KEPT]:
            file.unlink(missing_ok=True)

    def damaged(self, record_id: str) -> DuplicatesNotFoundError:
        """The error of a record that cannot be read: it is no more."""
        return DuplicatesNotFoundError(self.path.parent.name, record_id)
