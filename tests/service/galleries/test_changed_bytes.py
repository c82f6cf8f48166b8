"""Changed bytes: one of any row or small file of a gallery gives the same answer, or a clear error."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.damaged_rows import damage, damage_pointer
from tests.service.types import Calibrate, MakeSettings
from vicinal.calibration import Target
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.changes import remove_items
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.state import Rows, state_of
from vicinal.indexer.state.schema import GALLERY
from vicinal.models.embedder import Embedder
from vicinal.service.comparing.comparison import ComparisonPlan, compare
from vicinal.service.comparing.record import ComparisonRequest
from vicinal.service.comparing.store import put_in_force
from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.galleries.open_galleries import OpenGalleries
from vicinal.service.galleries.versions import activate_version
from vicinal.service.labelling.session import LabelSession
from vicinal.service.problem_types import ERRORS
from vicinal.service.records import damaged_records
from vicinal.service.words import command_names

_SMALL_BYTES = 64 * 2**10
_N_PLACES = 4
_N_PLACES_OF_RECORDS = 10


@pytest.fixture(scope="module")
def bundles(
    tmp_path_factory: pytest.TempPathFactory,
    base_dir: Path,
    embedder: Embedder,
    make_settings: MakeSettings,
    calibrate: Calibrate,
) -> ServedBundles:
    """A gallery with two versions of its records: live changes, a calibration, a pipeline, a session."""
    root = tmp_path_factory.mktemp("changed") / "data"
    shutil.copytree(base_dir, root)
    served = ServedBundles(make_settings(root), embedder=embedder)
    gallery = Gallery(root / "galleries" / "shoes")
    remove_items(GalleryReader(gallery), ["plain/view 1.png"])
    calibrate(gallery)
    LabelSession.start(served.matcher(gallery), Target.parse("precision=95%"))
    request = ComparisonRequest(target="fpir=20%")
    comparison = compare(ComparisonPlan(gallery, served, request), "first")
    put_in_force(gallery, served, comparison, 1)
    return served


def answer(bundles: ServedBundles) -> Any:
    """What a search of a process that has just started says; errors of the project are told by their text."""
    galleries = OpenGalleries(bundles)
    try:
        matcher = galleries.matcher("shoes")
        found = matcher.search(item_ids=["plain/view 0.png"], limit=5, include_candidates=True)[0]
    except ERRORS as error:
        return str(error)
    finally:
        galleries.wait()
    told = galleries.states()[0]
    if told.problem is not None:
        # What a check has found after the search.
        return told.problem
    return (
        [(one.id, one.score, one.label, one.metadata) for one in (*found.matches, *(found.candidates or ()))],
        (found.threshold, found.pipeline, found.no_match, found.n_searched, told.calibration, told.problem),
    )


# Something that changes, and how.
Change = tuple[str, Callable[[], object]]


def changed_files(folder: Path, pattern: str, n_places: int) -> Iterator[Change]:
    """Some bytes of each small file, one changed at a time."""
    rng = np.random.default_rng(7)
    paths = sorted(one for one in folder.rglob(pattern) if one.is_file() and one.suffix != ".lock")
    for path in paths:
        content = path.read_bytes()
        if 0 < len(content) <= _SMALL_BYTES:
            for place in rng.choice(len(content), min(n_places, len(content)), replace=False):
                changed = bytearray(content)
                # As often as not another digit, which only a seal can tell.
                changed[place] ^= int(rng.choice([1, 2, int(rng.integers(1, 256))]))
                yield path.relative_to(folder).as_posix(), partial(path.write_bytes, bytes(changed))


def changed_rows(gallery: Path, n_places: int) -> Iterator[Change]:
    """Values of each row, one changed at a time; not its key, by which it is found."""
    rng = np.random.default_rng(7)
    with state_of(gallery).reading() as rows:
        found = [(table, one._asdict()) for table in GALLERY.sorted_tables for one in rows.all(table)]
    for table, row in found:
        where = [column == row[column.name] for column in table.primary_key]
        for column in table.c:
            if column.primary_key or column.name == "seal" or not row[column.name]:
                continue
            for _ in range(n_places if column.name == "content" else 1):
                changed = {column.name: other(row[column.name], rng)}
                yield f"{table.name}.{column.name}", partial(damage, gallery, table, *where, **changed)


def other(value: Any, rng: np.random.Generator) -> Any:
    if isinstance(value, bytes):
        return value[:-1] + bytes([value[-1] ^ 1])
    if not isinstance(value, str):
        return value + 1
    place = int(rng.choice([at for at, one in enumerate(value) if one.isdigit()] or range(len(value))))
    return value[:place] + ("7" if value[place] != "7" else "3") + value[place + 1 :]


def other_answers(bundles: ServedBundles, changes: Iterable[Change]) -> tuple[int, list[str]]:
    """How many changes were tried, and after which the answer was another one, without an error."""
    folder = bundles.settings.galleries_path / "shoes"
    # First, because it leaves a note of its check.
    before, others, n = answer(bundles), [], 0
    kept = shutil.copytree(folder, folder.parent.parent / "kept", dirs_exist_ok=True)
    assert not isinstance(before, str), before
    for name, change in changes:
        change()
        n += 1
        told = answer(bundles)
        if told != before and not isinstance(told, str):
            others.append(name)
        # What was found damaged may have been made again under other names.
        shutil.rmtree(folder)
        shutil.copytree(kept, folder)
    shutil.rmtree(kept)
    return n, others


def folder_of(bundles: ServedBundles) -> Path:
    return bundles.settings.galleries_path / "shoes"


@pytest.mark.slow
def test_a_changed_row_never_gives_another_answer(bundles: ServedBundles) -> None:
    n, others = other_answers(bundles, changed_rows(folder_of(bundles), _N_PLACES_OF_RECORDS))
    assert (n > 50, others) == (True, [])


@pytest.mark.slow
def test_a_changed_byte_of_another_small_file_never_gives_another_answer(bundles: ServedBundles) -> None:
    n, others = other_answers(bundles, changed_files(folder_of(bundles), "*", _N_PLACES))
    assert (n > 50, others) == (True, [])


@pytest.mark.slow
def test_without_seals_some_would(bundles: ServedBundles, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control."""
    monkeypatch.setattr(Rows, "_checked", lambda _rows, _table, found, _on_damage: iter(found))
    changes = (one for one in changed_rows(folder_of(bundles), 40) if one[0] == "documents.content")
    assert other_answers(bundles, changes)[1]


@pytest.mark.slow
def test_a_version_is_put_in_force_again_as_it_was(bundles: ServedBundles) -> None:
    """The way back that the error names, live changes and calibrations included."""
    gallery = Gallery(bundles.settings.galleries_path / "shoes")
    before, told = answer(bundles), gallery.activation
    assert told is not None
    damage_pointer(gallery.path)
    assert "put a version in force again" in answer(bundles)
    (line,) = damaged_records(gallery, command_names)
    assert f"vicinal gallery activate shoes {told.version} --data-dir " in line
    activate_version(gallery, told.version)
    assert answer(bundles) == before
