"""Courses of events: replicas that die, sleep and lose their home at any step, and what must hold then."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.indexer.storage.home import galleries
from tests.indexer.storage.home.replicas import Course, Replica, empty, files_in, listing_of, playing
from tests.indexer.storage.home.shops import Journal, begin, items_of, program, send, settle
from vicinal.indexer.state import Database
from vicinal.indexer.state.database import postgres as postgres_at
from vicinal.indexer.storage.home.laying import NotFetchedError
from vicinal.indexer.storage.home.leases import Leases
from vicinal.indexer.storage.home.mirror import Mirror

N_COURSES, N_REQUESTS = 200, 12
# Of those that are always played.
N_SHORT, N_FEW = 10, 4


@pytest.fixture
def database(postgres_url: str) -> Iterator[Database]:
    made = postgres_at(postgres_url)
    yield made
    made.close()


def play(folder: Path, seed: int, database: Database, n_requests: int = N_REQUESTS) -> tuple[Course, Journal]:
    """Play a course, and hold it to what was promised."""
    empty(database)
    course, journal = Course(folder, seed, database), Journal()
    with playing(course):
        names = ("a", "b", "c")[: 2 + seed % 2]
        course.replicas = [Replica(course, name, program(journal, n_requests, send)) for name in names]
        begin(course.replicas[0].open())
        course.run()
        mirrors = settle(course)
        require_alike(course, mirrors, journal)
        found = items_of(mirrors[0])
    assert len(set(found)) == len(found)
    assert journal.added - journal.deletions <= set(found) <= journal.tried
    assert not journal.deleted & set(found)
    return course, journal


def play_with_galleries(folder: Path, seed: int, database: Database) -> tuple[Course, Journal]:
    """Play a course with a real gallery."""
    empty(database)
    course, journal = Course(folder, seed, database), Journal()
    with playing(course):
        names = ("a", "b", "c")[: 2 + seed % 2]
        course.replicas = [Replica(course, name, program(journal, 12, galleries.send)) for name in names]
        first = galleries.begin(course.replicas[0].open())
        course.run()
        mirrors = settle(course)
        require_alike(course, mirrors, journal)
        for one in mirrors:
            found = galleries.ids_of(galleries.gallery_of(one))
            assert len(set(found)) == len(found)
            assert {*first, *journal.added} - journal.deletions <= set(found) <= {*first, *journal.tried}
            assert not journal.deleted & set(found)
    return course, journal


def require_alike(course: Course, mirrors: list[Mirror], journal: Journal) -> None:
    """Nothing was torn at any time, and in the end all hold what the database lists."""
    assert journal.tears == []
    expected = listing_of(course.database)
    for one in mirrors:
        assert files_in(one.data_dir) == expected


def test_nothing_is_lost_in_a_course(tmp_path: Path, database: Database) -> None:
    deaths = faults = answered = 0
    for seed in range(N_SHORT):
        course, journal = play(tmp_path / str(seed), seed, database, N_FEW)
        deaths, faults = deaths + course.deaths, faults + course.faults
        answered += journal.n_answered
    assert min(deaths, faults, answered) > 5


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_nothing_is_lost_and_nothing_comes_twice(tmp_path: Path, block: int, database: Database) -> None:
    deaths = faults = naps = answered = 0
    for seed in range(block, N_COURSES, 10):
        course, journal = play(tmp_path / str(seed), seed, database)
        deaths, faults, naps = deaths + course.deaths, faults + course.faults, naps + course.naps
        answered += journal.n_answered
    assert min(deaths, faults, naps, answered) > 5


@pytest.mark.slow
def test_real_galleries_come_through(tmp_path: Path, database: Database) -> None:
    played = [play_with_galleries(tmp_path / str(seed), seed, database) for seed in range(3)]
    assert sum(course.deaths for course, _ in played) > 0
    assert sum(journal.n_answered for _, journal in played) > 20


@pytest.mark.slow
def test_without_fencing_something_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database: Database
) -> None:
    """Negative control: a writer that lost its lease goes on."""
    monkeypatch.setattr(Leases, "require_valid", lambda *_: None)
    broken = 0
    for seed in range(20):
        try:
            play(tmp_path / str(seed), seed, database)
        except (AssertionError, NotFetchedError):
            broken += 1
    assert broken > 0
