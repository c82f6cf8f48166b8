"""Export: the bundle gives what torch gives, and a network that does not is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("timm")
onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxscript")

from vicinal.models.bundle import BACKBONE_FILE, ModelBundle  # noqa: E402
from vicinal.models.embedder import Embedder  # noqa: E402
from vicinal.models.errors import BundleError  # noqa: E402
from vicinal.models.similarity import normalize  # noqa: E402
from vicinal.training.backbones.backbone import (  # noqa: E402
    BackboneConfig,
    EmbeddingNetwork,
    build_network,
)
from vicinal.training.export import network as export  # noqa: E402
from vicinal.training.export.network import PARITY_TOLERANCE, export_network  # noqa: E402

pytestmark = pytest.mark.slow

FIELDS: dict[str, Any] = {
    "name": "tiny-net",
    "backbone": "resnet18",
    "preprocessing": {"input_size": 32, "fit": "squash"},
}


@pytest.fixture(scope="module")
def network(tiny_backbone: BackboneConfig) -> EmbeddingNetwork:
    """Random weights, after a forward pass so that the batch norms hold statistics of their own."""
    torch.manual_seed(0)
    built = build_network(tiny_backbone).train()
    built(torch.randn(16, 3, 32, 32) * 2 + 1)
    return built


@pytest.fixture(scope="module")
def exported(network: EmbeddingNetwork, tmp_path_factory: pytest.TempPathFactory) -> ModelBundle:
    return export_network(network, tmp_path_factory.mktemp("exports") / "tiny-net", FIELDS)


@pytest.fixture
def write_perturbed(exported: ModelBundle, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Make the exporter write the right network with its largest tensor scaled by `1 + share`."""

    def install(share: float) -> None:
        model = onnx.load(exported.backbone_path)
        tensor = max(model.graph.initializer, key=lambda initializer: np.prod(initializer.dims))
        values = onnx.numpy_helper.to_array(tensor).copy()
        values *= 1 + share
        tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
        monkeypatch.setattr(export, "write_onnx", lambda _net, _in, path, **_: onnx.save(model, path))

    return install


def _images(n_images: int) -> np.ndarray:
    return np.random.default_rng(7).normal(size=(n_images, 3, 32, 32)).astype(np.float32)


@pytest.mark.parametrize("n_images", [1, 2, 9])
def test_bundle_gives_what_torch_gives(
    network: EmbeddingNetwork, exported: ModelBundle, n_images: int
) -> None:
    """In every batch size, though the exporter saw one only."""
    embedder = Embedder(exported, device="cpu", threads=1)
    with torch.inference_mode():
        expected = normalize(network.eval()(torch.from_numpy(_images(n_images))).numpy())
    actual = embedder.finish(embedder.infer(list(_images(n_images))))
    assert np.abs(actual - expected).max() < PARITY_TOLERANCE


def test_weights_lie_inside_the_network_file(exported: ModelBundle) -> None:
    """A second file of weights would not be covered by the checksum."""
    assert sorted(file.name for file in exported.path.iterdir()) == [BACKBONE_FILE, "bundle.json"]
    model = onnx.load(exported.backbone_path, load_external_data=False)
    assert not any(tensor.external_data for tensor in model.graph.initializer)


def test_network_that_differs_fails_the_parity_check(
    network: EmbeddingNetwork, write_perturbed: Callable[[float], None], tmp_path: Path
) -> None:
    write_perturbed(0.05)
    with pytest.raises(BundleError, match=r"ONNX Runtime and torch differ by .* at most 1e-04"):
        export_network(network, tmp_path, FIELDS)
    with pytest.raises(BundleError):
        ModelBundle.open(tmp_path)


def test_network_that_cannot_be_exported_is_refused(tiny_backbone: BackboneConfig, tmp_path: Path) -> None:
    class Undecided(torch.nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return images if images.sum().item() > 0 else images[:, :1]

    undecided = EmbeddingNetwork(Undecided(), 3, tiny_backbone)
    with pytest.raises(BundleError, match="cannot be exported to ONNX"):
        export_network(undecided, tmp_path, FIELDS)
