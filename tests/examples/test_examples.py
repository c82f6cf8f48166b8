"""The scripts of `examples/`, run as they stand."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.forks import forked_python
from vicinal.models.demo_catalog import DemoCatalog, write_demo_catalog

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
Run = Callable[..., str]


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder, and galleries, of each test's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VICINAL_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("VICINAL_THREADS", "1")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs a script in a process of its own, and gives what it printed."""

    def script(name: str, *arguments: object) -> str:
        command = [*forked_python(), str(EXAMPLES / name), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    return script


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> DemoCatalog:
    """Drawn products in folders, further views of them, and products that are in no folder."""
    folder = tmp_path_factory.mktemp("catalog")
    return write_demo_catalog(folder, seed=3, n_products=20, n_absent=2, n_views=6, size=96)


def test_every_example_is_run_here() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    assert [one.name for one in EXAMPLES.glob("*.py") if f'"{one.name}"' not in text] == []


@pytest.mark.slow
def test_scores_of_another_engine_get_a_threshold_that_holds(run: Run) -> None:
    printed = run("calibrate_another_engine.py")
    found, wrong = (int(one) for one in re.findall(r"(\d+) get a match", printed))
    assert "for FPIR 5 %" in printed
    assert found > 700
    assert 20 < wrong < 90


@pytest.mark.slow
def test_own_embeddings_are_searched_without_a_model(run: Run) -> None:
    for _ in range(2):
        first, known, unknown = run("own_embeddings.py").splitlines()
        assert first.startswith("480 embeddings, threshold 0.")
        assert known.startswith("a thing that is there: thing 5 (")
        assert unknown == "a thing that is not there: no match"


@pytest.mark.slow
def test_own_photos_are_indexed_calibrated_and_searched(run: Run, catalog: DemoCatalog) -> None:
    query = next(one for one in sorted(catalog.queries.rglob("*.jpg")))
    first, threshold, *answers = run("own_photos.py", catalog.gallery, query).splitlines()
    assert first == "version 1: 100 photos of 20 labels"
    assert re.fullmatch(r"threshold 0\.\d{3}", threshold)
    assert f"  {query.parent.name}  " in answers[0]
    again = run("own_photos.py", catalog.gallery, query).splitlines()
    assert again == [first, threshold, *answers]
