"""Older files of a gallery: all that they say of what is searched, removed and set aside is in its rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from vicinal.indexer.errors import StorageError
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.set_aside import bring_back, listed_aside
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.state import state_of
from vicinal.indexer.storage.files import identity_of, known_word, write_sealed
from vicinal.indexer.storage.removals import Removal

ACTIVE = {
    "version": 1,
    "revision": 2,
    "next_number": 40,
    "token": "0123456789abcdef",
    "revisions": {"3": 1},
    "calibrated_as": 4,
    "calibrated": {"2": 0},
    "last_version": 5,
}


def digest(content: int) -> str:
    return f"{content:064x}"


def written(path: Path, fields: dict[str, object]) -> None:
    path.parent.mkdir(exist_ok=True)
    write_sealed(path, json.dumps(fields))


@pytest.fixture
def old(live_gallery: Gallery, rows: Callable[..., pa.Table], unit: Callable[..., object]) -> Gallery:
    """A gallery as it lay on the disk before there were rows."""
    folder = live_gallery.path
    state_of(folder).path.unlink()
    for name in ("active.json", "active.copy.json"):
        written(folder / name, ACTIVE)
    written(folder / "identity.json", {"identity": "abc"})
    written(folder / "engines.json", {"owner": "def"})
    removed = [["a", digest(1), "/photos", "a.jpg", 7, 100], ["b", digest(1), None, "b", None, None]]
    written(folder / "removed" / "000000000001-x.json", {"changes": [{"removed": removed}]})
    changes = [{"dropped": [["a", digest(1)]]}, {"removed": [["c", digest(2), "/photos", "c", 1, 1, False]]}]
    written(folder / "removed" / "000000000002-x.json", {"changes": changes})
    row = rows(["100"], unit(1, seed=9))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, row.schema) as stream:
        stream.write_table(row)
    content = bytes(sink.getvalue())
    sha256 = row["content_sha256"][0].as_py().hex()
    key = hashlib.sha256(f"{sha256} 100".encode()).hexdigest()[:32]
    said = {"id": "100", "label": None, "uri": "100.jpg", "metadata": {}, "reason": "two things", "by": "eve"}
    bound = {"bundle": "0123456789abcdef", "content_sha256": sha256, "instead": "1", "carried": {}}
    at = {"at": "2026-05-04T03:02:01+00:00", "row_sha256": hashlib.sha256(content).hexdigest()}
    written(folder / "set-aside" / f"{key}.json", {**said, **bound, **at})
    (folder / "set-aside" / f"{key}.arrow").write_bytes(content)
    return Gallery(folder)


def test_what_older_files_say_is_known(old: Gallery) -> None:
    activation = old.activation
    assert activation is not None
    assert (activation.revision, activation.token, activation.last_version) == (2, ACTIVE["token"], 5)
    assert (activation.revisions, activation.calibrated) == ({3: 1}, {2: 0})
    assert (identity_of(old.path), known_word(old.path, "engine")) == ("abc", "def")
    items = old.removals.read().items
    assert sorted(items) == ["100", "b", "c"]
    assert list(items["b"].values()) == [
        Removal("b", bytes.fromhex(digest(1)), None, "b", None, None, follows_content=False)
    ]
    assert [one.follows_content for one in items["c"].values()] == [False]
    reader = GalleryReader(old)
    (aside,) = listed_aside(reader)
    assert (aside.id, aside.reason, aside.by, aside.instead) == ("100", "two things", "eve", "1")
    assert aside.at.isoformat() == "2026-05-04T03:02:01+00:00"
    assert bring_back(reader, "100").outcomes == ("added",)
    assert (old.path / "active.json").exists()


def test_older_files_do_not_come_back_for_a_file_that_is_lost(old: Gallery) -> None:
    if (state := state_of(old.path)).shared is not None:
        pytest.skip("files of SQLite are of one machine")
    assert old.activation is not None
    state.path.unlink()
    with pytest.raises(StorageError, match="missing: bring it back from a backup"), state.reading():
        pass


def test_what_is_damaged_of_them_is_told_and_left_out(old: Gallery, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("active.json", "identity.json", "removed/000000000001-x.json"):
        (old.path / name).write_text("{}")
    activation = old.activation
    assert activation is not None
    assert activation.token == ACTIVE["token"]
    assert sorted(old.removals.read().items) == ["100", "c"]
    assert sum("is damaged" in record.message for record in caplog.records) == 3
    assert known_word(old.path, "identity") is None
