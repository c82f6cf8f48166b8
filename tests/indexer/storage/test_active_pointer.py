"""Active pointer: its file has the fields it always had, whatever the class is like."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from vicinal.indexer.errors import GalleryBusyError, GalleryError
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.storage.files import file_lock, read_sealed, write_sealed

FIELDS = {
    "version": 4,
    "revision": 9,
    "next_number": 41,
    "token": "0123456789abcdef",
    "revisions": {"2": 3},
    "calibrated_as": 4,
    "calibrated": {"2": 0},
    "last_version": 5,
}


def _stored(gallery: Gallery) -> dict[str, object]:
    return dict(json.loads(read_sealed(gallery.path / "active.json")))


def test_the_file_has_the_documented_fields(live_gallery: Gallery) -> None:
    assert list(_stored(live_gallery)) == list(FIELDS)


def test_what_is_written_is_what_was_read(live_gallery: Gallery) -> None:
    write_sealed(live_gallery.path / "active.json", json.dumps(FIELDS))
    activation = live_gallery.activation
    assert activation is not None
    assert json.loads(json.dumps(asdict(activation))) == FIELDS


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"version": 2', json.dumps(FIELDS)])
def test_a_damaged_file_is_refused(live_gallery: Gallery, content: str) -> None:
    (live_gallery.path / "active.json").write_text(content)
    with pytest.raises(GalleryError, match=r"active\.json' is damaged"):
        _ = live_gallery.activation


def test_a_lock_says_who_holds_it_and_is_free_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "some.lock"
    with (
        file_lock(path, "busy"),
        pytest.raises(GalleryBusyError, match="held by another"),
        file_lock(path, "held by another", patience=0.05),
    ):
        pass
    with file_lock(path, "busy"):
        assert path.exists()
