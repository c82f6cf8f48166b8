"""Mistakes that a program makes with what is easily confused: each error says what is wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

import vicinal
from vicinal.calibration import CalibrationError, calibrate_threshold, opis
from vicinal.models.bundle import ModelBundle
from vicinal.models.embedder import Embedder
from vicinal.models.errors import EmbeddingError, ImageError
from vicinal.models.similarity import as_embeddings, normalize
from vicinal.service.errors import RequestError
from vicinal_client import Client, NewEmbedding, NewItem

PICTURE = np.zeros((40, 48, 3), dtype=np.uint8)
HINT = "PIL.Image.fromarray"


def results(n: int = 60, k: int = 5, noise: float = 0.05) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores, labels of results and of queries; the first result is the mate."""
    rng = np.random.default_rng(0)
    own = np.arange(n) % 12
    labels = np.stack([own, *((own + 1 + place) % 12 for place in range(k - 1))], axis=1)
    scores = np.concatenate([np.full((n, 1), 0.8), np.full((n, k - 1), 0.4)], axis=1)
    return scores + noise * rng.normal(size=scores.shape), labels, own


@pytest.mark.parametrize("target", [0.05, None, "5%", ["fpir=5%"]])
def test_a_target_that_is_none_is_told_with_what_one_looks_like(target: Any) -> None:
    with pytest.raises(CalibrationError, match=r"fpir=5%") as told:
        calibrate_threshold(*results(), target=target)
    assert repr(target) in str(told.value)


@pytest.mark.parametrize(
    "distances",
    [
        lambda s: 1.0 - s,
        lambda s: np.sqrt(2.0 - 2.0 * np.clip(s, -1, 1)),
        lambda s: -np.log(np.clip(s, 0.01, 1)),
    ],
    ids=["one minus", "L2", "logarithm"],
)
@pytest.mark.parametrize("noise", [0.01, 0.15])
def test_distances_in_place_of_scores_are_refused(
    distances: Callable[[np.ndarray], np.ndarray], noise: float
) -> None:
    scores, labels, own = results(noise=noise)
    given = distances(scores)
    with pytest.raises(CalibrationError, match="distances with their sign turned"):
        calibrate_threshold(given, labels, own)
    assert calibrate_threshold(-given, labels, own).fnir.rate < 0.5


def test_a_poor_search_is_no_distance() -> None:
    """Scores that tell nothing are measured, with a warning where they point the wrong way."""
    _, labels, own = results(n=240)
    scores = np.random.default_rng(3).random(labels.shape)
    found = calibrate_threshold(scores, labels, own)
    assert found.fnir.rate > 0.8
    slightly = scores + 0.15 * (labels != own[:, None])
    assert any("sign turned" in one for one in calibrate_threshold(slightly, labels, own).warnings)


def test_queries_whose_labels_are_nowhere_are_told_of() -> None:
    scores, labels, own = results()
    (warning,) = calibrate_threshold(scores, labels, [f"shoe {one}" for one in own]).warnings
    assert warning == "no query's label is among the labels of its results: nothing is found"


@pytest.fixture(scope="module")
def embedder(tiny_bundle: ModelBundle) -> Embedder:
    return Embedder(tiny_bundle, device="cpu", threads=1)


@pytest.mark.parametrize("picture", [PICTURE, [[1, 2]], 7])
def test_an_array_is_no_image(embedder: Embedder, picture: Any) -> None:
    with pytest.raises(ImageError, match=HINT):
        embedder.embed([picture])
    with pytest.raises(ImageError, match=HINT):
        embedder.embed([Image.fromarray(PICTURE), picture])


@pytest.fixture
def gallery(tiny_bundle: ModelBundle, tmp_path: Path) -> vicinal.LocalGallery:
    for number in range(3):
        folder = tmp_path / "photos" / f"label {number}"
        folder.mkdir(parents=True)
        pixels = np.random.default_rng(number).integers(0, 255, (40, 48, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(folder / "a.png")
    made = vicinal.open_gallery("shop", data_dir=tmp_path / "data", bundle=tiny_bundle.path)
    made.index(tmp_path / "photos", workers=1)
    return made


def test_a_search_for_an_array_says_what_it_wants(gallery: vicinal.LocalGallery) -> None:
    dim = gallery.embedder.bundle.dim
    for query in (PICTURE, PICTURE[..., 0], np.zeros((2, 3, 40, 48))):
        with pytest.raises(EmbeddingError, match=HINT):
            gallery.search(query)
        with pytest.raises(EmbeddingError, match=r"numbers|shape"):
            gallery.search_many([query, query])
    with pytest.raises(RequestError, match="1 of 2 queries are images"):
        gallery.search_many([Image.fromarray(PICTURE), np.ones(dim)])
    with pytest.raises(EmbeddingError, match="numbers"):
        gallery.search_many([np.ones(dim), np.ones(dim + 1)])
    assert gallery.search(np.ones(dim)).gallery == gallery.search(np.ones(dim).tolist()).gallery == "shop"
    assert gallery.search(np.full(dim, 1e200)).top_score == gallery.search(np.ones(dim)).top_score
    with pytest.raises(CalibrationError, match="fpir=5%"):
        gallery.calibrate(0.05)


@pytest.mark.parametrize("size", [1e307, 1e154, 1e-3])
def test_finite_numbers_have_a_direction_whatever_their_size(size: float) -> None:
    vectors = np.array([[3.0, 4.0], [0.0, 1.0]]) * size / 4.0
    assert normalize(vectors) == pytest.approx(np.array([[0.6, 0.8], [0.0, 1.0]]))
    assert as_embeddings(vectors[0].tolist(), 2) == pytest.approx(np.array([[0.6, 0.8]]))
    many = np.tile(vectors, (20, 1)) + size * np.random.default_rng(0).normal(size=(40, 2)) / 8.0
    usual = opis(many / size, np.arange(40) // 4)
    assert opis(many, np.arange(40) // 4).opis == pytest.approx(usual.opis)


@pytest.mark.parametrize(
    ("vector", "said"),
    [
        ([np.nan, 1.0], "embedding 0 holds NaN or infinity"),
        ([np.inf, 1e200], "embedding 0 holds NaN or infinity"),
        ([0.0, 0.0], "embedding 0 is zero:"),
        ([1e-200, 0.0], "embedding 0 is nearly zero"),
    ],
)
def test_what_points_nowhere_is_called_what_it_is(vector: list[float], said: str) -> None:
    with pytest.raises(EmbeddingError, match=said):
        as_embeddings(vector, 2)


@pytest.fixture
def client() -> Iterator[Client]:
    """Nothing may be sent."""

    def refuse(request: httpx.Request) -> httpx.Response:
        raise AssertionError(f"{request.url} was asked")

    with Client("http://server", transport=httpx.MockTransport(refuse)) as made:
        yield made


@pytest.mark.parametrize("given", [[0.1, 0.2], PICTURE, 7])
def test_the_client_says_how_an_embedding_is_given(client: Client, given: Any) -> None:
    kind = type(given).__name__
    wanted = rf"path, and no {kind}: give an embedding by the keyword embedding"
    with pytest.raises(TypeError, match=wanted):
        client.search("shop", given)
    with pytest.raises(TypeError, match=wanted):
        client.search_batch("shop", [given])
    with pytest.raises(TypeError, match=wanted):
        client.add_items("shop", [NewItem(given, "a")])


@pytest.mark.parametrize("given", ["photo.jpg", np.ones((2, 3)), ["a"]])
def test_the_client_says_what_an_embedding_is(client: Client, given: Any) -> None:
    with pytest.raises(TypeError, match=r"list or array of numbers of the shape \(d,\)"):
        client.search("shop", embedding=given)
    with pytest.raises(TypeError, match=r"list or array of numbers of the shape \(d,\)"):
        client.add_items("shop", [NewEmbedding("a", given)])
