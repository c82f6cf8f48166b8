"""`vicinal calibrate` with groups and coarse labels from columns of the manifest."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

Run = Callable[..., Result]


@pytest.fixture
def manifest(catalog: Path, tmp_path: Path) -> Path:
    """The catalog with two visits a label, of three photos each, and kinds of five labels each."""
    path = tmp_path / "items.csv"
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["path", "id", "label", "visit", "kind"])
        for number, folder in enumerate(sorted(catalog.iterdir())):
            for view, image in enumerate(sorted(folder.iterdir())):
                name = f"{number}-{view}"
                writer.writerow([image, name, folder.name, 10 * number + view // 3, f"kind {number // 5}"])
    return path


def test_photos_of_one_visit_are_kept_apart(run: Run, manifest: Path) -> None:
    run("index", manifest, "--gallery", "visits")
    arguments = (
        "calibrate",
        "-g",
        "visits",
        "--group-by",
        "visit",
        "--coarse-by",
        "kind",
        "--target",
        "fnir=20%",
    )
    record = json.loads(run(*arguments, "--json").stdout)
    grouping = record["evidence"]["grouping"]
    assert (grouping["column"], grouping["n_groups"], grouping["n_without_group"]) == ("visit", 20, 0)
    assert record["n_positive_pairs"] == 60 * 3
    assert record["evidence"]["near_fpir"]["n_labels"] == 10
    assert set(grouping["promised"]) == set(grouping["shown"])


def test_the_optimism_and_opis_are_said_in_words(run: Run, manifest: Path) -> None:
    run("index", manifest, "--gallery", "visits")
    lines = run("calibrate", "-g", "visits", "--group-by", "visit").stdout
    assert "photos of one visit kept apart: 20 groups" in lines
    assert "optimism without groups" in lines
    assert "OPIS of final scores" in lines
    assert "labels with the lowest utility" in lines


def test_queries_from_outside_are_kept_from_photos_of_their_visit(run: Run, manifest: Path) -> None:
    """The queries are the items themselves: with their visit left out none finds itself."""
    run("index", manifest, "--gallery", "visits")
    arguments = ("calibrate", "-g", "visits", "--queries", manifest, "--group-by", "visit", "--json")
    record = json.loads(run(*arguments).stdout)
    assert (record["source"], record["n_positive_pairs"]) == ("queries", 60 * 3)


def test_an_unknown_column_is_named(run: Run, fail: Callable[..., str], manifest: Path) -> None:
    run("index", manifest, "--gallery", "visits")
    line = fail("calibrate", "-g", "visits", "--group-by", "session")
    assert "'session'" in line
    assert "kind, visit" in line
