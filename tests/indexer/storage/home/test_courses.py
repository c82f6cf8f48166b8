"""Courses of events: replicas that die, sleep and lose their home at any step, and what must hold then."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.indexer.storage.home import galleries
from tests.indexer.storage.home.replicas import (
    Course,
    Replica,
    entries_of,
    files_in,
    listing_of,
    playing,
    require_fenced,
)
from tests.indexer.storage.home.shops import Journal, Shop, begin, program, requests_of, send, settle
from vicinal.indexer.storage.home.laying import NotFetchedError
from vicinal.indexer.storage.home.leases import Leases
from vicinal.indexer.storage.home.mirror import Mirror

N_COURSES, N_REQUESTS = 200, 15


def play(folder: Path, seed: int) -> tuple[Course, Journal]:
    """Play a course, and hold it to what was promised."""
    course, journal = Course(folder, seed), Journal()
    with playing(course):
        names = ("a", "b", "c")[: 2 + seed % 2]
        course.replicas = [Replica(course, name, program(journal, N_REQUESTS, send)) for name in names]
        begin(course.replicas[0].open())
        course.run()
        mirrors = settle(course)
        require_kept(course, mirrors, journal)
    return course, journal


def play_with_galleries(folder: Path, seed: int) -> tuple[Course, Journal]:
    """Play a course with a real gallery."""
    course, journal = Course(folder, seed), Journal()
    with playing(course):
        names = ("a", "b", "c")[: 2 + seed % 2]
        course.replicas = [Replica(course, name, program(journal, 12, galleries.send)) for name in names]
        first = galleries.begin(course.replicas[0].open())
        course.run()
        mirrors = settle(course)
    assert journal.tears == []
    entries = entries_of(course)
    require_fenced(entries)
    for one in mirrors:
        assert files_in(one.data_dir) == listing_of(entries)
        found = galleries.ids_of(galleries.gallery_of(one))
        assert len(set(found)) == len(found)
        assert {*first, *journal.added} - journal.deletions <= set(found) <= {*first, *journal.tried}
        assert not journal.deleted & set(found)
    return course, journal


def require_kept(course: Course, mirrors: list[Mirror], journal: Journal) -> None:
    assert journal.tears == []
    entries = entries_of(course)
    require_fenced(entries)
    expected = listing_of(entries)
    for one in mirrors:
        assert files_in(one.data_dir) == expected
    folders = sorted({place.split("/")[1] for place in expected if place.startswith("galleries/")})
    shops = [Shop(mirrors[0].data_dir / "galleries" / name, mirrors[0]) for name in folders]
    assert len(shops) == 1
    found = requests_of(shops)
    assert len(set(found["items"])) == len(found["items"])
    assert journal.added - journal.deletions <= set(found["items"]) <= journal.tried
    assert not journal.deleted & set(found["items"])
    assert {name: found["records"].get(name) for name in journal.records} == journal.records
    assert len(set(found["active"])) == len(found["active"])
    assert set(journal.activated) <= set(found["active"])


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_lost_in_a_course(tmp_path: Path, seed: int) -> None:
    course, journal = play(tmp_path, seed)
    assert min(course.deaths, course.faults, journal.n_answered) > 0


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_nothing_is_lost_and_nothing_comes_twice(tmp_path: Path, block: int) -> None:
    deaths = faults = naps = answered = 0
    for seed in range(4 + block, N_COURSES, 10):
        course, journal = play(tmp_path / str(seed), seed)
        deaths, faults, naps = deaths + course.deaths, faults + course.faults, naps + course.naps
        answered += journal.n_answered
    assert min(deaths, faults, naps, answered) > 20


@pytest.mark.slow
def test_real_galleries_come_through(tmp_path: Path) -> None:
    played = [play_with_galleries(tmp_path / str(seed), seed) for seed in range(3)]
    assert sum(course.deaths for course, _ in played) > 0
    assert sum(journal.n_answered for _, journal in played) > 20


@pytest.mark.slow
def test_without_fencing_something_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: a writer that lost its lease goes on."""
    monkeypatch.setattr(Leases, "_require_valid", lambda *_: None)
    broken = 0
    for seed in range(20):
        try:
            play(tmp_path / str(seed), seed)
        except (AssertionError, NotFetchedError):
            broken += 1
    assert broken > 0
