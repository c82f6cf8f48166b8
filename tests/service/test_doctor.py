"""The doctor tries what an installation needs, and says of each thing what it found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnxruntime
import pytest

from tests.service.types import MakeSettings
from vicinal.calibration.arrays import FloatArray
from vicinal.models.embedder import Embedder
from vicinal.service import doctor
from vicinal.service.doctor import Finding, examine
from vicinal.service.settings import Settings

Seen = dict[str, Finding]


def seen(settings: Settings) -> Seen:
    return {one.name: one for one in examine(settings)}


def states(found: Seen) -> dict[str, str]:
    return {name: one.state for name, one in found.items()}


def test_a_healthy_installation_fails_in_nothing(calibrated_dir: Path, make_settings: MakeSettings) -> None:
    found = seen(make_settings(calibrated_dir))
    assert not {"failed", "warning"} & set(states(found).values()), found
    assert {name for name, state in states(found).items() if state == "absent"} >= {"GPU", "Redis"}
    assert "holds 1 gallery" in found["data"].says
    assert onnxruntime.__version__ in " ".join(one.says for one in examine(make_settings(calibrated_dir)))


@pytest.mark.parametrize(
    ("there", "says"),
    [
        (("faiss-cpu", "faiss-gpu", "onnxruntime"), "faiss-cpu 1 and faiss-gpu 1 exclude each other"),
        (
            ("faiss-gpu", "faiss-gpu-cuvs", "onnxruntime-gpu"),
            "faiss-gpu 1 and faiss-gpu-cuvs 1 exclude each other",
        ),
        (("faiss-cpu",), "onnxruntime or onnxruntime-gpu is needed"),
    ],
)
def test_packages_that_exclude_each_other_or_are_missing_are_named(
    tmp_path: Path,
    make_settings: MakeSettings,
    monkeypatch: pytest.MonkeyPatch,
    there: tuple[str, ...],
    says: str,
) -> None:
    monkeypatch.setattr(doctor, "_version", lambda name: "1" if name in there else None)
    failed = [one for one in examine(make_settings(tmp_path)) if one.state == "failed"]
    assert [one.name for one in failed] == ["packages"]
    assert says in failed[0].says


@pytest.mark.parametrize(("device", "state"), [("cuda", "failed"), ("auto", "warning")])
def test_a_provider_that_is_listed_and_does_not_work_is_found_out(
    tmp_path: Path,
    make_settings: MakeSettings,
    monkeypatch: pytest.MonkeyPatch,
    device: str,
    state: str,
) -> None:
    listed = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: listed)
    found = seen(make_settings(tmp_path, device=device))
    assert found["network on CUDA"].state == state
    assert "CUDAExecutionProvider" in found["network on CUDA"].says


def test_a_network_that_embeds_otherwise_in_company_is_found_out(
    tmp_path: Path, make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    embed = Embedder.embed

    def shuffled(embedder: Embedder, images: list[Any]) -> FloatArray:
        return embed(embedder, images)[::-1]

    monkeypatch.setattr(Embedder, "embed", shuffled)
    found = seen(make_settings(tmp_path))["network on CPU"]
    assert (found.state, "differ" in found.says) == ("failed", True)
