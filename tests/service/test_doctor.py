"""The doctor tries what an installation needs, and says of each thing what it found."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import onnxruntime
import pytest

from tests.service.types import MakeSettings
from vicinal.models.bundle import ModelBundle
from vicinal.models.probe import read_probe, write_probe
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
    assert {name for name, state in states(found).items() if state == "absent"} == {"GPU"}
    assert "holds 1 gallery" in found["data"].says
    assert found["gallery shoes"].says == "60 items"
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


def test_a_device_that_is_asked_for_and_does_not_work_is_found_out(
    tmp_path: Path, make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: listed)
    found = seen(make_settings(tmp_path, device="cuda"))["network"]
    assert (found.state, "CUDAExecutionProvider" in found.says) == ("failed", True)


def test_a_network_that_embeds_otherwise_than_where_it_was_made_is_found_out(
    tmp_path: Path, make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch, tiny_bundle: ModelBundle
) -> None:
    made = ModelBundle.open(shutil.copytree(tiny_bundle.path, tmp_path / "made"))
    write_probe(made)
    probe = read_probe(made)
    assert probe is not None
    settings = make_settings(tmp_path, bundle=made.path)
    assert "parity 1.0" in seen(settings)["network"].says
    monkeypatch.setattr(doctor, "read_probe", lambda _: replace(probe, embeddings=-probe.embeddings))
    found = seen(settings)["network"]
    assert (found.state, "embeddings differ" in found.says) == ("failed", True)
