"""Galleries that are refined on a GPU: as on the processor, in batches, and nothing is lost where one fails.

The network is that of the bundle that ships, in ONNX Runtime on the processor; that it is a GPU is pretended.
`training/test_export.py` compares the other forms.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.stand_in_gpus import SmallGpu
from vicinal.calibration.arrays import FloatArray
from vicinal.models.bundle import ModelBundle, default_bundle_path
from vicinal.models.errors import BundleError, NetworkDeviceError
from vicinal.models.runtime import offers_cuda, open_session
from vicinal.models.similarity import normalize
from vicinal.refine import context_refiner
from vicinal.refine.context_refiner import ContextRefiner

N, K = 300, 8
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def refiner() -> ContextRefiner:
    return ContextRefiner(ModelBundle.open(default_bundle_path()))


@pytest.fixture(scope="module")
def gallery(refiner: ContextRefiner) -> tuple[FloatArray, np.ndarray]:
    """Items in twenty groups with their neighbors; some have fewer, and the last one none."""
    rng = np.random.default_rng(0)
    centers, dim = rng.normal(size=(20, refiner.architecture.dim)), refiner.architecture.dim
    embeddings = normalize(centers[rng.integers(0, 20, N)] + 0.7 * rng.normal(size=(N, dim)))
    similarities = embeddings @ embeddings.T
    np.fill_diagonal(similarities, -2.0)
    ids = np.argsort(-similarities, axis=1)[:, :K].astype(np.int32)
    ids[::7, 5:] = -1
    ids[-1] = -1
    return embeddings, ids


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[SmallGpu]]:
    """Puts one there that holds some items at a time; the sessions on it are in the list."""

    def put(holds: int = N, *, batch: int = 128, fails: bool = False) -> list[SmallGpu]:
        sessions: list[SmallGpu] = []

        def opened(*arguments: Any, device: str) -> SmallGpu:
            session = SmallGpu(open_session(*arguments, device="cpu"), holds)
            if fails:
                session.session, session.get_inputs = None, session.session.get_inputs
            sessions.append(session)
            return session

        monkeypatch.setattr(context_refiner, "offers_cuda", lambda: True)
        monkeypatch.setattr(context_refiner, "open_session", opened)
        monkeypatch.setattr(context_refiner, "_FEWEST", 100)
        monkeypatch.setattr(context_refiner, "_CONTEXT_BYTES", batch * 4 * K * 384)
        return sessions

    return put


@pytest.mark.parametrize("n_steps", [1, None])
@pytest.mark.parametrize("device", ["auto", "cuda:1"])
def test_items_are_those_of_the_processor(
    refiner: ContextRefiner,
    gallery: tuple[FloatArray, np.ndarray],
    gpu: Callable[..., list[SmallGpu]],
    device: str,
    n_steps: int | None,
) -> None:
    expected = refiner.refine_gallery(*gallery, n_steps=n_steps)
    sessions = gpu()
    done: list[tuple[int, int]] = []
    refined = refiner.refine_gallery(
        *gallery, n_steps=n_steps, device=device, on_progress=lambda *counts: done.append(counts)
    )
    assert [one.sizes for one in sessions] == [[128, 128, 44]]
    assert done == [(128, N), (256, N), (N, N)]
    np.testing.assert_allclose(refined, expected, rtol=0, atol=TOLERANCE)
    np.testing.assert_array_equal(refined[-1], gallery[0][-1])
    # That the tolerance is one: refinement moves items a hundred times as far.
    assert np.abs(refined - gallery[0]).max() > 100 * TOLERANCE


@pytest.mark.parametrize(("holds", "fails", "reason"), [(127, False, "allocate memory"), (N, True, "719")])
def test_where_it_fails_auto_goes_on_on_the_processor(
    refiner: ContextRefiner,
    gallery: tuple[FloatArray, np.ndarray],
    gpu: Callable[..., list[SmallGpu]],
    caplog: pytest.LogCaptureFixture,
    holds: int,
    fails: bool,
    reason: str,
) -> None:
    expected = refiner.refine_gallery(*gallery)
    gpu(holds, fails=fails)
    with pytest.raises(NetworkDeviceError, match=rf"the GPU that refines failed: .*{reason}"):
        refiner.refine_gallery(*gallery, device="cuda")
    with caplog.at_level(logging.WARNING):
        np.testing.assert_array_equal(refiner.refine_gallery(*gallery, device="auto"), expected)
    assert "items are refined on the processor: the GPU that refines failed" in caplog.text


def test_without_a_gpu_auto_takes_the_processor_and_cuda_is_refused(
    refiner: ContextRefiner, gallery: tuple[FloatArray, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context_refiner, "_FEWEST", 100)
    expected = refiner.refine_gallery(*gallery)
    np.testing.assert_array_equal(refiner.refine_gallery(*gallery, device="auto"), expected)
    with (
        pytest.warns(UserWarning, match="CUDAExecutionProvider"),
        pytest.raises(BundleError, match=r"'cuda' was asked for.*onnxruntime-gpu"),
    ):
        refiner.refine_gallery(*gallery, device="cuda")


@pytest.mark.gpu
@pytest.mark.skipif(not offers_cuda(), reason="this ONNX Runtime is built without CUDA")
def test_a_real_gpu_refines_as_the_processor_does(
    refiner: ContextRefiner, gallery: tuple[FloatArray, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context_refiner, "_FEWEST", N)
    refined = refiner.refine_gallery(*gallery, device="cuda")
    np.testing.assert_allclose(refined, refiner.refine_gallery(*gallery), rtol=0, atol=TOLERANCE)
