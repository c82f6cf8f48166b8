"""`vicinal index`: what ids and labels items get, and the look at a source before it is embedded."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.service.types import Fail, Run, View
from vicinal.calibration.arrays import FloatArray
from vicinal.indexer import gallery as gallery_module
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.graph.neighbor_graph import NeighborGraph, build_neighbor_graph
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.views import refined_snapshot
from vicinal.models.bundle import ModelBundle
from vicinal.models.decoding import accepted_formats
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], {"photos/milk/1.png": "milk", "photos/bread/1.png": "bread"}),
        (["--prefix", ""], {"milk/1.png": "milk", "bread/1.png": "bread"}),
        (["--prefix", "shop"], {"shop/milk/1.png": "milk", "shop/bread/1.png": "bread"}),
        (["--label-from", "none"], {"photos/milk/1.png": None, "photos/bread/1.png": None}),
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


@pytest.mark.slow
def test_a_copy_under_another_name_is_another_folder(run: Run, photos: Path) -> None:
    """Negative control: it is the name that makes the ids equal."""
    run("index", photos, "-g", "shop")
    copied = shutil.copytree(photos, photos.parent / "copied")
    assert "Added 2 items" in run("gallery", "add", "shop", copied).stdout


@pytest.mark.slow
def test_two_folders_with_equal_file_names_lose_nothing(
    run: Run, tmp_path: Path, view: View, items: Callable[[], dict[str, str | None]]
) -> None:
    for number, trip in enumerate(("trip1", "trip2")):
        (tmp_path / trip).mkdir()
        view(number, 0).save(tmp_path / trip / "IMG_0001.png")
    run("index", tmp_path / "trip1", "-g", "shop")
    run("gallery", "add", "shop", tmp_path / "trip2")
    assert items() == {"trip1/IMG_0001.png": None, "trip2/IMG_0001.png": None}


@pytest.mark.slow
def test_a_shop_with_a_table_of_its_own(
    run: Run, tmp_path: Path, view: View, items: Callable[[], dict[str, str | None]]
) -> None:
    (tmp_path / "pictures").mkdir()
    lines = ["sku,file,category,price"]
    for number, price in enumerate((0.99, 1.49, 3.2, 4.1)):
        view(number, 0).save(tmp_path / "pictures" / f"{number}.png")
        lines.append(f"00{number},pictures/{number}.png,{'dairy' if number < 2 else 'bread'},{price}")
    (tmp_path / "shop.csv").write_text("\n".join(lines), encoding="utf-8")
    columns = ("--id-column", "sku", "--path-column", "file", "--label-column", "category")
    output = run("index", tmp_path / "shop.csv", "-g", "shop", *columns).stdout
    assert "4 items with 2 labels; 2 items a label" in output
    assert items() == {"000": "dairy", "001": "dairy", "002": "bread", "003": "bread"}
    search = ("search", tmp_path / "pictures" / "1.png", "-g", "shop", "--candidates", "--json")
    assert json.loads(run(*search).stdout)["candidates"][0]["id"] == "001"
    dearer = json.loads(run(*search, "--filter", "metadata.price > 3").stdout)["candidates"]
    assert {one["id"] for one in dearer} == {"002", "003"}


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


def test_blank_pictures_are_named_and_match_nothing(
    run: Run, fail: Fail, photos: Path, tmp_path: Path, items: Callable[[], dict[str, str | None]]
) -> None:
    logo = Image.new("RGBA", (64, 64), (255, 255, 255, 0))
    Image.new("RGB", (64, 64), "white").save(photos / "milk" / "page.png")
    Image.new("F", (64, 64), 0.5).save(photos / "milk" / "depth.tiff")
    logo.save(photos / "milk" / "nothing.png")
    logo.paste("white", (16, 16, 48, 32))
    logo.save(photos / "milk" / "logo.png")
    output = run("index", photos, "-g", "shop").stdout
    left_out = [line for line in output.splitlines() if "of one color all over" in line]
    assert len(left_out) == 3
    assert set(items()) == {"photos/milk/1.png", "photos/bread/1.png", "photos/milk/logo.png"}
    assert "of one color all over" in fail("search", photos / "milk" / "page.png", "-g", "shop")


def test_the_look_comes_before_the_rest(run: Run, photos: Path) -> None:
    manifest = photos / "list.csv"
    manifest.write_text("path\nmilk/1.png\ngone.png\n", encoding="utf-8")
    lines = run("index", manifest, "-g", "shop").stdout.splitlines()
    assert lines[:2] == [
        "2 items; 2 items without a label",
        f"  1 file cannot be found, such as {photos / 'gone.png'}",
    ]
    assert any(line.startswith("  left out") and "gone.png" in line for line in lines[2:])


@pytest.mark.slow
def test_rows_that_cannot_be_used_are_found_by_what_is_said_of_them(run: Run, photos: Path) -> None:
    manifest = photos / "list.csv"
    manifest.write_text(
        'path,label\nmilk/1.png,a\n"a\nb.png",a\nfile:///etc/passwd,a\n,a\n', encoding="utf-8"
    )
    lines = run("index", manifest, "-g", "shop").stdout.splitlines()
    left_out = [line for line in lines if line.startswith("  left out")]
    assert [line.split(": ")[0] for line in left_out] == [
        f"  left out {photos}/a\\nb.png",
        f"  left out 'file:///etc/passwd' of {manifest}",
        f"  left out 'row 4' of {manifest}",
    ]


def test_photos_of_a_telephone_are_indexed(
    run: Run, tmp_path: Path, view: View, items: Callable[[], dict[str, str | None]]
) -> None:
    pytest.importorskip("pillow_heif")
    (tmp_path / "phone").mkdir()
    accepted_formats()
    view(0, 0).save(tmp_path / "phone" / "IMG_0001.HEIC", "HEIF")
    run("index", tmp_path / "phone", "-g", "shop")
    assert set(items()) == {"phone/IMG_0001.HEIC"}


@pytest.mark.slow
def test_photos_of_a_telephone_that_cannot_be_read_are_named_with_what_reads_them(
    run: Run, photos: Path
) -> None:
    """The program runs in a process where the extra is not installed."""
    (photos / "IMG_0001.HEIC").write_bytes(b"")
    script = (
        "import sys; sys.modules['pillow_heif'] = None; from vicinal.service.cli import main; "
        f"sys.argv = ['vicinal', 'index', {str(photos)!r}, '-g', 'shop', '--dry-run']; main()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "files that are not read: 1 .heic (read with the extra heif, pip install 'pillow" in done.stdout


@pytest.mark.slow
def test_albums_are_not_taken_for_labels_unasked(
    run: Run, photos: Path, items: Callable[[], dict[str, str | None]]
) -> None:
    (photos / "milk").rename(photos / "2019")
    (photos / "bread").rename(photos / "2020-05")
    result = run("index", photos, "-g", "shop", "--json")
    assert "no labels taken: 2 of 2 subfolders are named like dates or a camera's" in result.stderr
    assert json.loads(result.stdout)["n_labels"] == 0
    assert set(items().values()) == {None}
    run("index", photos, "-g", "shop", "--label-from", "folder")
    assert set(items().values()) == {"2019", "2020-05"}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--label-from", "regex:milk"], "'regex:milk' has 0 groups, expected one for the label"),
        (["--label-from", "regex:(eggs)"], "'regex:(eggs)' matches no path, such as 'bread/1.png'"),
        (["--label-from", "colour"], "labels cannot be taken from 'colour'"),
        (["--label-from", "column"], "a folder has no columns"),
    ],
)
def test_labels_that_cannot_be_taken_are_one_sentence_and_nothing_is_written(
    fail: Fail, photos: Path, tmp_path: Path, options: list[str], sentence: str
) -> None:
    assert sentence in fail("index", photos, "-g", "shop", *options)
    assert not (tmp_path / "data").exists()


@pytest.mark.slow
@pytest.mark.parametrize("options", [["--dry-run"], ["--prefix", ""], ["--label-from", "none"]])
def test_options_of_a_source_need_one(fail: Fail, options: list[str]) -> None:
    assert "name a source" in fail("index", "-g", "shop", *options)


def test_an_id_that_is_there_twice_loses_no_row_silently(fail: Fail, tmp_path: Path) -> None:
    (tmp_path / "shop.csv").write_text("path,id\na.png,1\nb.png,1\n", encoding="utf-8")
    line = fail("index", tmp_path / "shop.csv", "-g", "shop")
    assert f"rows 1 and 2 of manifest '{tmp_path / 'shop.csv'}' have one id, '1'" in line


@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
@pytest.mark.filterwarnings("ignore:Specified provider:UserWarning")  # ONNX Runtime's own words on it
def test_a_gpu_that_cannot_be_used_is_refused_before_the_source_is_opened(
    fail: Fail, photos: Path, tmp_path: Path, device: str
) -> None:
    sentence = fail("index", photos / "none", "-g", "shop", "--device", device)
    assert f"device '{device}' was asked for, but ONNX Runtime runs on CPUExecutionProvider" in sentence
    assert not (tmp_path / "data").exists()


def test_a_gpu_that_faiss_cannot_use_is_refused_for_ready_embeddings(fail: Fail, tmp_path: Path) -> None:
    sentence = fail("index", tmp_path / "none.npy", "-g", "clips", "--space", "clip", "--device", "cuda")
    assert "device 'cuda' was asked for, and this Faiss is built without GPUs" in sentence


def test_a_device_that_is_none_is_refused(fail: Fail, photos: Path) -> None:
    assert "device" in fail("index", photos, "-g", "shop", "--device", "gpu")


@pytest.mark.slow
@pytest.mark.parametrize("device", ["auto", "cpu"])
def test_without_a_gpu_the_processor_does_it_all(run: Run, photos: Path, device: str) -> None:
    assert "CPUExecutionProvider" in run("index", photos, "-g", "shop", "--device", device).stdout


@pytest.mark.slow
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
