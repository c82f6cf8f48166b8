"""`vicinal index`: what ids and labels items get, and the look at a source before it is embedded."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.service.types import Fail, Run, View
from vicinal.calibration.arrays import FloatArray
from vicinal.indexer import gallery as gallery_module
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.graph.neighbor_graph import NeighborGraph, build_neighbor_graph
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.views import refined_snapshot
from vicinal.models.bundle import ModelBundle
from vicinal.refine.context_refiner import ContextRefiner

pytestmark = pytest.mark.usefixtures("cli_environment")


@pytest.fixture
def items(tmp_path: Path) -> Callable[[], dict[str, str | None]]:
    """Labels of the gallery's items by id."""

    def read() -> dict[str, str | None]:
        view = GalleryReader(Gallery.open(tmp_path / "data" / "galleries" / "shop")).view()
        return {item["id"]: item["label"] for _, item in view.page(None, 1000)}

    return read


@pytest.fixture
def photos(tmp_path: Path, view: View) -> Path:
    """Two pictures of two labels, a folder each."""
    for number, label in enumerate(("milk", "bread")):
        (tmp_path / "photos" / label).mkdir(parents=True)
        view(number, 0).save(tmp_path / "photos" / label / "1.png")
    return tmp_path / "photos"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], {"photos/milk/1.png": "milk", "photos/bread/1.png": "bread"}),
        (["--prefix", "shop"], {"shop/milk/1.png": "milk", "shop/bread/1.png": "bread"}),
        (["--label-from", "regex:^(b)"], {"photos/milk/1.png": None, "photos/bread/1.png": "b"}),
    ],
)
def test_index_and_gallery_add_give_the_same_ids_and_labels(
    run: Run, photos: Path, items: Callable[[], dict[str, str | None]], options: list[str], expected: object
) -> None:
    """So that what was indexed is not added a second time under other ids."""
    run("index", photos, "-g", "shop", *options)
    assert items() == expected
    assert (
        "Added 0 items, replaced 0, skipped 0, unchanged 2"
        in run("gallery", "add", "shop", photos, *options).stdout
    )
    assert items() == expected


def test_a_dry_run_says_what_there_is_and_writes_nothing(run: Run, photos: Path, tmp_path: Path) -> None:
    (photos / "milk" / "2.cr2").touch()
    (photos / "milk" / "@eaDir").mkdir()
    shutil.copy(photos / "milk" / "1.png", photos / "milk" / "@eaDir" / "thumb.png")
    output = run("index", photos, "-g", "shop", "--dry-run").stdout
    assert output.splitlines() == [
        "2 items with 2 labels; 1 item a label; 2 labels with one item",
        "  every item has a label of its own: nothing tells which photos show the same",
        "  files that are not read: 1 .cr2",
        "  hidden, and not read without --include-hidden: 1 @eaDir",
    ]
    look = json.loads(run("index", photos, "-g", "shop", "--dry-run", "--json").stdout)
    assert (look["n_items"], look["label_sizes"]["max"], look["other_files"]) == (2, 1, {".cr2": 1})
    hidden = json.loads(run("index", photos, "-g", "shop", "--dry-run", "--json", "--include-hidden").stdout)
    assert (look["hidden"], hidden["n_items"], hidden["hidden"]) == ({"@eaDir": 1}, 3, {})
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--label-from", "regex:milk"], "'regex:milk' has 0 groups, expected one for the label"),
        (["--label-from", "regex:(eggs)"], "'regex:(eggs)' matches no path, such as 'bread/1.png'"),
        (["--label-from", "column"], "a folder has no columns"),
    ],
)
def test_labels_that_cannot_be_taken_are_one_sentence_and_nothing_is_written(
    fail: Fail, photos: Path, tmp_path: Path, options: list[str], sentence: str
) -> None:
    assert sentence in fail("index", photos, "-g", "shop", *options)
    assert not (tmp_path / "data").exists()


def test_the_option_says_where_network_neighbor_lists_and_refinement_are(
    run: Run, photos: Path, refiner_bundle: ModelBundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for items that are refined, of which lists are made once more."""
    asked: list[str] = []

    def noted(embeddings: FloatArray, *arguments: Any, device: str = "none", **options: Any) -> NeighborGraph:
        asked.append(device)
        return build_neighbor_graph(embeddings, *arguments, device="cpu", **options)

    refine = ContextRefiner.refine_gallery

    def refined(*arguments: Any, device: str = "none", **options: Any) -> FloatArray:
        asked.append(f"refined on {device}")
        return refine(*arguments, **options)

    monkeypatch.setenv("VICINAL_INDEX_DEVICE", "cpu")
    monkeypatch.setenv("VICINAL_DEVICE", "cpu")
    monkeypatch.setenv("VICINAL_BUNDLE", str(refiner_bundle.path))
    monkeypatch.setattr(ContextRefiner, "refine_gallery", refined)
    for module in (gallery_module, refined_snapshot):
        monkeypatch.setattr(module, "build_neighbor_graph", noted)
    run("index", photos, "-g", "shop", "--device", "auto")
    assert asked == ["auto", "refined on auto", "auto"]
    asked.clear()
    # Not by default, but by hand, on the device of the settings.
    monkeypatch.setenv("VICINAL_REFINE", "off")
    run("index", photos, "-g", "plain", "--device", "auto")
    assert asked == ["auto"]
    run("gallery", "refine", "plain")
    assert asked[1:] == ["refined on cpu", "cpu"]
