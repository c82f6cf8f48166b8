"""Embedder: prepare, infer, finish, with the same result alone and in a batch."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from tests.logs import said_by
from tests.stand_in_gpus import SmallGpu
from vicinal.models import embedder as embedder_module
from vicinal.models.bundle import BACKBONE_FILE, ModelBundle, space_manifest
from vicinal.models.embedder import Embedder, SpaceEmbedder
from vicinal.models.errors import (
    BundleError,
    EmbeddingError,
    ImageError,
    NetworkDeviceError,
    ReadyEmbeddingsError,
)
from vicinal.models.runtime import open_session


@pytest.fixture(scope="module")
def embedder(tiny_bundle: ModelBundle) -> Embedder:
    return Embedder(tiny_bundle, device="cpu", threads=1, batch_size=3)


@pytest.fixture(scope="module")
def photos() -> list[Image.Image]:
    rng = np.random.default_rng(0)
    sizes = [(40, 32), (33, 90), (64, 64), (20, 20), (200, 50), (32, 32), (48, 70)]
    return [Image.fromarray(rng.integers(0, 256, (h, w, 3)).astype(np.uint8)) for w, h in sizes]


def _rewritten(bundle: ModelBundle, path: Path, **changes: object) -> ModelBundle:
    """A bundle with the same network, whose manifest says something else."""
    path.mkdir()
    shutil.copy(bundle.backbone_path, path / BACKBONE_FILE)
    return ModelBundle.write(path, {**bundle.manifest.model_dump(exclude={"files"}), **changes})


def test_embeddings_are_normalized_rows(embedder: Embedder, photos: list[Image.Image]) -> None:
    embeddings = embedder.embed(photos)
    assert (embeddings.shape, embeddings.dtype) == ((7, 24), np.float32)
    assert np.linalg.norm(embeddings, axis=1) == pytest.approx(np.ones(7), abs=1e-6)


@given(chosen=st.lists(st.integers(0, 6), min_size=1, max_size=8))
@settings(max_examples=25, deadline=None)
def test_image_embeds_alone_as_in_any_batch(
    embedder: Embedder, photos: list[Image.Image], chosen: list[int]
) -> None:
    together = embedder.embed([photos[index] for index in chosen])
    alone = np.concatenate([embedder.embed([photos[index]]) for index in chosen])
    assert together == pytest.approx(alone, abs=1e-6)


def test_different_images_embed_differently(embedder: Embedder, photos: list[Image.Image]) -> None:
    """Negative control of the batch test: equality is not won by a constant."""
    similarities = embedder.embed(photos) @ embedder.embed(photos).T
    assert similarities[~np.eye(7, dtype=bool)].max() < 0.999


@pytest.mark.parametrize("threads", [0, 2, 3])
def test_threads_share_images_out_without_changing_them(
    tiny_bundle: ModelBundle, photos: list[Image.Image], threads: int
) -> None:
    one, several = (Embedder(tiny_bundle, device="cpu", threads=n) for n in (1, threads))
    np.testing.assert_array_equal(several.embed(photos), one.embed(photos))


def test_file_bytes_and_opened_image_embed_alike(
    embedder: Embedder, photos: list[Image.Image], tmp_path: Path
) -> None:
    path = tmp_path / "photo.png"
    photos[0].save(path)
    one, other, third = embedder.embed([path, path.read_bytes(), photos[0]])
    assert np.array_equal(one, other)
    assert np.array_equal(one, third)


def test_embedding_equals_the_network_written_out(embedder: Embedder, photos: list[Image.Image]) -> None:
    """Slow reference of the tiny network: the mean of each patch, times the stored weights."""
    import onnx

    stored = onnx.load(embedder.bundle.backbone_path).graph.initializer
    weights, offset = (onnx.numpy_helper.to_array(tensor).astype(np.float64) for tensor in stored)
    pixels = np.asarray(photos[5]).astype(np.float64) / 127.5 - 1.0
    patches = [
        pixels[y : y + 4, x : x + 4, c].mean()
        for c in range(3)
        for y in range(0, 32, 4)
        for x in range(0, 32, 4)
    ]
    raw = np.array(patches) @ weights + offset
    assert embedder.embed([photos[5]])[0] == pytest.approx(raw / np.linalg.norm(raw), abs=1e-5)


def with_small_gpu(bundle: ModelBundle, holds: int) -> tuple[Embedder, SmallGpu]:
    embedder = Embedder(bundle, device="cpu", threads=1, batch_size=6)
    gpu = SmallGpu(embedder._session, holds)
    embedder._session = gpu
    return embedder, gpu


def test_a_gpu_with_too_little_memory_takes_half_from_then_on(
    tiny_bundle: ModelBundle, photos: list[Image.Image], caplog: pytest.LogCaptureFixture
) -> None:
    embedder, gpu = with_small_gpu(tiny_bundle, holds=3)
    expected = Embedder(tiny_bundle, device="cpu", threads=1, batch_size=3).embed(photos)
    for _ in range(2):
        np.testing.assert_array_equal(embedder.embed(photos), expected)
    assert gpu.sizes == [6, 3, 3, 1, 3, 3, 1]
    (message,) = said_by(caplog, Embedder.__module__)
    assert message == "the GPU's memory is too small for 6 images at a time: 3 from now on"


@pytest.mark.slow
def test_threads_that_meet_it_together_halve_once(
    tiny_bundle: ModelBundle, photos: list[Image.Image]
) -> None:
    embedder, gpu = with_small_gpu(tiny_bundle, holds=3)
    tensors = [embedder.prepare(photo) for photo in photos]
    both_are_there = threading.Barrier(2)
    run = gpu.run_with_iobinding

    def together(binding: Any) -> None:
        if len(next(iter(binding.inputs.values()))) == 6:
            both_are_there.wait(timeout=30)
        run(binding)

    gpu.run_with_iobinding = together  # type: ignore[method-assign]
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(embedder.infer, [tensors, tensors])
    np.testing.assert_array_equal(first, second)
    assert embedder.batch_size == 3


@pytest.mark.parametrize(
    ("holds", "reason", "tried"),
    [
        (1, "Failed to allocate memory for requested buffer of size 1048576", [6, 3]),
        (0, "Failed to allocate memory for requested buffer of size 1048576", [6, 3]),
        (6, "CUDA error 719: unspecified launch failure", [6]),
    ],
)
def test_a_gpu_that_fails_costs_one_call(
    tiny_bundle: ModelBundle, photos: list[Image.Image], holds: int, reason: str, tried: list[int]
) -> None:
    embedder, gpu = with_small_gpu(tiny_bundle, holds)
    if reason.startswith("CUDA"):
        gpu.session = None

    with pytest.raises(NetworkDeviceError, match=f"the GPU of the network failed: {reason}"):
        embedder.embed(photos)
    assert (gpu.sizes, embedder.provider) == (tried, "CPUExecutionProvider")
    assert embedder.problem == f"the GPU of the network failed: {reason}"
    on_processor = Embedder(tiny_bundle, device="cpu", threads=1, batch_size=3)
    assert on_processor.problem is None
    np.testing.assert_array_equal(embedder.embed(photos), on_processor.embed(photos))
    assert gpu.sizes == tried


def test_a_gpu_takes_more_images_at_a_time_than_searches_are_collected(
    tiny_bundle: ModelBundle, photos: list[Image.Image], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One whose memory holds 7 of 24 is asked for 24, 12 and 6."""
    made: list[SmallGpu] = []

    def opened(*arguments: Any, **options: Any) -> SmallGpu:
        made.append(SmallGpu(open_session(*arguments, **{**options, "device": "cpu"}), holds=7))
        return made[-1]

    monkeypatch.setattr(embedder_module, "open_session", opened)
    embedder = Embedder(tiny_bundle, batch_size=6)
    assert (embedder.batch_size, embedder.n_together) == (24, 6)
    expected = Embedder.embed(Embedder(tiny_bundle, batch_size=6), photos)
    np.testing.assert_array_equal(embedder.embed(photos * 4), np.concatenate([expected] * 4))
    assert made[0].sizes == [1, 24, 12, 6, 6, 6, 6, 4]
    assert (embedder.batch_size, embedder.n_together) == (6, 6)


def test_a_gpu_meets_few_numbers_of_images(tiny_bundle: ModelBundle, photos: list[Image.Image]) -> None:
    """Blank images fill up to a power of two, or to all that it takes, and leave no trace."""
    embedder, gpu = with_small_gpu(tiny_bundle, holds=6)
    expected = Embedder(tiny_bundle, device="cpu", threads=1, batch_size=6)
    for n in (1, 2, 3, 4, 5, 6, 7):
        np.testing.assert_allclose(embedder.embed(photos[:n]), expected.embed(photos[:n]), atol=1e-6)
    assert gpu.sizes == [1, 2, 4, 4, 6, 6, 6, 1]


def test_warming_up_shows_a_gpu_all_that_searches_bring(tiny_bundle: ModelBundle) -> None:
    embedder, gpu = with_small_gpu(tiny_bundle, holds=6)
    embedder.warm_up()
    assert (gpu.sizes, embedder.problem) == ([1, 2, 4, 6], None)


def test_a_gpu_that_fails_to_warm_up_leaves_the_processor(
    tiny_bundle: ModelBundle, photos: list[Image.Image]
) -> None:
    embedder, gpu = with_small_gpu(tiny_bundle, holds=6)
    gpu.session = None
    embedder.warm_up()
    assert (gpu.sizes, embedder.provider) == ([1], "CPUExecutionProvider")
    assert str(embedder.problem).startswith("the GPU of the network failed: CUDA error 719")
    assert embedder.embed(photos).shape == (7, 24)


def test_no_images_give_no_rows(embedder: Embedder) -> None:
    assert embedder.embed([]).shape == (0, 24)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dim": 25}, r"says dim 25, its network gives \(1, 24\)"),
        ({"preprocessing": {"input_size": 64}}, "does not run"),
    ],
)
def test_a_manifest_that_the_network_does_not_fit_is_refused(
    tiny_bundle: ModelBundle, tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(BundleError, match=message):
        Embedder(_rewritten(tiny_bundle, tmp_path / "wrong", **changes), device="cpu")


@pytest.mark.parametrize("n_images", [1, 3])
def test_unusable_image_raises_its_own_error(
    embedder: Embedder, photos: list[Image.Image], n_images: int
) -> None:
    """The same error alone, in the calling thread, and in a batch, in a pool's."""
    with pytest.raises(ImageError, match="empty"):
        embedder.embed([b"", *photos[: n_images - 1]])


def test_large_photo_is_decoded_at_reduced_size(embedder: Embedder, tmp_path: Path) -> None:
    path = tmp_path / "camera.jpg"
    Image.radial_gradient("L").resize((2400, 1800)).convert("RGB").save(path)
    assert embedder.decode(path).size == (1200, 900)
    with Image.open(path) as full:
        assert embedder.embed([path]) == pytest.approx(embedder.embed([full.convert("RGB")]), abs=5e-3)


def test_network_that_gives_zeros_is_refused(embedder: Embedder) -> None:
    with pytest.raises(EmbeddingError, match="is zero"):
        embedder.finish(np.zeros((1, 24), np.float32))


@pytest.mark.parametrize(
    "take",
    [
        lambda space, photos: space.decode(photos[0]),
        lambda space, _: space.infer([np.zeros((3, 32, 32), np.float32)]),
        lambda space, photos: space.embed_queries(photos, {}),
    ],
    ids=["decode", "infer", "embed_queries"],
)
def test_whatever_takes_an_image_is_refused_in_a_space(
    tmp_path: Path, photos: list[Image.Image], take: Callable[[Embedder, list[Image.Image]], object]
) -> None:
    space = SpaceEmbedder(ModelBundle(tmp_path, space_manifest("clip", 24)), "shop")
    expected = "gallery 'shop' holds ready embeddings of 'clip': search with an embedding or an item id"
    with pytest.raises(ReadyEmbeddingsError, match=f"^{expected}$"):
        take(space, photos)
