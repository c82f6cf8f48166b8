"""Probe: what a bundle's network made of pictures where it was made, so that machines are told apart."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from vicinal.models.bundle import ModelBundle, default_bundle_path
from vicinal.models.embedder import Embedder
from vicinal.models.errors import BundleError
from vicinal.models.probe import PROBE_FILE, read_probe, write_probe
from vicinal.models.runtime import offers_cuda
from vicinal.service.doctor import _LEAST_PARITY


@pytest.fixture
def copied(tiny_bundle: ModelBundle, tmp_path: Path) -> ModelBundle:
    return ModelBundle.open(shutil.copytree(tiny_bundle.path, tmp_path / "copied"))


def test_pictures_and_embeddings_are_kept(copied: ModelBundle) -> None:
    assert read_probe(copied) is None
    write_probe(copied)
    probe = read_probe(ModelBundle.open(copied.path))
    assert probe is not None
    assert [(one.mode, one.size) for one in probe.pictures] == [("RGB", (64, 64))] * 8
    np.testing.assert_array_equal(Embedder(copied, device="cpu").embed(probe.pictures), probe.embeddings)


def test_what_another_network_made_is_no_probe(copied: ModelBundle) -> None:
    write_probe(copied)
    fields = copied.manifest.model_dump(exclude={"files", "refiner"})
    mean = {**fields["preprocessing"], "mean": (0.4, 0.5, 0.5)}
    other = ModelBundle.write(copied.path, {**fields, "preprocessing": mean})
    assert read_probe(other) is None


@pytest.mark.parametrize("content", [b"", b"no archive", "cut", "of other lengths"])
def test_a_damaged_file_is_named(copied: ModelBundle, content: bytes | str) -> None:
    write_probe(copied)
    path = copied.path / PROBE_FILE
    if content == "of other lengths":
        kept = dict(np.load(path))
        np.savez_compressed(path, **{**kept, "embeddings": kept["embeddings"][:, 1:]})
    else:
        path.write_bytes(path.read_bytes()[:2000] if content == "cut" else content)
    with pytest.raises(BundleError, match=r"'.*probe\.npz' is damaged: copy the bundle again"):
        read_probe(copied)


@pytest.mark.slow
def test_another_way_through_the_bundled_network_is_within_the_tolerance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without ONNX Runtime's optimizations int8 is rounded in other places, as on another machine."""
    bundle = ModelBundle.open(default_bundle_path())
    probe = read_probe(bundle)
    assert probe is not None
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    plain = onnxruntime.InferenceSession(bundle.backbone_path, options, providers=["CPUExecutionProvider"])
    embedder = Embedder(bundle, device="cpu", threads=1)
    for session, least in ((embedder._session, 0.9999), (plain, _LEAST_PARITY)):
        monkeypatch.setattr(embedder, "_session", session)
        embedded = np.concatenate([embedder.embed([one]) for one in probe.pictures])
        parity = (embedded * probe.embeddings).sum(axis=1)
        assert parity.min() >= least
    # That the second way is another one.
    assert parity.max() < 0.99999


@pytest.mark.gpu
@pytest.mark.skipif(not offers_cuda(), reason="this ONNX Runtime is built without CUDA")
def test_a_real_gpu_is_within_the_tolerance() -> None:
    bundle = ModelBundle.open(default_bundle_path())
    probe, embedder = read_probe(bundle), Embedder(bundle, device="cuda")
    assert probe is not None
    assert (embedder.embed(probe.pictures) * probe.embeddings).sum(axis=1).min() >= _LEAST_PARITY
