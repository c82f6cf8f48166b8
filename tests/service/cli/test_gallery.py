"""`vicinal gallery`: live changes and versions from the command line."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.service.types import Fail, View
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.reader import GalleryReader
from vicinal.models.bundle import ModelBundle
from vicinal.service.cli import app, main


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, data_dir: Path, tiny_bundle: ModelBundle) -> None:
    monkeypatch.setenv("VICINAL_BUNDLE", str(tiny_bundle.path))
    monkeypatch.setenv("VICINAL_DATA_DIR", str(data_dir))
    monkeypatch.setenv("COLUMNS", "200")


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["gallery", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def fail(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def call(*arguments: object) -> str:
        monkeypatch.setattr(sys, "argv", ["vicinal", "gallery", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main()
        assert stopped.value.code == 2
        return capsys.readouterr().err.strip().splitlines()[-1]

    return call


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


def added_items() -> list[dict[str, Any]]:
    """Items beyond the first sixty."""
    gallery = Gallery(Path(os.environ["VICINAL_DATA_DIR"]) / "galleries" / "shoes")
    return [item for _, item in GalleryReader(gallery).view().page(None, 1000)[60:]]


@pytest.mark.slow
def test_a_folder_is_added_and_its_labels_with_it(folder: Path) -> None:
    added = json.loads(run("add", "shoes", folder, "--json"))
    counts = {"n_added": 3, "n_replaced": 0, "n_skipped": 0, "n_unchanged": 0, "n_items": 63}
    assert {name: added[name] for name in counts} == counts
    assert [one["id"] for one in added["failures"]] == ["new/broken.png"]
    assert (shown()["n_items"], shown()["n_labels"]) == (63, 12)


@pytest.mark.slow
def test_adding_again_changes_nothing(folder: Path) -> None:
    assert "Added 3 items, replaced 0, skipped 0, unchanged 0; gallery shoes holds 63" in run(
        "add", "shoes", folder
    )
    before = shown()
    assert "Added 0 items, replaced 0, skipped 0, unchanged 3; gallery shoes holds 63" in run(
        "add", "shoes", folder
    )
    assert shown() == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], "4 items with 2 labels; "),
        (["--label-from", "none"], "4 items; 4 items without a label\n"),
        (["--label-from", "none", "--label", "caps"], "4 items with 1 label; "),
    ],
)
def test_the_look_counts_the_labels_that_the_items_get(
    folder: Path, options: list[str], expected: str
) -> None:
    output = run("add", "shoes", folder, *options)
    assert output.startswith(expected)
    assert ("without a label" in output) == ("--label" not in options)


@pytest.fixture
def changed(folder: Path, view: View) -> Path:
    """The folder after it was added, with two other pictures under known names and one new name."""
    run("add", "shoes", folder)
    for number in (0, 1, 5):
        view(80, number).save(folder / "boots" / f"{number}.png")
    return folder


@pytest.mark.slow
def test_other_pictures_of_known_names_are_refused_and_nothing_is_added(changed: Path, fail: Fail) -> None:
    before = shown()
    assert fail("add", "shoes", changed) == (
        "vicinal: in gallery 'shoes' 2 ids belong to other images: 'new/boots/0.png', 'new/boots/1.png'; "
        "nothing was added: take --replace or --skip"
    )
    assert shown() == before


@pytest.mark.slow
@pytest.mark.parametrize(("option", "counts"), [("--skip", (1, 0, 2, 1)), ("--replace", (1, 3, 0, 0))])
def test_other_pictures_of_known_names_are_left_out_or_replace(
    changed: Path, option: str, counts: tuple[int, ...]
) -> None:
    done = json.loads(run("add", "shoes", changed, option, "--json"))
    assert tuple(done[f"n_{name}"] for name in ("added", "replaced", "skipped", "unchanged")) == counts
    arguments = ["search", str(changed / "boots" / "0.png"), "-g", "shoes", "--json"]
    best = json.loads(CliRunner().invoke(app, arguments).stdout)["candidates"][0]
    assert (best["id"] == "new/boots/0.png" and best["similarity"] > 0.9999) == (option == "--replace")


def test_replacing_and_skipping_exclude_each_other(folder: Path, fail: Fail) -> None:
    assert "--replace and --skip exclude each other" in fail("add", "shoes", folder, "--replace", "--skip")


@pytest.mark.slow
def test_two_folders_with_equal_file_names_lose_nothing(tmp_path: Path, view: View) -> None:
    for number, trip in enumerate(("trip1", "trip2")):
        (tmp_path / trip).mkdir()
        view(70 + number, 0).save(tmp_path / trip / "IMG_0001.png")
        run("add", "shoes", tmp_path / trip)
    assert {one["id"] for one in added_items()} == {"trip1/IMG_0001.png", "trip2/IMG_0001.png"}


def test_without_a_prefix_equal_file_names_are_a_conflict(tmp_path: Path, view: View, fail: Fail) -> None:
    """Negative control of the prefix."""
    for number, trip in enumerate(("trip1", "trip2")):
        (tmp_path / trip).mkdir()
        view(70 + number, 0).save(tmp_path / trip / "IMG_0001.png")
    run("add", "shoes", tmp_path / "trip1", "--prefix", "")
    assert "another image has the id 'IMG_0001.png'; nothing was added" in fail(
        "add", "shoes", tmp_path / "trip2", "--prefix", ""
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "options", "expected"),
    [
        (".", [], "new/hats/2.png"),
        ("hats/..", [], "new/hats/2.png"),
        (".", ["--prefix", ""], "hats/2.png"),
        (".", ["--prefix", "2024/june"], "2024/june/hats/2.png"),
        ("hats/2.png", [], "2.png"),
        ("hats/2.png", ["--prefix", "june"], "june/2.png"),
        ("list.csv", [], "hats/2.png"),
        ("list.csv", ["--prefix", "june"], "june/hats/2.png"),
    ],
)
def test_a_folder_s_name_or_what_is_given_stands_before_the_ids(
    folder: Path, monkeypatch: pytest.MonkeyPatch, source: str, options: list[str], expected: str
) -> None:
    monkeypatch.chdir(folder)
    (folder / "list.csv").write_text("path,label\nhats/2.png,hats\n", encoding="utf-8")
    run("add", "shoes", source, *options)
    assert expected in {one["id"] for one in added_items()}


def test_one_image_is_added_under_its_name_with_a_label(folder: Path) -> None:
    run("add", "shoes", folder / "hats" / "2.png", "--label", "caps")
    found = CliRunner().invoke(app, ["search", str(folder / "hats" / "2.png"), "-g", "shoes", "--json"])
    best = json.loads(found.stdout)["candidates"][0]
    assert (best["id"], best["label"]) == ("2.png", "caps")


def test_a_search_can_be_filtered(folder: Path) -> None:
    arguments = ["search", str(folder / "hats" / "2.png"), "-g", "shoes", "--filter", "label = 'plain'"]
    found = CliRunner().invoke(app, [*arguments, "--json", "--limit", "50"])
    assert {one["label"] for one in json.loads(found.stdout)["candidates"]} == {"plain"}


def test_items_are_removed_all_or_none(fail: Fail) -> None:
    assert "Removed 2 items, gallery shoes holds 58" in run(
        "remove", "shoes", "plain/view 0.png", "plain/view 1.png"
    )
    assert "no item 'gone'" in fail("remove", "shoes", "plain/view 2.png", "gone")
    assert shown()["n_items"] == 58


@pytest.mark.slow
def test_live_changes_are_made_a_version(folder: Path) -> None:
    first = shown()["version"]
    run("add", "shoes", folder)
    made = json.loads(run("compact", "shoes", "--json"))["compaction"]
    assert (made["n_items"], shown()["version"], shown()["graph_staleness"]) == (63, made["version"], 0.0)
    assert made["version"] > first
    assert "has no live changes" in run("compact", "shoes")


@pytest.mark.slow
def test_many_changes_are_compacted_when_they_are_added(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VICINAL_COMPACTION__LEAST", "3")
    monkeypatch.setenv("VICINAL_COMPACTION__SHARE", "0.01")
    first = shown()["version"]
    run("add", "shoes", folder)
    assert shown()["version"] > first
    assert (shown()["n_items"], shown()["graph_staleness"]) == (63, 0.0)


@pytest.mark.slow
def test_what_an_addition_compacts_is_refined_as_before(
    tmp_path: Path, folder: Path, refiner_bundle: ModelBundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VICINAL_BUNDLE", str(refiner_bundle.path))
    monkeypatch.setenv("VICINAL_DATA_DIR", str(tmp_path / "home"))
    for name, value in (("LEAST", "1"), ("SHARE", "0.01")):
        monkeypatch.setenv(f"VICINAL_COMPACTION__{name}", value)

    def told(*words: object) -> str:
        return CliRunner().invoke(app, [str(one) for one in words], catch_exceptions=False).stdout

    told("index", folder, "-g", "shop", "--label-from", "folder")
    run("add", "shop", folder, "--label", "again", "--prefix", "again")
    versions = json.loads(run("show", "shop", "--json"))
    found = json.loads(told("search", folder / "hats" / "2.png", "-g", "shop", "--json"))
    assert (versions["version"], versions["graph_staleness"]) == (2, 0.0)
    assert "refine=both" in found["pipeline"]


@pytest.mark.slow
def test_versions_that_are_not_kept_are_removed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VICINAL_RETENTION__VERSIONS", "1")
    monkeypatch.setenv("VICINAL_RETENTION__DAYS", "0")
    first = shown()["version"]
    run("add", "shoes", folder)
    assert f"Removed versions [{first}]" in run("compact", "shoes")
    assert [one["version"] for one in json.loads(run("versions", "shoes", "--json"))] == [shown()["version"]]


@pytest.mark.slow
def test_versions_are_listed_and_rolled_back_to(folder: Path, data_dir: Path) -> None:
    first = shown()["version"]
    run("add", "shoes", folder)
    run("compact", "shoes")
    listed = json.loads(run("versions", "shoes", "--json"))
    assert [one["kind"] for one in listed] == ["compaction", "index"]
    assert "active" in run("versions", "shoes").splitlines()[1]
    run("activate", "shoes", first)
    assert shown()["n_items"] == 63
    run("activate", "shoes", first, "--as-built")
    assert shown()["n_items"] == 60
    assert Gallery(data_dir / "galleries" / "shoes").active_version == first


@pytest.mark.slow
def test_a_check_reads_every_version_and_makes_damaged_ones_again(folder: Path, data_dir: Path) -> None:
    first = shown()["version"]
    run("add", "shoes", folder)
    run("compact", "shoes")
    assert run("check", "shoes").count("is whole") == 2
    (data_dir / "galleries" / "shoes" / "versions" / str(first) / "embeddings.npy").write_bytes(b"damaged")
    assert "embeddings.npy' is missing or damaged: it was made again" in run("check", "shoes")
    assert run("check", "shoes").count("is whole") == 2


@pytest.mark.slow
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


def test_a_source_without_usable_images_changes_nothing(fail: Fail, folder: Path) -> None:
    (folder / "broken.png").rename(folder.parent / "broken.png")
    assert "none of 1 images" in fail("add", "shoes", folder.parent / "broken.png")
    assert shown()["n_items"] == 60


@pytest.mark.slow
@pytest.mark.parametrize("name", ["", ".", "..", "../escape", "a/b", "/tmp/one", "Shoes"])
def test_a_name_that_is_a_path_is_refused_and_deletes_nothing(
    fail: Callable[..., str], data_dir: Path, name: str
) -> None:
    before = sorted(data_dir.rglob("*"))
    assert f"'{name}' is no gallery name" in fail("delete", name, "--yes")
    assert sorted(data_dir.rglob("*")) == before
