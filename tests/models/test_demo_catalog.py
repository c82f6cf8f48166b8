"""The demo catalog: reproducible designs and photos, kept apart as gallery, queries and absent products."""

import hashlib
import subprocess
import sys
from collections import Counter
from dataclasses import FrozenInstanceError
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from vicinal.models import demo_catalog
from vicinal.models.demo_catalog import Product, make_catalog, render_view, write_demo_catalog
from vicinal.models.demo_catalog.products import KINDS, PALETTE, PATTERNS, TEXTURES, contrasts
from vicinal.models.demo_catalog.scene import DRAWINGS, draw_product, draw_shot

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


def test_public_names_are_sorted_and_exist() -> None:
    """`__all__` is sorted and every name in it can be imported."""
    assert demo_catalog.__all__ == sorted(demo_catalog.__all__)
    assert all(hasattr(demo_catalog, name) for name in demo_catalog.__all__)


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


def test_ids_are_unique_and_name_the_kind() -> None:
    """An id is the kind and a running number."""
    catalog = make_catalog(1, 200)
    assert len({product.id for product in catalog}) == 200
    assert all(product.id.startswith(f"{product.kind}-") for product in catalog)


@pytest.mark.slow
@given(seed=st.integers(0, 10_000))
@settings(max_examples=10, deadline=None)
def test_products_of_a_kind_differ_in_color_or_pattern(seed: int) -> None:
    """Two products of a kind with the same pattern lie at least 30 apart in RGB."""
    for one, other in combinations(make_catalog(seed, 180), 2):
        if one.kind == other.kind and one.pattern == other.pattern:
            assert np.linalg.norm(np.subtract(one.main, other.main)) > 30


@pytest.mark.slow
@given(seed=st.integers(0, 10_000))
@settings(max_examples=10, deadline=None)
def test_no_product_is_another_with_swapped_colors(seed: int) -> None:
    """Black on red stripes and red on black ones would be the same mug to the eye."""
    for one, other in combinations(make_catalog(seed, 180), 2):
        if one.kind == other.kind and one.pattern == other.pattern:
            gaps = (np.subtract(one.main, other.accent), np.subtract(one.accent, other.main))
            assert max(np.linalg.norm(gap) for gap in gaps) > 30


def test_palette_colors_lie_apart() -> None:
    """Jitter cannot make one color family look like another."""
    distances = [np.linalg.norm(np.subtract(a, b)) for a, b in combinations(PALETTE.values(), 2)]
    assert min(distances) >= 65


@pytest.mark.parametrize("color", PALETTE)
def test_every_color_has_accents_to_choose_from(color: str) -> None:
    """No main color is left with fewer than three contrasting accents."""
    assert sum(contrasts(PALETTE[color], other) for other in PALETTE.values()) >= 3


def test_catalog_shots_of_a_kind_look_different() -> None:
    """No two catalog shots of a kind are within 4 gray levels of each other on average."""
    shots = [(product.kind, _pixels(product, 0)) for product in make_catalog(0, 70)]
    gaps = [np.abs(a - b).mean() for (k, a), (j, b) in combinations(shots, 2) if k == j]
    assert min(gaps) > 4


@given(seeds=st.sets(st.integers(0, 10_000), min_size=2, max_size=2))
@settings(max_examples=10, deadline=None)
def test_another_seed_draws_every_product_anew(seeds: set[int]) -> None:
    """Products that share an id across seeds share neither proportions nor streams."""
    one, other = (make_catalog(seed, 36) for seed in sorted(seeds))
    for a, b in zip(one, other, strict=True):
        assert a.id == b.id
        assert (a.breadth, a.tallness, a.detail) != (b.breadth, b.tallness, b.detail)
        assert a.stream != b.stream


def test_product_is_immutable() -> None:
    """A design cannot change after it was drawn."""
    with pytest.raises(FrozenInstanceError):
        make_catalog(0, 1)[0].main = (0, 0, 0)  # type: ignore[misc]


@pytest.mark.parametrize(("seed", "n_products"), [(-1, 5), (0, 0), (0, -3), (0, 1001)])
def test_catalog_refuses_bad_arguments(seed: int, n_products: int) -> None:
    """The error names the argument and what came."""
    with pytest.raises(ValueError, match=r"(seed|n_products) must be .*, got -?\d+"):
        make_catalog(seed, n_products)


@pytest.mark.parametrize("view", [0, 1, 5])
def test_rendering_twice_gives_the_same_pixels(view: int) -> None:
    """A photo depends on product, view and size alone, not on what was rendered before."""
    product = make_catalog(0, 12)[11]
    first = render_view(product, view, size=96).tobytes()
    render_view(make_catalog(4, 1)[0], 3, size=64)
    assert render_view(product, view, size=96).tobytes() == first


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


@pytest.mark.parametrize("size", [16, 33, 96, 224])
def test_size_sets_the_side_of_the_photo(size: int) -> None:
    """Any size in the range works, odd ones included."""
    for view in (0, 1, 2):
        assert render_view(make_catalog(0, 3)[2], view, size=size).size == (size, size)


def test_photos_of_two_sizes_show_the_same_scene() -> None:
    """The catalog shot at 192 pixels, halved, is close to the one at 96."""
    product = make_catalog(0, 1)[0]
    halved = np.asarray(render_view(product, 0, size=192).reduce(2)).astype(np.float64)
    assert np.abs(halved - _pixels(product, 0, 96)).mean() < 4


@pytest.mark.parametrize("product", make_catalog(0, 36), ids=lambda product: product.id)
def test_view_zero_is_a_clean_catalog_shot(product: Product) -> None:
    """Plain light paper all along the upper edge, and a product that fills a fair part of the middle."""
    shot = _pixels(product, 0)
    assert shot[0].min() >= 235
    assert np.ptp(shot[0]) == 0
    assert (np.abs(shot[16:48, 16:48] - shot[0, 0]).max(axis=-1) > 25).mean() > 0.2


def test_other_views_vary_in_backdrop_and_light() -> None:
    """The upper left corner, background nearly always, takes many colors over the views."""
    product = make_catalog(0, 1)[0]
    corners = np.array([_pixels(product, view)[:4, :4].mean(axis=(0, 1)) for view in range(1, 20)])
    assert corners.std(axis=0).min() > 20


def test_draws_of_a_shot_stay_in_their_range() -> None:
    """Every pose keeps the middle of the product's canvas well inside the photo."""
    for seed in range(200):
        middle = draw_shot(np.random.default_rng(seed)).corners.mean(axis=0)
        assert np.all((middle > 0.3) & (middle < 0.7))


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("texture", TEXTURES)
def test_every_pattern_and_texture_shows(pattern: str, texture: str) -> None:
    """Only a plain surface shows a single color; any pattern shows the accent too."""
    look = {"main": (200, 40, 40), "accent": (40, 40, 200), "label": "", "logo": "none"}
    product = Product(**{**vars(make_catalog(0, 7)[6]), **look, "pattern": pattern, "texture": texture})
    drawn = np.asarray(draw_product(product, 96)).astype(int)
    blue = (drawn[..., 2] > drawn[..., 0] + 60) & (drawn[..., 3] == 255)
    assert blue.any() == (pattern != "plain")


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


def test_returned_paths_are_the_written_files(written: demo_catalog.DemoCatalog) -> None:
    """The three tuples list exactly the files below their folders."""
    listed = (written.gallery_images, written.query_images, written.absent_images)
    for folder, images in zip((written.gallery, written.queries, written.absent), listed, strict=True):
        assert sorted(images) == sorted(folder.rglob("*.jpg"))


def test_absent_products_are_not_in_the_gallery(written: demo_catalog.DemoCatalog) -> None:
    """No id is both present and absent."""
    absent = {product.id for product in written.absent_products}
    assert len(absent) == 2
    assert absent.isdisjoint(path.name for path in written.gallery.iterdir())


def test_absent_products_have_relatives_in_the_gallery() -> None:
    """In a catalog of the default size every absent product has look-alikes of its kind."""
    catalog = make_catalog(0, 70)
    assert {p.kind for p in catalog[60:]} <= {p.kind for p in catalog[:60]}


def test_files_are_jpegs_of_the_asked_size(written: demo_catalog.DemoCatalog) -> None:
    """Each file opens as an RGB JPEG."""
    with Image.open(written.query_images[0]) as image:
        assert (image.format, image.mode, image.size) == ("JPEG", "RGB", (32, 32))


def test_writing_again_gives_the_same_bytes(written: demo_catalog.DemoCatalog, tmp_path: Path) -> None:
    """A second run over an existing folder replaces each file by itself."""
    for _ in range(2):
        again = write_demo_catalog(tmp_path, n_products=4, n_absent=2, n_views=5, n_gallery_views=3, size=32)
    first = [path.read_bytes() for path in (*written.gallery_images, *written.absent_images)]
    assert [path.read_bytes() for path in (*again.gallery_images, *again.absent_images)] == first


def test_progress_counts_every_picture(tmp_path: Path) -> None:
    """The callback sees 1, 2, … up to the total, which it knows from the start."""
    seen: list[tuple[int, int]] = []
    write_demo_catalog(
        tmp_path,
        n_products=2,
        n_absent=1,
        n_views=3,
        n_gallery_views=2,
        size=16,
        on_image=lambda n_written, n_images: seen.append((n_written, n_images)),
    )
    assert seen == [(k, 7) for k in range(1, 8)]


def test_a_catalog_without_absent_products_has_an_empty_folder(tmp_path: Path) -> None:
    """`absent/` exists even where nothing is in it, so that callers may list it."""
    demo = write_demo_catalog(tmp_path, n_products=1, n_absent=0, n_views=2, n_gallery_views=1, size=16)
    assert list(demo.absent.iterdir()) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_products": 0},
        {"n_absent": -1},
        {"n_gallery_views": 0},
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
