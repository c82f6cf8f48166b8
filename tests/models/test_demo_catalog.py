"""The demo catalog: reproducible designs and photos, kept apart as gallery, queries and absent products."""

import hashlib
import subprocess
import sys
from collections import Counter
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from vicinal.models import demo_catalog
from vicinal.models.demo_catalog import Product, make_catalog, render_view, write_demo_catalog
from vicinal.models.demo_catalog.products import KINDS
from vicinal.models.demo_catalog.scene import DRAWINGS

_FINGERPRINT = """
import hashlib
from vicinal.models.demo_catalog import make_catalog, render_view
digest = hashlib.sha256(repr(make_catalog(3, 20)).encode())
for product in make_catalog(3, 20):
    digest.update(render_view(product, 2, size=48).tobytes())
print(digest.hexdigest())
"""


def _pixels(product: Product, view: int, size: int = 64) -> NDArray[np.float64]:
    return np.asarray(render_view(product, view, size=size)).astype(np.float64)


def test_every_kind_has_a_drawing() -> None:
    """The kinds that a catalog draws from are the kinds that can be drawn."""
    assert sorted(DRAWINGS) == sorted(KINDS)


@given(seed=st.integers(0, 2**40), n_products=st.integers(1, 120))
@settings(max_examples=10, deadline=None)
def test_catalog_is_reproducible_and_a_shorter_one_is_its_prefix(seed: int, n_products: int) -> None:
    """The number of products asked for does not change the designs of the first ones."""
    assert make_catalog(seed, 120)[:n_products] == make_catalog(seed, n_products)


def test_products_cover_all_kinds_evenly() -> None:
    """A catalog of the default size holds each kind three or four times."""
    counts = Counter(product.kind for product in make_catalog())
    assert set(counts) == set(KINDS)
    assert set(counts.values()) == {3, 4}


@pytest.mark.parametrize("seed", [0, 7])
def test_products_of_a_kind_differ_in_color_or_pattern(seed: int) -> None:
    """Two products of a kind with the same pattern lie at least 30 apart in RGB."""
    for one, other in combinations(make_catalog(seed, 180), 2):
        if one.kind == other.kind and one.pattern == other.pattern:
            assert np.linalg.norm(np.subtract(one.main, other.main)) > 30


@pytest.mark.parametrize("seed", [0, 7])
def test_no_product_is_another_with_swapped_colors(seed: int) -> None:
    """Black on red stripes and red on black ones would be the same mug to the eye."""
    for one, other in combinations(make_catalog(seed, 180), 2):
        if one.kind == other.kind and one.pattern == other.pattern:
            gaps = (np.subtract(one.main, other.accent), np.subtract(one.accent, other.main))
            assert max(np.linalg.norm(gap) for gap in gaps) > 30


def test_catalog_shots_of_a_kind_look_different() -> None:
    """No two catalog shots of a kind are within 4 gray levels of each other on average."""
    shots = [(product.kind, _pixels(product, 0)) for product in make_catalog(0, 70)]
    gaps = [np.abs(a - b).mean() for (k, a), (j, b) in combinations(shots, 2) if k == j]
    assert min(gaps) > 4


@pytest.mark.parametrize(("seed", "n_products"), [(-1, 5), (0, 0), (0, -3), (0, 1001)])
def test_catalog_refuses_bad_arguments(seed: int, n_products: int) -> None:
    """The error names the argument and what came."""
    with pytest.raises(ValueError, match=r"(seed|n_products) must be .*, got -?\d+"):
        make_catalog(seed, n_products)


@pytest.mark.slow
def test_a_fresh_process_gives_the_same_pixels() -> None:
    """Neither hash randomization nor import order reaches designs or pixels."""
    root = Path(__file__).resolve().parents[2] / "src"
    command = [sys.executable, "-c", _FINGERPRINT]
    prints = {
        subprocess.run(
            command, cwd=root, env={"PYTHONHASHSEED": seed}, check=True, capture_output=True
        ).stdout
        for seed in ("1", "2")
    }
    digest = hashlib.sha256(repr(make_catalog(3, 20)).encode())
    for product in make_catalog(3, 20):
        digest.update(render_view(product, 2, size=48).tobytes())
    assert {line.decode().strip() for line in prints} == {digest.hexdigest()}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_renders(kind: str) -> None:
    """A catalog shot and another view of each kind are RGB pictures that differ."""
    product = next(p for p in make_catalog(2, len(KINDS)) if p.kind == kind)
    views = [render_view(product, view, size=64) for view in (0, 1)]
    assert [(image.mode, image.size) for image in views] == [("RGB", (64, 64))] * 2
    assert views[0].tobytes() != views[1].tobytes()


@pytest.mark.parametrize("product", make_catalog(0, 18), ids=lambda product: product.id)
def test_view_zero_is_a_clean_catalog_shot(product: Product) -> None:
    """Plain light paper all along the upper edge, and a product that fills a fair part of the middle."""
    shot = _pixels(product, 0)
    assert shot[0].min() >= 235
    assert np.ptp(shot[0]) == 0
    assert (np.abs(shot[16:48, 16:48] - shot[0, 0]).max(axis=-1) > 25).mean() > 0.2


@pytest.mark.parametrize(("view", "size"), [(-1, 224), (0, 15), (0, 0), (1, 2049)])
def test_render_refuses_bad_arguments(view: int, size: int) -> None:
    """The error says which argument is out of range."""
    with pytest.raises(ValueError, match=r"must be"):
        render_view(make_catalog(0, 1)[0], view, size=size)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> demo_catalog.DemoCatalog:
    """A small catalog on disk: 4 products in the gallery, 2 absent, 3 + 2 views."""
    folder = tmp_path_factory.mktemp("demo") / "new"
    return write_demo_catalog(folder, n_products=4, n_absent=2, n_views=5, n_gallery_views=3, size=32)


def test_layout_splits_views_between_gallery_and_queries(written: demo_catalog.DemoCatalog) -> None:
    """Gallery pictures hold the first views, queries and absent ones the rest."""
    root = written.gallery.parent
    found = sorted(path.relative_to(root).as_posix() for path in root.rglob("*.jpg"))
    gallery = [f"gallery/{p.id}/{view}.jpg" for p in written.products for view in (0, 1, 2)]
    queries = [f"queries/{p.id}/{view}.jpg" for p in written.products for view in (3, 4)]
    absent = [f"absent/{p.id}/{view}.jpg" for p in written.absent_products for view in (3, 4)]
    assert found == sorted(gallery + queries + absent)


def test_absent_products_have_relatives_in_the_gallery() -> None:
    """In a catalog of the default size every absent product has look-alikes of its kind."""
    catalog = make_catalog(0, 70)
    assert {p.kind for p in catalog[60:]} <= {p.kind for p in catalog[:60]}


def test_writing_again_gives_the_same_bytes(written: demo_catalog.DemoCatalog, tmp_path: Path) -> None:
    """A second run over an existing folder replaces each file by itself."""
    for _ in range(2):
        again = write_demo_catalog(tmp_path, n_products=4, n_absent=2, n_views=5, n_gallery_views=3, size=32)
    first = [path.read_bytes() for path in (*written.gallery_images, *written.absent_images)]
    assert [path.read_bytes() for path in (*again.gallery_images, *again.absent_images)] == first


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_products": 0},
        {"n_views": 3, "n_gallery_views": 3},
        {"n_products": 995, "n_absent": 10},
        {"seed": -1},
        {"size": 8},
    ],
    ids=str,
)
def test_write_refuses_bad_arguments_and_writes_nothing(tmp_path: Path, wrong: dict[str, int]) -> None:
    """Arguments are checked before the first picture."""
    with pytest.raises(ValueError, match="got"):
        write_demo_catalog(tmp_path, **wrong)  # type: ignore[arg-type]
    assert not list(tmp_path.rglob("*.jpg"))
