"""`vicinal gallery`: live changes and versions from the command line."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.service.types import Fail, View
from vicinal.service.cli import app

pytestmark = pytest.mark.usefixtures("cli_environment", "data_dir")


def run(*arguments: object, status: int = 0) -> str:
    result = CliRunner().invoke(app, ["gallery", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == status, result.output
    return result.stdout


@pytest.fixture
def fail(fail: Fail) -> Fail:
    return partial(fail, "gallery")


@pytest.fixture
def folder(tmp_path: Path, view: View) -> Path:
    """Three pictures of two labels that the gallery lacks, and a file that is none."""
    for label, numbers in (("boots", (0, 1)), ("hats", (2,))):
        (tmp_path / "new" / label).mkdir(parents=True)
        for number in numbers:
            view(60 + len(label), number).save(tmp_path / "new" / label / f"{number}.png")
    (tmp_path / "new" / "broken.png").write_bytes(b"words")
    return tmp_path / "new"


def shown() -> dict[str, Any]:
    return dict(json.loads(run("show", "shoes", "--json")))


def test_a_folder_is_added_and_its_labels_with_it(folder: Path) -> None:
    added = json.loads(run("add", "shoes", folder, "--json", status=1))
    counts = {"n_added": 3, "n_replaced": 0, "n_skipped": 0, "n_unchanged": 0, "n_items": 63}
    assert {name: added[name] for name in counts} == counts
    assert [one["id"] for one in added["failures"]] == ["new/broken.png"]
    assert (shown()["n_items"], shown()["n_labels"]) == (63, 12)


def test_a_check_reads_every_version_and_makes_damaged_ones_again(folder: Path, data_dir: Path) -> None:
    first = shown()["version"]
    run("add", "shoes", folder, status=1)
    run("compact", "shoes")
    assert run("check", "shoes").count("is whole") == 2
    (data_dir / "galleries" / "shoes" / "versions" / str(first) / "embeddings.npy").write_bytes(b"damaged")
    assert "embeddings.npy' is missing or damaged: it was made again" in run("check", "shoes")
    assert run("check", "shoes").count("is whole") == 2


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("check", "boots"), "no gallery 'boots'"),
        (("add", "shoes", "nowhere"), "there is no source"),
        (("add", "boots", "."), "no gallery 'boots'"),
        (("remove", "boots", "a"), "no gallery 'boots'"),
        (("compact", "boots"), "no gallery 'boots'"),
        (("versions", "boots"), "no gallery 'boots'"),
        (("activate", "shoes", "999"), "no version 999"),
    ],
)
def test_an_error_is_one_line(fail: Fail, arguments: tuple[str, ...], reason: str) -> None:
    assert reason in fail(*arguments)


@pytest.mark.parametrize("name", ["", ".", "..", "../escape", "a/b", "/tmp/one", "Shoes"])
def test_a_name_that_is_a_path_is_refused_and_deletes_nothing(fail: Fail, data_dir: Path, name: str) -> None:
    before = sorted(data_dir.rglob("*"))
    assert f"'{name}' is no gallery name" in fail("delete", name, "--yes")
    assert sorted(data_dir.rglob("*")) == before
