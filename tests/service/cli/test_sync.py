"""`vicinal index` on a gallery that exists: what it says it did, and what it asks before."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.service.types import Fail, Run, View
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.reader import GalleryReader

pytestmark = pytest.mark.usefixtures("cli_environment")


@pytest.fixture
def photos(tmp_path: Path, view: View) -> Path:
    """A folder of eight pictures."""
    (tmp_path / "photos").mkdir()
    for number in range(8):
        view(number, 0).save(tmp_path / "photos" / f"{number}.png")
    return tmp_path / "photos"


@pytest.fixture
def gallery(run: Run, photos: Path, tmp_path: Path) -> Gallery:
    run("index", photos, "-g", "shop")
    return Gallery.open(tmp_path / "data" / "galleries" / "shop")


def test_a_source_that_did_not_change_is_one_sentence(run: Run, photos: Path, gallery: Gallery) -> None:
    lines = run("index", photos, "-g", "shop").stdout.splitlines()[1:]
    assert [line for line in lines if not line.startswith("  ")] == [
        "Nothing to do: gallery shop holds all of it (added 0, changed 0, unchanged 8, missing 0), "
        "version 1 stays"
    ]
    assert gallery.versions() == [1]


def linked_folder(photos: Path, _png: bytes) -> tuple[Path, str, str]:
    (photos / "around").symlink_to(photos)
    return photos, "around", "a link to a folder"


def damaged_shard(photos: Path, png: bytes) -> tuple[Path, str, str]:
    for number in (0, 1):
        with tarfile.open(photos / f"a-{number}.tar", "w") as archive:
            (entry := tarfile.TarInfo("1.png")).size = len(png)
            archive.addfile(entry, io.BytesIO(png))
    (photos / "a-1.tar").write_bytes(b"words")
    return photos / "a-{0..1}.tar", "a-1.tar", "cannot be read"


def damaged_table(photos: Path, png: bytes) -> tuple[Path, str, str]:
    folder = photos / "tables"
    folder.mkdir()
    pq.write_table(pa.table({"image": [{"bytes": png, "path": "1.png"}]}), folder / "a.parquet")
    (folder / "b.parquet").write_bytes(b"PAR1 and then nothing")
    return folder, "b.parquet", "cannot be read"


@pytest.mark.slow
@pytest.mark.parametrize("make", [linked_folder, damaged_shard, damaged_table])
def test_parts_of_a_source_that_were_not_read_are_in_the_summary_and_in_the_report(
    run: Run, tmp_path: Path, photos: Path, make: Callable[[Path, bytes], tuple[Path, str, str]]
) -> None:
    source, name, reason = make(photos, (photos / "0.png").read_bytes())
    first = run("index", source, "-g", "shop", status=1).stdout
    _, summary = first.split("Gallery shop version 1")
    assert f"  not read: {name} (" in summary
    gallery = Gallery.open(tmp_path / "data" / "galleries" / "shop")
    (found,) = gallery.reports.of(1)["unread"].items()
    assert (found[0], reason in found[1]) == (name, True)
    _, summary = run("index", source, "-g", "shop", status=1).stdout.split("Nothing to do")
    assert f"  not read: {name} (" in summary
    assert "1 part of the source was not read, see --json" in run("gallery", "show", "shop").stdout
    shown = json.loads(run("gallery", "show", "shop", "--json").stdout)
    assert shown["report"]["unread"] == dict([found])
    _, summary = run("gallery", "add", "shop", source, status=1).stdout.split("Added 0 items")
    assert f"  not read: {name} (" in summary
    again = run("gallery", "add", "shop", source, "--json", status=1).stdout
    assert json.loads(again)["unread"] == dict([found])


@pytest.fixture
def others(tmp_path: Path, gallery: Gallery, view: View) -> Path:
    """Another folder of the same name, with two other pictures under known names and one under a new."""
    folder = tmp_path / "another" / "photos"
    folder.mkdir(parents=True)
    for number in (0, 1, 9):
        view(30 + number, 0).save(folder / f"{number}.png")
    return folder


def test_other_pictures_under_known_ids_are_refused_in_one_sentence(
    fail: Fail, others: Path, gallery: Gallery
) -> None:
    before = gallery.activation
    assert fail("index", others, "-g", "shop") == (
        "vicinal: in gallery 'shop' 2 ids belong to other images: 'photos/0.png', 'photos/1.png'; "
        "nothing was indexed: take --replace, --skip or --prefix"
    )
    assert gallery.activation == before


@pytest.mark.parametrize(
    ("option", "counts", "n_items"),
    [
        (["--replace"], {"added": 1, "replaced": 2}, 9),
        (["--skip"], {"added": 1, "skipped": 2}, 9),
        (["--prefix", "more"], {"added": 3}, 11),
    ],
)
def test_the_advice_of_a_refusal_helps(
    run: Run, others: Path, gallery: Gallery, option: list[str], counts: dict[str, int], n_items: int
) -> None:
    result = json.loads(run("index", others, "-g", "shop", *option, "--json").stdout)
    assert (result["counts"], result["n_items"]) == (counts, n_items)
    assert len(GalleryReader(gallery).view()) == n_items
