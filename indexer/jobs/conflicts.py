"""Conflicts: what becomes of an image whose id is taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from vicinal.indexer.gallery import Gallery
from vicinal.indexer.views.view import GalleryView

# What to do with an image whose id belongs to another image.
OnConflict = Literal["error", "replace", "skip"]
# `unchanged`: this very image is there under this id. `skipped` and `refused`: another image is.
Outcome = Literal["added", "replaced", "unchanged", "skipped", "refused"]


def outcomes_of(
    ids: Sequence[str], digests: Sequence[bytes], held: Mapping[str, bytes], on_conflict: OnConflict
) -> list[Outcome]:
    """What becomes of each image, as if they came one by one.

    An image that is there already under its id is `unchanged` and no conflict, so that whoever did not get
    an answer can send it again. With `replace` it is written all the same: its label may be another one.

    Args:
        digests: n SHA-256 digests of the images' files.
        on_conflict: What to do when another image has the id.
    """
    present = dict(held)
    outcomes: list[Outcome] = []
    for item_id, digest in zip(ids, digests, strict=True):
        outcome = _outcome(present.get(item_id), digest, on_conflict)
        if outcome in ("added", "replaced"):
            present[item_id] = digest
        outcomes.append(outcome)
    return outcomes


def digests_of(gallery: Gallery, view: GalleryView, ids: Sequence[str]) -> dict[str, bytes]:
    """SHA-256 digest of the file of each item that is there, by id."""
    positions = view.positions(ids)
    if (positions < 0).all():
        return {}
    sequences = view.sequences(positions[positions >= 0])
    rows = gallery.table.rows(view.revision, sequences, ["id", "content_sha256"])
    return dict(zip(rows["id"].to_pylist(), rows["content_sha256"].to_pylist(), strict=True))


def _outcome(held: bytes | None, digest: bytes, on_conflict: OnConflict) -> Outcome:
    if held is None:
        return "added"
    if on_conflict == "replace":
        return "replaced"
    if held == digest:
        return "unchanged"
    return "skipped" if on_conflict == "skip" else "refused"
