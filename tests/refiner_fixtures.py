"""Fixtures of the refiner: small networks, contexts, and bundles that hold them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vicinal.calibration.arrays import FloatArray
from vicinal.models.bundle import ModelBundle
from vicinal.models.refiner_manifest import REFINER_FILE, REFINER_WEIGHTS_FILE
from vicinal.refine.weights import save_weights
from vicinal.training.refiner.config import RefinerConfig

DIM = 24  # that of the tiny bundle

FORMS: list[dict[str, Any]] = [
    {"form": "bare", "n_heads": 1},
    {"form": "bare", "n_heads": 4},
    {"form": "attention"},
    {"form": "attention_mlp"},
    {"form": "attention_mlp", "temperature": 0.5},
    {"form": "attention_mlp", "neighbors": "none"},
    {"form": "bare", "init": "softmax_qe", "temperature": 0.2},
    {"form": "attention_mlp", "init": "softmax_qe", "temperature": 0.2, "shared_temperature": True},
]

# With a length for queries.
LEVELED: list[dict[str, Any]] = [
    {"form": "gated", "init": "softmax_qe", "temperature": 0.2},
    {"form": "attention", "n_heads": 4},
    {"form": "attention_mlp", "n_heads": 4, "init": "softmax_qe", "temperature": 0.2},
]


def config_of(**changes: Any) -> RefinerConfig:
    heads = {} if changes.get("form") == "gated" else {"n_heads": 4}
    return RefinerConfig(**{"n_steps": 2, "n_neighbors": 5, **heads, **changes})


@pytest.fixture(scope="session", params=FORMS, ids=lambda form: " ".join(map(str, form.values())))
def every_form(request: pytest.FixtureRequest) -> RefinerConfig:
    return config_of(**request.param)


@pytest.fixture(scope="session", params=LEVELED, ids=lambda form: form["form"])
def every_level(request: pytest.FixtureRequest) -> RefinerConfig:
    return config_of(level=True, **request.param)


@pytest.fixture(scope="session")
def gated() -> RefinerConfig:
    return config_of(level=True, **LEVELED[0])


@pytest.fixture(scope="session")
def small() -> RefinerConfig:
    return config_of()


@pytest.fixture(scope="session")
def make_network() -> Callable[..., Any]:
    """A network in which no parameter is at its start, so that each of them matters."""
    torch = pytest.importorskip("torch")
    from vicinal.training.refiner.network import ContextRefinerNetwork

    def make(config: RefinerConfig, dim: int = DIM, seed: int = 0) -> Any:
        generator = torch.Generator().manual_seed(seed)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            network = ContextRefinerNetwork(dim, config).eval()
        with torch.no_grad():
            for parameter in (one for one in network.parameters() if one.requires_grad):
                parameter += 0.15 * torch.randn(parameter.shape, generator=generator)
        return network

    return make


@pytest.fixture(scope="session")
def make_radii() -> Callable[..., FloatArray]:
    """Radii of (n, k) neighbors, largest first, as those of real lists are."""

    def make(n: int, k: int = 5, seed: int = 0) -> FloatArray:
        drawn = np.random.default_rng(seed).uniform(0.2, 0.95, size=(n, k, 3))
        return -np.sort(-drawn.astype(np.float32), axis=2)

    return make


@pytest.fixture(scope="session")
def make_bundle(
    tiny_bundle: ModelBundle, make_network: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., ModelBundle]:
    """A copy of the tiny bundle with a refiner of a configuration, its ONNX graph a placeholder."""

    @cache
    def make(config: RefinerConfig) -> ModelBundle:
        path = Path(shutil.copytree(tiny_bundle.path, tmp_path_factory.mktemp("refined") / "refined"))
        network = make_network(config)
        save_weights(path / REFINER_WEIGHTS_FILE, network.step_arrays(), network.architecture)
        (path / REFINER_FILE).write_bytes(b"a placeholder: searches read the weights alone")
        fields = {"architecture": network.architecture, "sides": "both", "rerank": "off"}
        return ModelBundle.open(path).with_refiner(fields)

    return make


@pytest.fixture(scope="session")
def refined_bundle(make_bundle: Callable[..., ModelBundle], small: RefinerConfig) -> ModelBundle:
    return make_bundle(small)
