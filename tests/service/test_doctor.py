"""The doctor tries what an installation needs, and says of each thing what it found."""

from __future__ import annotations

import json
import shutil
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import onnxruntime
import pytest
from typer.testing import CliRunner

from tests.ports import free_port
from tests.service.redis_server import RedisServer
from tests.service.types import MakeSettings, Run
from tests.stand_in_gpus import stand_in_gpus
from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.storage.home.joining import join
from vicinal.models.bundle import MANIFEST_FILE, ModelBundle, space_manifest
from vicinal.models.embedder import Embedder
from vicinal.models.probe import PROBE_FILE, write_probe
from vicinal.service import doctor
from vicinal.service.cli.main import app
from vicinal.service.doctor import Finding, examine
from vicinal.service.settings import Settings

Seen = dict[str, Finding]


@pytest.fixture(autouse=True)
def no_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """A machine without a GPU; the function puts a program in the place of the driver's."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def put(script: str) -> None:
        path = folder / "nvidia-smi"
        path.write_text(f"#!{shutil.which('sh', path='/bin:/usr/bin')}\n{script}\n")
        path.chmod(0o755)

    return put


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


def test_the_command_prints_it_and_says_by_its_status_whether_all_is_well(
    run: Run, tiny_bundle: ModelBundle, tmp_path: Path
) -> None:
    shown = run("doctor", "--data-dir", tmp_path / "data").stdout
    assert ("Faiss" in shown, "parity" in shown, "failed" in shown) == (True, True, False)
    broken = Path(shutil.copytree(tiny_bundle.path, tmp_path / "broken"))
    (broken / "backbone.onnx").write_bytes(b"nothing")
    result = CliRunner().invoke(app, ["doctor", "--bundle", str(broken), "--json"])
    told = {one["name"]: one for one in json.loads(result.stdout)}
    assert (result.exit_code, told["bundle"]["state"], told["Faiss"]["state"]) == (1, "failed", "ok")
    assert "backbone.onnx" in told["bundle"]["says"]


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


def test_gpus_are_listed_as_the_driver_tells(
    tmp_path: Path, make_settings: MakeSettings, no_driver: Callable[[str], None]
) -> None:
    no_driver("echo '0, GPU-a, T4, 15360, 14848, 550.54'; echo '1, GPU-b, T4, 15360, 512, 550.54'")
    listed = [one.says for one in examine(make_settings(tmp_path)) if one.name == "GPU"]
    assert listed == [
        "0: T4, 14.5 of 15.0 GiB free, driver 550.54",
        "1: T4, 0.5 of 15.0 GiB free, driver 550.54",
    ]
    no_driver("echo 'Failed to initialize NVML'; exit 9")
    assert seen(make_settings(tmp_path))["GPU"].state == "warning"


@pytest.mark.parametrize(("device", "state"), [("cuda", "failed"), ("auto", "absent")])
def test_cuda_that_is_not_there_fails_only_who_asks_for_it(
    tmp_path: Path, make_settings: MakeSettings, device: str, state: str
) -> None:
    assert seen(make_settings(tmp_path, device=device))["network on CUDA"].state == state


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


def test_a_damaged_reference_is_a_warning(
    tmp_path: Path, make_settings: MakeSettings, tiny_bundle: ModelBundle
) -> None:
    copied = probed(tiny_bundle, tmp_path / "copied")
    (copied.path / PROBE_FILE).write_bytes(b"nothing")
    found = seen(make_settings(tmp_path, bundle=copied.path))
    assert (found["reference"].state, found["network on CPU"].state) == ("warning", "ok")
    assert "probe.npz' is damaged" in found["reference"].says


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


def test_faiss_that_finds_nothing_fails(
    tmp_path: Path, make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(index: object, queries: FloatArray, n: int) -> Any:
        return np.full((len(queries), n), -1)

    monkeypatch.setattr(doctor.FaissIndex, "search", lost)
    assert seen(make_settings(tmp_path))["Faiss"].state == "failed"


@pytest.mark.slow
def test_redis_is_asked(tmp_path: Path, make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    away = make_settings(tmp_path, redis_url=f"redis://127.0.0.1:{free_port()}/0")
    assert (seen(away)["Redis"].state, "does not answer" in seen(away)["Redis"].says) == ("failed", True)
    monkeypatch.undo()
    server = RedisServer(tmp_path / "redis")
    server.start()
    try:
        found = seen(make_settings(tmp_path, redis_url=server.url))["Redis"]
    finally:
        server.stop()
    assert (found.state, "answers in" in found.says) == ("ok", True)


def test_the_home_is_asked_and_not_joined(tmp_path: Path, make_settings: MakeSettings) -> None:
    home, data = tmp_path / "home", tmp_path / "data"
    assert seen(make_settings(data))["home"].state == "absent"
    home.mkdir()
    settings = make_settings(data, home=str(home))
    found = seen(settings)["home"]
    assert (found.state, "takes each name once" in found.says, data.exists()) == ("ok", True, False)
    mirror = join(data, str(home))
    found = seen(settings)["home"]
    assert (found.state, f"this is {mirror.replica}" in found.says) == ("ok", True)
    with mirror.changing("shoes"):
        assert f"'shoes' by replica {mirror.replica}" in seen(settings)["home"].says
    shutil.rmtree(home)
    assert seen(settings)["home"].state == "failed"


def test_a_folder_that_cannot_be_written_fails_and_a_full_disk_is_a_warning(
    tmp_path: Path, make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    assert seen(make_settings(tmp_path / "file" / "data"))["data"].state == "failed"
    assert seen(make_settings(tmp_path / "new" / "data"))["data"].state == "ok"
    assert not (tmp_path / "new").exists()
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: types.SimpleNamespace(free=2**20))
    assert seen(make_settings(tmp_path))["data"].state == "warning"


def test_a_space_has_no_network_to_run(tmp_path: Path, make_settings: MakeSettings) -> None:
    space = tmp_path / "space"
    space.mkdir()
    (space / MANIFEST_FILE).write_text(space_manifest("clip-vit-b32", 4).model_dump_json())
    found = states(seen(make_settings(tmp_path, bundle=space)))
    assert (found["bundle"], "network on CPU" in found) == ("ok", False)
