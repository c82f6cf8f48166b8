"""The doctor tries what an installation needs, and says of each thing what it found."""

from __future__ import annotations

import shutil
import types
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import onnxruntime
import pytest

from tests.service.types import MakeSettings
from tests.stand_in_gpus import stand_in_gpus
from vicinal.calibration.arrays import FloatArray
from vicinal.models.bundle import ModelBundle
from vicinal.models.embedder import Embedder
from vicinal.models.probe import write_probe
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


def probed(bundle: ModelBundle, path: Path) -> ModelBundle:
    copied = ModelBundle.open(shutil.copytree(bundle.path, path))
    write_probe(copied)
    return copied


def test_the_network_is_compared_with_that_of_the_machine_that_made_the_bundle(
    tmp_path: Path, make_settings: MakeSettings, tiny_bundle: ModelBundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert seen(make_settings(tmp_path, bundle=tiny_bundle.path))["reference"].state == "absent"
    settings = make_settings(tmp_path, bundle=probed(tiny_bundle, tmp_path / "copied").path)
    found = seen(settings)["reference"]
    assert (found.state, found.says) == ("ok", "parity 1.000000 with the machine that made the bundle")
    finish, noise = Embedder.finish, np.random.default_rng(0).normal(size=tiny_bundle.dim)

    def cut_off(raw: FloatArray) -> FloatArray:
        """A sixth of each number is lost, more or less: a cosine of about .98."""
        return finish(raw * (1.0 + 0.2 * np.sign(noise)))

    monkeypatch.setattr(Embedder, "finish", staticmethod(cut_off))
    states_then = states(seen(settings))
    assert (states_then["network on CPU"], states_then["reference"]) == ("ok", "failed")


def test_every_gpu_of_faiss_is_searched(tmp_path: Path, make_settings: MakeSettings) -> None:
    """The second finds neighbors in the wrong order, the third has no room."""
    with stand_in_gpus([2**30] * 3) as gpus, pytest.MonkeyPatch.context() as patch:

        def knn_gpu(*arguments: Any, **given: Any) -> Any:
            if given["device"] == 2:
                raise RuntimeError("Error: out of memory\n  in function alloc")
            scores, places = gpus.knn_gpu(*arguments, **given)
            return scores, places[:, :: -1 if given["device"] == 1 else 1]

        patch.setattr(faiss, "knn_gpu", knn_gpu)
        found = seen(make_settings(tmp_path))
    assert [found[f"Faiss on GPU {number}"].state for number in range(3)] == ["ok", "warning", "warning"]
    assert found["Faiss on GPU 2"].says == "cuda:2 failed: Error: out of memory in function alloc"


def test_a_folder_that_cannot_be_written_fails_and_a_full_disk_is_a_warning(
    tmp_path: Path, make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    assert seen(make_settings(tmp_path / "file" / "data"))["data"].state == "failed"
    assert seen(make_settings(tmp_path / "new" / "data"))["data"].state == "ok"
    assert not (tmp_path / "new").exists()
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: types.SimpleNamespace(free=2**20))
    assert seen(make_settings(tmp_path))["data"].state == "warning"
