"""Export of a refiner: ONNX Runtime and numpy agree with torch, and the bundle stays what it was."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

from tests.stand_in_gpus import SmallGpu  # noqa: E402
from vicinal.models.bundle import ModelBundle  # noqa: E402
from vicinal.models.refiner_manifest import REFINER_FILE  # noqa: E402
from vicinal.models.runtime import open_session  # noqa: E402
from vicinal.models.similarity import normalize  # noqa: E402
from vicinal.refine import context_refiner  # noqa: E402
from vicinal.refine.context_refiner import ContextRefiner  # noqa: E402
from vicinal.refine.errors import RefinementError  # noqa: E402
from vicinal.training.refiner import export as refiner_export  # noqa: E402
from vicinal.training.refiner.config import RefinerConfig  # noqa: E402
from vicinal.training.refiner.export import PARITY_TOLERANCE, export_refiner  # noqa: E402

# Every test of a graph waits for torch to export it.
pytestmark = pytest.mark.slow

FIELDS = {"sides": "query", "rerank": "contextual", "validation": {"query": {"fnir": 0.2}}}


@pytest.fixture(scope="module")
def exported(
    tiny_bundle: ModelBundle, make_network: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., ModelBundle]:
    """A copy of the tiny bundle into which the refiner of a configuration was exported."""

    @cache
    def make(config: RefinerConfig) -> ModelBundle:
        path = Path(shutil.copytree(tiny_bundle.path, tmp_path_factory.mktemp("refined") / "refined"))
        fields = {"sides": "both", "rerank": "off", "validation": {"both": {"map_at_r": 0.5}}}
        return export_refiner(make_network(config), ModelBundle.open(path), fields)

    return make


@pytest.fixture(scope="module")
def exported_bundle(exported: Callable[..., ModelBundle], small: RefinerConfig) -> ModelBundle:
    return exported(small)


@pytest.fixture
def copied(tiny_bundle: ModelBundle, tmp_path: Path) -> ModelBundle:
    return ModelBundle.open(shutil.copytree(tiny_bundle.path, tmp_path / "copied"))


@pytest.mark.parametrize(("n", "k"), [(1, 1), (1, 5), (9, 2), (9, 5), (3, 8)])
def test_onnx_gives_what_torch_gives(
    every_form: Any, exported: Any, make_network: Any, make_contexts: Any, n: int, k: int
) -> None:
    """For every batch size and number of neighbors, though the exporter saw one only."""
    path = exported(every_form).path / REFINER_FILE
    query, context, mask = make_contexts(n, k=k)
    with torch.inference_mode():
        expected = make_network(every_form)(*(torch.from_numpy(one) for one in (query, context, mask)))
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    actual = session.run(["steps", "attention"], {"query": query, "context": context, "mask": mask})
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=PARITY_TOLERANCE)


@pytest.mark.parametrize(("n", "k"), [(1, 1), (9, 8)])
def test_onnx_gives_the_lengths_that_torch_gives(
    every_level: Any, exported: Any, make_network: Any, make_contexts: Any, make_radii: Any, n: int, k: int
) -> None:
    path = exported(every_level).path / REFINER_FILE
    inputs = dict(zip(("query", "context", "mask"), make_contexts(n, k=k), strict=True))
    inputs["radii"] = make_radii(n, k=k)
    with torch.inference_mode():
        expected = make_network(every_level)(*(torch.from_numpy(one) for one in inputs.values()))
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    actual = session.run(["steps", "attention", "lengths"], inputs)
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=PARITY_TOLERANCE)


def _refines_a_gallery_alike(bundle: ModelBundle, n_steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    items = normalize(rng.normal(size=(40, bundle.dim)))
    ids = rng.integers(0, 40, size=(40, 5))
    ids[::3, 2:], ids[-1] = -1, -1
    refiner = ContextRefiner(bundle)
    expected = refiner.refine_gallery(items, ids, n_steps=n_steps)

    def on_processor(*arguments: Any, device: str) -> SmallGpu:
        assert device == "cuda"
        return SmallGpu(open_session(*arguments, device="cpu"), 40)

    monkeypatch.setattr(context_refiner, "open_session", on_processor)
    monkeypatch.setattr(context_refiner, "_FEWEST", 40)
    refined = refiner.refine_gallery(items, ids, n_steps=n_steps, device="cuda")
    np.testing.assert_allclose(refined, expected, rtol=0, atol=PARITY_TOLERANCE)
    assert not np.array_equal(refined, expected)


def test_the_graph_of_a_refiner_with_a_level_refines_a_gallery_as_numpy_does(
    every_level: Any, exported: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    _refines_a_gallery_alike(exported(every_level), 2, monkeypatch)


def test_a_refiner_leaves_the_fingerprint_of_embeddings(
    tiny_bundle: ModelBundle, exported_bundle: ModelBundle
) -> None:
    assert exported_bundle.fingerprint == tiny_bundle.fingerprint
    assert exported_bundle.manifest.refiner.backbone_fingerprint == tiny_bundle.fingerprint


def test_a_network_that_differs_fails_the_parity_check(
    make_network: Any, small: Any, copied: ModelBundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And leaves the bundle without a refiner."""
    network, other = (make_network(small, seed=seed) for seed in (0, 1))
    write = refiner_export._write_files
    monkeypatch.setattr(refiner_export, "_write_files", lambda _network, folder: write(other, folder))
    with pytest.raises(RefinementError, match=r"differ by .* at most 1e-05"):
        export_refiner(network, copied, FIELDS)
    assert ModelBundle.open(copied.path).manifest.refiner is None
