"""The pages of README, client and docs: blocks do what the page says, in order, on pictures in files."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet

from tests.docs_blocks import PageFolder, run_page
from vicinal.models.bundle import ModelBundle
from vicinal.models.demo_catalog import write_demo_catalog

ROOT = Path(__file__).resolve().parents[1]
README, OF_CLIENT = ROOT / "README.md", ROOT / "client" / "README.md"
PAGES = [README, OF_CLIENT, *sorted((ROOT / "docs").glob("*.md"))]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the pages name: a gallery with a class 'shoe', labelled queries, single pictures."""
    folder = tmp_path_factory.mktemp("pages")
    catalog = write_demo_catalog(
        folder / "catalog", n_products=12, n_absent=10, n_views=12, n_gallery_views=6, size=96
    )
    photos, queries = folder / "photos", folder / "queries"
    catalog.gallery.rename(photos)
    (folder / "catalog" / "queries").rename(queries)
    label = min(one.name for one in photos.iterdir())
    (photos / label).rename(photos / "shoe")
    (queries / label).rename(queries / "shoe")
    absent = folder / "catalog" / "absent"
    # One that looks like nothing in the gallery: a share of the strangers may get a match.
    shutil.copy(max(absent.glob("*/*.jpg")), folder / "stranger.jpg")
    shutil.copytree(absent, queries, dirs_exist_ok=True)
    shutil.rmtree(folder / "catalog")
    shutil.copytree(queries / "shoe", folder / "more-photos" / "boot")
    shutil.copytree(queries / "shoe", folder / "yesterday")
    for name, picture in zip(("photo", "new", "a", "b"), sorted(queries.glob("*/*.jpg"))[::7], strict=False):
        shutil.copy(picture, folder / f"{name}.jpg")
    write_embeddings(folder)
    # Nearly the picture that the gallery has, so that it is found whatever the threshold.
    with Image.open(photos / "shoe" / "1.jpg") as found:
        found.save(folder / "query.jpg", quality=70)
    return folder


def write_embeddings(folder: Path) -> None:
    """Embeddings of 40 labels in `clip.parquet`, others in `query.npy`, `more.parquet` and `rows.npy`."""
    rng = np.random.default_rng(0)
    vectors = np.repeat(rng.normal(size=(40, 16)), 6, axis=0) + 0.3 * rng.normal(size=(240, 16))
    labels = [f"label {i // 6}" for i in range(240)]
    columns = {"id": [f"item {i}" for i in range(240)], "label": labels, "embedding": list(vectors)}
    parquet.write_table(pa.table(columns), folder / "clip.parquet")
    np.save(folder / "query.npy", vectors[7] + 0.1)
    further = {
        "id": ["new 1", "new 2"],
        "label": ["label 1", "label 2"],
        "embedding": list(vectors[:2] + 0.1),
    }
    parquet.write_table(pa.table(further), folder / "more.parquet")
    np.save(folder / "rows.npy", vectors[:2, :3])


@pytest.fixture(scope="module")
def prepared(
    pictures: Path,
    tmp_path_factory: pytest.TempPathFactory,
    tiny_bundle: ModelBundle,
    refiner_bundle: ModelBundle,
) -> Callable[[bool], Path]:
    """Where pages run one after the other, with the pictures, and with a gallery 'shop' or without one."""
    home = tmp_path_factory.mktemp("page") / "home"
    shutil.copytree(tiny_bundle.path, pictures / "bundles" / "better")
    shutil.copytree(refiner_bundle.path, pictures / "bundles" / "mine")

    def begin(kept: Path) -> Path:
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(kept, home)
        return home

    @cache
    def with_shop() -> Path:
        with PageFolder(begin(pictures)) as folder:
            folder.run("vicinal index photos --gallery shop\nvicinal calibrate --gallery shop")
        # The gallery holds paths: pages find it where it was made.
        return Path(shutil.copytree(home, home.with_name("with shop")))

    return lambda is_wanted: begin(with_shop() if is_wanted else pictures)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_block_of_a_page_runs(page: Path, prepared: Callable[[bool], Path]) -> None:
    """Pages other than README begin where it ends: with a gallery 'shop' that is indexed and calibrated."""
    has_shop = page != README and bool(re.search(r"\bshop\b", page.read_text(encoding="utf-8")))
    with PageFolder(prepared(has_shop)) as folder:
        run_page(page, folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Do this:\n\n    vicinal indx photos --gallery shop\n", "line 3: .*indx"),
        ("```sh\necho $ID\n```\n", "unbound variable"),
        ("    echo 'open\n", "unfinished"),
        ('```toml\nport = "\n```\n', "line 1"),
        ("```python\nimport vicinal.nothing\n```\n", "vicinal.nothing"),
        (
            '    echo \'{"a": [{"b": 1}]}\'\n\n'
            '<!-- printed, shortened -->\n\n```json\n{"a": [{"c": 1}]}\n```\n',
            "a has no c, but b",
        ),
        (
            '    echo \'{"a": true}\'\n\n<!-- printed, shortened -->\n\n```json\n{"a": false}\n```\n',
            "a is True, the page shows False",
        ),
        ("```javascript\nthrow new Error(`it ${1 + 1}`);\n```\n", "line 1: the program failed.*it 2"),
        ("```\nsomething\n```\n", "cannot be run"),
    ],
)
def test_a_wrong_block_is_noticed(tmp_path: Path, text: str, expected: str) -> None:
    """Negative controls."""
    (tmp_path / "page.md").write_text(f"{text}\nand on.\n", encoding="utf-8")
    with PageFolder(tmp_path) as folder, pytest.raises(AssertionError, match=f"(?s){expected}"):
        run_page(tmp_path / "page.md", folder)


@pytest.mark.slow
def test_what_the_server_refuses_is_noticed(tmp_path: Path) -> None:
    """Negative control."""
    (tmp_path / "page.md").write_text("    curl localhost:8321/v1/galleries/nowhere\n", encoding="utf-8")
    with PageFolder(tmp_path) as folder, pytest.raises(AssertionError, match="gallery-not-found"):
        run_page(tmp_path / "page.md", folder)


def test_a_block_is_left_out_only_below_a_mark_with_a_reason(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    with PageFolder(tmp_path) as folder:
        page.write_text(
            "<!-- not run: it would fail -->\n\n    false\n\nText.\n\n    true\n", encoding="utf-8"
        )
        assert run_page(page, folder) == 1
        page.write_text("<!-- not run: -->\n\n    false\n", encoding="utf-8")
        with pytest.raises(AssertionError, match="`false` failed"):
            run_page(page, folder)


def test_blocks_share_a_folder_and_what_was_printed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    first = "```sh\necho one > file; echo 20260101-000000-abcdef\n```\n"
    second = "    grep one \\\n      file\n    test $ID = 20260101-000000-abcdef\n"
    page.write_text(f"{first}\n{second}", encoding="utf-8")
    with PageFolder(tmp_path) as folder:
        assert run_page(page, folder) == 2
    assert (tmp_path / "file").read_text(encoding="utf-8") == "one\n"
