"""ONNX Runtime sessions: errors name the file, and the device in use is the one reported."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import onnxruntime
import pytest

from tests.logs import said_by
from vicinal.models import runtime
from vicinal.models.bundle import BACKBONE_FILE, ModelBundle, sha256_of
from vicinal.models.errors import BundleError, MissingPackageError
from vicinal.models.runtime import open_session, session_device


def _backbone(bundle: ModelBundle) -> tuple[Path, str]:
    return bundle.backbone_path, bundle.manifest.files[BACKBONE_FILE]


@pytest.mark.parametrize("is_whole", [True, False])
def test_int8_is_computed_whole_on_every_processor_and_slowly_on_none_that_need_not(
    tiny_bundle: ModelBundle, monkeypatch: pytest.MonkeyPatch, is_whole: bool
) -> None:
    """What is asked for costs twice the time with VNNI too; `export/test_forms.py` sees what it mends."""
    monkeypatch.setattr(runtime, "sums_whole", lambda: is_whole)
    options = open_session(*_backbone(tiny_bundle), device="cpu").get_session_options()
    if is_whole:
        with pytest.raises(RuntimeError, match="x64quantprecision"):
            options.get_session_config_entry("session.x64quantprecision")
    else:
        assert options.get_session_config_entry("session.x64quantprecision") == "1"


@pytest.mark.parametrize(
    ("flags", "is_whole"),
    [
        ("fpu avx2 avx512f avx512_vnni", True),
        ("fpu avx2 avx_vnni", True),
        ("fpu avx2 avx512f avx512bw", False),
        (None, False),
    ],
)
def test_a_processor_says_whether_it_sums_products_of_8_bits_whole(
    tmp_path: Path, flags: str | None, is_whole: bool
) -> None:
    path = tmp_path / "cpuinfo"
    if flags is not None:
        path.write_text(f"processor : 0\nflags : {flags}\n")
    assert runtime.sums_whole(path) is is_whole


@pytest.mark.skipif(
    "CUDAExecutionProvider" in onnxruntime.get_available_providers(), reason="a GPU build is installed"
)
@pytest.mark.filterwarnings("ignore:Specified provider:UserWarning")  # ONNX Runtime's own words on it
def test_cuda_that_is_not_to_be_had_is_refused(tiny_bundle: ModelBundle) -> None:
    """Whoever asks for the GPU never gets the CPU in silence."""
    with pytest.raises(BundleError, match=r"onnxruntime-gpu"):
        open_session(*_backbone(tiny_bundle), device="cuda")


@pytest.mark.skipif(
    "CUDAExecutionProvider" in onnxruntime.get_available_providers(), reason="a GPU build is installed"
)
@pytest.mark.filterwarnings("ignore:Specified provider:UserWarning")
def test_auto_logs_the_fallback_to_cpu(
    tiny_bundle: ModelBundle, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Stands in for a GPU build whose CUDA libraries do not load."""
    offered = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: offered)
    with caplog.at_level(logging.WARNING, logger=runtime.logger.name):
        open_session(*_backbone(tiny_bundle))
    (message,) = said_by(caplog, runtime.logger.name)
    assert "fell back to CPUExecutionProvider" in message


@pytest.mark.parametrize("content", [b"", b"no network", bytes(200)])
def test_file_that_is_no_network_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.onnx"
    path.write_bytes(content)
    with pytest.raises(BundleError, match=r"cannot load '.*broken\.onnx'"):
        open_session(path, sha256_of(path), device="cpu")


def test_a_network_that_was_changed_is_refused(tiny_bundle: ModelBundle, tmp_path: Path) -> None:
    """Also between the opening of its bundle and its own."""
    encoded = bytearray(tiny_bundle.backbone_path.read_bytes())
    encoded[len(encoded) // 2] ^= 1
    (tmp_path / "changed.onnx").write_bytes(encoded)
    with pytest.raises(BundleError, match=r"changed\.onnx': it is damaged or was changed"):
        open_session(tmp_path / "changed.onnx", _backbone(tiny_bundle)[1], device="cpu")


def test_missing_onnxruntime_says_what_to_install(
    tiny_bundle: ModelBundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'faiss-cpu") as caught:
        open_session(*_backbone(tiny_bundle))
    assert (caught.value.package, caught.value.extra) == ("onnxruntime", "cpu")


REPOSITORY = Path(__file__).resolve().parents[2]
OPENS = """
import pathlib, sys
from vicinal.models.runtime import open_session
open_session(pathlib.Path(sys.argv[1]), sys.argv[2], device="cpu", threads=1)
"""


def _left_at_home(bundle: ModelBundle, home: Path, **variables: str) -> list[Path]:
    """What a process that opens a network leaves in an empty home folder."""
    home.mkdir()
    # Nothing else of the environment: where it says that tests run, nothing is reported anyway.
    subprocess.run(
        [sys.executable, "-c", OPENS, *map(str, _backbone(bundle))],
        env={"PATH": os.environ["PATH"], "HOME": str(home), **variables},
        cwd=REPOSITORY,
        check=True,
        timeout=120,
    )
    return sorted(home.rglob("*"))


@pytest.mark.slow
def test_onnx_runtime_reports_nothing_to_anybody(tiny_bundle: ModelBundle, tmp_path: Path) -> None:
    """Where it does, it keeps an id of the machine and what it has yet to send in the home folder."""
    assert _left_at_home(tiny_bundle, tmp_path / "home") == []
    version = tuple(int(part) for part in onnxruntime.__version__.split(".")[:2])
    if version >= (1, 29) and sys.platform == "linux":
        # Negative control: it would. By a proxy that is not there nothing leaves this machine.
        nowhere = {"https_proxy": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9"}
        assert _left_at_home(tiny_bundle, tmp_path / "other", ORT_DISABLE_TELEMETRY="0", **nowhere) != []


@pytest.mark.parametrize(("device", "number"), [("auto", "0"), ("cuda", "0"), ("cuda:3", "3")])
def test_the_gpu_is_named_to_onnx_runtime(
    tiny_bundle: ModelBundle,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    device: str,
    number: str,
) -> None:
    """After CUDA was loaded; a session that says that it is on CUDA stands in for one that is."""
    given: list[object] = []

    def session(_: bytes, options: object, providers: list[object]) -> object:
        given.extend(providers)
        return SimpleNamespace(get_providers=lambda: ["CUDAExecutionProvider"])

    monkeypatch.setattr(runtime, "offers_cuda", lambda: True)
    monkeypatch.setattr(onnxruntime, "InferenceSession", session)
    monkeypatch.setattr(
        onnxruntime, "preload_dlls", lambda: given.append(sys.stdout.write("?")), raising=False
    )
    open_session(*_backbone(tiny_bundle), device=device)
    options = {"device_id": number, "cudnn_conv_algo_search": "HEURISTIC", "use_tf32": "0"}
    assert given == [1, ("CUDAExecutionProvider", options), "CPUExecutionProvider"]
    # Standard output may be JSON that a script reads.
    assert capsys.readouterr() == ("", "?")


def test_the_device_is_that_of_the_session(tiny_bundle: ModelBundle) -> None:
    session = open_session(*_backbone(tiny_bundle), device="cpu", threads=1)
    assert session_device(session) == "cpu"
    options = {"CUDAExecutionProvider": {"device_id": "2"}, "CPUExecutionProvider": {}}
    names = list(options)
    on_gpu = SimpleNamespace(get_providers=lambda: names, get_provider_options=lambda: options)
    assert session_device(on_gpu) == "cuda:2"
