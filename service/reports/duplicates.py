"""Page of duplicates: each group side by side, the kept photo first."""

from __future__ import annotations

from typing import NamedTuple

from vicinal.indexer.gallery import Gallery
from vicinal.service.duplicates.record import DuplicateItem, DuplicateRecord
from vicinal.service.reports.examples import embed_thumbnails
from vicinal.service.reports.page import render_page

# A page that a browser still scrolls well.
_MOST_GROUPS = 200
_MOST_SHOWN = 11
_MOST_BYTES = 20_000_000


class _Shown(NamedTuple):
    item: DuplicateItem
    picture: str | None


def render_duplicates(record: DuplicateRecord, gallery: Gallery) -> str:
    """The page of a record."""
    shown = [[group.kept, *group.copies[:_MOST_SHOWN]] for group in record.groups[:_MOST_GROUPS]]
    ids = [one.id for items in shown for one in items]
    # The revision that was looked at may be cleaned up by now.
    active = gallery.activation
    revision = record.revision if active is None else active.revision
    pictures = iter(embed_thumbnails(gallery, revision, ids, most_bytes=_MOST_BYTES))
    groups = [
        ([_Shown(one, next(pictures)) for one in items], len(group.copies) + 1 - len(items))
        for items, group in zip(shown, record.groups, strict=False)
    ]
    return render_page(
        "duplicates.html", record=record, groups=groups, n_left_out=len(record.groups) - len(groups)
    )
