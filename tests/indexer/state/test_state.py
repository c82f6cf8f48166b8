"""State: rows of a gallery, alike in SQLite and in PostgreSQL."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.postgres_server import PostgresServer
from vicinal.indexer.errors import DamagedGalleryError, GalleryError, StorageError
from vicinal.indexer.state import DamagedRowError, DatabaseAwayError, Rows, State, server_state, state_of
from vicinal.indexer.state.database import MIGRATIONS
from vicinal.indexer.state.database import postgres as postgres_at
from vicinal.indexer.state.schema import attachments, documents, facts
from vicinal.indexer.state.state import Cached, copy_rows, shared_state, use_database

DOCUMENT = {"kind": "calibration", "id": "c1", "at": 1.5, "content": "{}"}


def fail_in(state: State) -> None:
    with state.changing() as rows:
        rows.remove(documents)
        raise ZeroDivisionError


def ids(rows: Rows) -> list[str]:
    return rows.values(documents.c.id, order_by=[documents.c.id])


def test_what_one_transaction_adds_the_next_one_reads(galleries: Path) -> None:
    state = state_of(galleries / "shoes")
    with state.reading() as rows:
        assert not state.exists
        assert ids(rows) == []
    with state.changing() as rows:
        rows.add(documents, DOCUMENT, {**DOCUMENT, "id": "c2", "at": 2.0})
        rows.add(attachments, {"kind": "calibration", "id": "c1", "name": "scores", "content": b"\0\1"})
    with state.reading() as rows:
        first = rows.first(documents, documents.c.id == "c1")
        assert first is not None
        assert (first.at, first.content) == (1.5, "{}")
        assert rows.all(attachments)[0].content == b"\0\1"
        assert [one.id for one in rows.all(documents, order_by=[documents.c.at.desc()])] == ["c2", "c1"]
        assert rows.count(documents) == 2
        assert rows.has(documents, documents.c.id == "c2")
    assert state.exists


def test_nothing_stays_of_a_transaction_that_fails(galleries: Path) -> None:
    state = state_of(galleries / "shoes")
    with state.changing() as rows:
        rows.add(documents, DOCUMENT)
    with pytest.raises(ZeroDivisionError):
        fail_in(state)
    with state.reading() as rows:
        assert ids(rows) == ["c1"]


def test_rows_are_put_changed_and_removed(galleries: Path) -> None:
    state = state_of(galleries / "shoes")
    with state.changing() as rows:
        rows.put(documents, DOCUMENT)
        rows.put(documents, {**DOCUMENT, "content": "[]"})
        rows.put(documents, {**DOCUMENT, "content": "kept out"}, keep=True)
        assert [one.content for one in rows.all(documents)] == ["[]"]
        assert rows.change(documents, documents.c.kind == "calibration", content="{1}") == 1
        assert [one.content for one in rows.all(documents)] == ["{1}"]
        rows.remove_each(documents.c.id, [str(number) for number in range(1200)] + ["c1"])
        assert ids(rows) == []


def test_a_number_is_never_given_twice(galleries: Path) -> None:
    state = state_of(galleries / "shoes")
    with state.changing() as rows:
        assert [rows.next_number("answer") for _ in range(3)] == [1, 2, 3]
    with state.changing() as rows:
        assert (rows.next_number("answer"), rows.next_number("move")) == (4, 1)


def test_galleries_do_not_see_each_other(galleries: Path) -> None:
    for name in ("boots", "shoes"):
        with state_of(galleries / name).changing() as rows:
            rows.add(documents, {**DOCUMENT, "id": name})
    with state_of(galleries / "boots").changing() as rows:
        assert ids(rows) == ["boots"]
        rows.remove(documents)
    with state_of(galleries / "shoes").reading() as rows:
        assert ids(rows) == ["shoes"]


def test_a_changed_row_is_an_error_or_told(galleries: Path) -> None:
    state = state_of(galleries / "shoes")
    with state.changing() as rows:
        rows.add(documents, DOCUMENT, {**DOCUMENT, "id": "c2"})
        rows.connection.execute(documents.update().where(documents.c.id == "c1").values(at=1.25))
    told: list[DamagedRowError] = []
    with state.changing() as rows:
        assert [one.id for one in rows.all(documents, on_damage=told.append)] == ["c2"]
        with pytest.raises(DamagedRowError, match="kind='calibration', id='c1'"):
            rows.all(documents)
        with pytest.raises(DamagedRowError):
            rows.change(documents, documents.c.id == "c1", content="[]")
    assert [one.row["id"] for one in told] == [one.row["id"] for one in state.damaged()] == ["c1"]


def test_what_was_read_is_read_again_after_a_change(galleries: Path) -> None:
    state, read = state_of(galleries / "shoes"), []

    def count(rows: Rows) -> int:
        read.append(1)
        return rows.count(documents)

    cached = Cached(state, count)
    assert cached.get() == 0
    with state.changing() as rows:
        rows.add(documents, DOCUMENT)
    assert cached.get() == 1
    if (shared := shared_state(galleries.parent)) is not None:
        shared.is_followed = True
        shared.follow()
        cached.get()
        n_read = len(read)
        assert (cached.get(), len(read)) == (1, n_read)
        with state.changing() as rows:
            rows.remove(documents)
        assert (cached.get(), shared.follow()) == (0, set())


def test_what_is_only_noted_changes_no_stamp_of_a_shared_database(galleries: Path) -> None:
    state = state_of(galleries / "shoes")
    with state.noting() as rows:
        rows.add(documents, DOCUMENT)
    before = state.stamp()
    with state.noting() as rows:
        rows.add(documents, {**DOCUMENT, "id": "c2"})
    with state.reading() as rows:
        assert ids(rows) == ["c1", "c2"]
    assert shared_state(galleries.parent) is None or state.stamp() == before is not None


def test_where_nothing_was_kept_every_thread_reads_nothing(tmp_path: Path) -> None:
    def read() -> list[str]:
        with state_of(tmp_path / "shoes").reading() as rows:
            return ids(rows)

    with ThreadPoolExecutor(2) as pool:
        assert read() == pool.submit(read).result() == []


def test_writers_of_a_gallery_wait_for_each_other(galleries: Path) -> None:
    state = state_of(galleries / "shoes")

    def add() -> None:
        for _ in range(20):
            with state.changing() as rows:
                number = rows.next_number("document")
                rows.add(documents, {**DOCUMENT, "id": str(number)})

    threads = [threading.Thread(target=add) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    with state.reading() as rows:
        assert sorted(map(int, ids(rows))) == list(range(1, 81))


def test_a_folder_elsewhere_has_a_file_of_its_own_that_rows_are_copied_to(galleries: Path) -> None:
    state = state_of(galleries / "shoes")
    with state.changing() as rows:
        rows.add(documents, DOCUMENT)
        rows.next_number("answer")
    copy = state_of(galleries / ".aside" / "new")
    copy_rows(state, copy)
    assert (galleries / ".aside" / "new" / "gallery.db").exists()
    with copy.changing() as rows:
        assert ids(rows) == ["c1"]
        assert rows.next_number("answer") == 2


def test_a_gallery_that_was_removed_comes_back_empty(galleries: Path) -> None:
    state = state_of(galleries / "shoes")
    with state.changing() as rows:
        rows.add(documents, DOCUMENT)
    state.remove()
    shutil.rmtree(galleries / "shoes", ignore_errors=True)
    assert not state.exists
    with state.changing() as rows:
        assert ids(rows) == []


def test_a_server_has_rows_of_its_own(galleries: Path) -> None:
    with server_state(galleries.parent).changing() as rows:
        assert rows.count(facts) == 0


def test_a_damaged_file_is_told(tmp_path: Path) -> None:
    state = state_of(tmp_path / "shoes")
    with state.changing() as rows:
        rows.add(documents, *({**DOCUMENT, "id": str(n), "content": "x" * 500} for n in range(100)))
    content = bytearray(state.path.read_bytes())
    content[8192:] = bytes(len(content) - 8192)
    state.path.unlink()
    state.path.write_bytes(content)
    with pytest.raises(DamagedGalleryError, match="backup"), state.reading() as rows:
        rows.all(documents)


def test_a_file_of_a_newer_release_is_refused(tmp_path: Path) -> None:
    state = state_of(tmp_path / "shoes")
    with state.changing() as rows:
        rows.add(documents, DOCUMENT)
    with sqlite3.connect(state.path) as file:
        file.execute("update schema_version set number = ?", [len(MIGRATIONS) + 1])
    shutil.move(tmp_path / "shoes", tmp_path / "boots")
    with pytest.raises(GalleryError, match="newer"), state_of(tmp_path / "boots").reading():
        pass


def test_a_folder_that_cannot_be_written_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = state_of(tmp_path / "shoes")
    with state.changing() as rows:
        rows.add(documents, DOCUMENT)
    monkeypatch.setattr("os.access", lambda *_: False)
    with state.reading() as rows:
        assert ids(rows) == ["c1"]
    with pytest.raises(StorageError, match="readonly"), state.changing() as rows:
        rows.remove(documents)


def test_a_database_that_is_away_is_told_without_its_password(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    database = postgres_at(postgres.new_database())
    use_database(tmp_path, database)
    state = state_of(tmp_path / "galleries" / "shoes")
    with state.changing() as rows:
        rows.add(documents, DOCUMENT)
    postgres.stop()
    with pytest.raises(DatabaseAwayError) as told, state.changing() as rows:
        rows.remove(documents)
    postgres.start()
    assert "does not answer" in str(told.value)
    assert "nobody-may-see" not in str(told.value)
    with state.reading() as rows:
        assert ids(rows) == ["c1"]
    use_database(tmp_path, None)
    database.close()


@pytest.mark.parametrize("address", ["sqlite:///x.db", "shop", "mysql://a/b"])
def test_another_address_is_refused(address: str) -> None:
    with pytest.raises(GalleryError, match="postgresql://"):
        postgres_at(address)
