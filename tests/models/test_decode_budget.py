"""The budget of decoding: who gets memory when, what is counted, and that nobody waits for ever."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from PIL import Image

from vicinal.models import decoding
from vicinal.models.bundle import ModelBundle
from vicinal.models.decoding import (
    DecodeBudget,
    DecodeLimits,
    bytes_to_decode,
    decode_image,
    decoded_image,
    reduction_to,
)
from vicinal.models.embedder import Embedder
from vicinal.models.errors import DecodingBusyError, NotAnImageError


@pytest.fixture
def budget(monkeypatch: pytest.MonkeyPatch) -> DecodeBudget:
    """The budget of the process, of which nothing is taken."""
    fresh = DecodeBudget()
    monkeypatch.setattr(decoding, "BUDGET", fresh)
    return fresh


@pytest.fixture
def held(budget: DecodeBudget) -> Iterator[DecodeBudget]:
    """The budget while somebody has 100 bytes."""
    with budget.taken(100, 100):
        yield budget


def encoded(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def opened(mode: str, kind: str, size: tuple[int, int] = (1000, 1000), **options: object) -> Image.Image:
    return Image.open(io.BytesIO(encoded(Image.new(mode, size), kind, **options)))


def test_what_is_taken_is_given_back(budget: DecodeBudget) -> None:
    with budget.taken(60, 100), budget.taken(40, 100):
        assert budget.taken_bytes == 100
    with pytest.raises(ZeroDivisionError), budget.taken(60, 100):
        raise ZeroDivisionError
    assert budget.taken_bytes == 0


def test_what_is_too_much_for_all_is_had_alone(budget: DecodeBudget) -> None:
    with budget.taken(1000, 100), pytest.raises(DecodingBusyError), budget.taken(1, 100, 0.0):
        pass
    assert budget.taken_bytes == 0


def test_a_wait_ends(held: DecodeBudget) -> None:
    with pytest.raises(DecodingBusyError, match="within 0 s"), held.taken(1, 100, 0.01):
        pass
    assert held.taken_bytes == 100


@pytest.mark.slow
def test_a_wait_ends_with_what_is_given_back(budget: DecodeBudget) -> None:
    asked, got = threading.Event(), threading.Event()

    def ask() -> None:
        asked.set()
        with budget.taken(50, 100, 60.0):
            got.set()

    with ThreadPoolExecutor() as pool:
        with budget.taken(100, 100):
            waiting = pool.submit(ask)
            asked.wait(60)
            assert not got.wait(0.05)
        waiting.result(60)
    assert got.is_set()


@pytest.mark.slow
def test_those_who_came_first_get_it_first(budget: DecodeBudget) -> None:
    """One that needs much is not passed by those that need little."""
    order: list[str] = []
    first = threading.Event()

    def ask(name: str, n_bytes: int) -> None:
        with budget.taken(n_bytes, 100):
            order.append(name)

    with ThreadPoolExecutor() as pool:
        with budget.taken(50, 100):
            large = pool.submit(ask, "large", 100)
            while not budget._waiting:
                first.wait(0.001)
            small = pool.submit(ask, "small", 10)
            assert not first.wait(0.05)
            assert order == []
        large.result(60)
        small.result(60)
    assert order == ["large", "small"]


@pytest.mark.slow
def test_many_threads_never_have_more_than_there_is(budget: DecodeBudget) -> None:
    most: list[int] = []

    def use(n_bytes: int) -> None:
        with budget.taken(n_bytes, 100):
            most.append(budget.taken_bytes)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(use, [1 + n % 90 for n in range(500)]))
    assert len(most) == 500
    assert max(most) <= 100
    assert budget.taken_bytes == 0


def test_an_image_has_its_memory_until_its_context_ends(budget: DecodeBudget) -> None:
    with decoded_image(encoded(Image.new("RGB", (100, 100)))) as image:
        assert budget.taken_bytes == 100 * 100 * (4 + 8)
        assert image.size == (100, 100)
    assert budget.taken_bytes == 0


@pytest.mark.parametrize("damaged", [b"", b"no image", encoded(Image.new("RGB", (100, 100)), "BMP")[:-900]])
def test_a_damaged_image_keeps_nothing(budget: DecodeBudget, damaged: bytes) -> None:
    with pytest.raises(NotAnImageError):
        decode_image(damaged)
    assert budget.taken_bytes == 0


def test_a_batch_takes_as_much_as_its_largest_image(
    budget: DecodeBudget, tiny_bundle: ModelBundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is small before the next is decoded, or this would wait for itself."""
    image = encoded(Image.linear_gradient("L").convert("RGB").resize((600, 600)))
    need = 600 * 600 * (4 + 8)
    limits = DecodeLimits(memory_bytes=need, wait_seconds=30.0)
    embedder = Embedder(tiny_bundle, device="cpu", threads=1, limits=limits)
    assert len(embedder.embed_queries([image] * 8, {})) == 8
    assert len(embedder.embed([image] * 8)) == 8
    assert budget.taken_bytes == 0


@pytest.mark.parametrize(
    ("mode", "n_bytes"), [("1", 1), ("L", 1), ("P", 1), ("LA", 4), ("RGB", 4), ("RGBA", 4)]
)
def test_a_pixel_counts_as_its_mode_is_kept(mode: str, n_bytes: int) -> None:
    assert bytes_to_decode(opened(mode, "PNG"), None) == (n_bytes + 8) * 10**6
    # At half its sides a quarter of the result is made.
    assert bytes_to_decode(opened(mode, "PNG"), 500) == (n_bytes + 2) * 10**6


def test_what_decoders_keep_counts() -> None:
    plain = bytes_to_decode(opened("RGB", "JPEG"), 125)
    assert plain == 4 * 10**6 // 64 + 8 * 10**6 // 64
    assert bytes_to_decode(opened("RGB", "JPEG", progressive=True), 125) == plain + 6 * 10**6
    assert bytes_to_decode(opened("RGB", "WEBP"), None) == (4 + 12 + 8) * 10**6


@pytest.mark.parametrize(
    ("size", "side", "factor"),
    [
        ((100, 100), None, 1),
        ((100, 100), 50, 2),
        ((100, 100), 51, 1),
        ((9000, 800), 100, 8),
        ((8, 9), 512, 1),
    ],
)
def test_reduction_keeps_the_shorter_side(size: tuple[int, int], side: int | None, factor: int) -> None:
    assert reduction_to(size, side) == factor
