"""Images: what their Dockerfiles say, and what their packages resolve to."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.dockerfiles import ignored, steps_of
from tests.networks import outer_network

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
DOCKERFILES = [DEPLOY / "Dockerfile", DEPLOY / "Dockerfile.gpu"]


def last(steps: list[tuple[str, str]], instruction: str) -> str:
    return next(value for name, value in reversed(steps) if name == instruction)


def extras_of(dockerfile: Path) -> set[str]:
    """Extras that the wheel is installed with."""
    (found,) = re.findall(r"\.whl\)\[([\w,]+)\]", dockerfile.read_text(encoding="utf-8"))
    return set(found.split(","))


def of_last_stage(steps: list[tuple[str, str]]) -> list[tuple[str, str]]:
    begins = max(n for n, (name, _) in enumerate(steps) if name == "FROM")
    return steps[begins:]


@pytest.mark.slow
@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.name)
def test_an_image_is_what_operators_expect(dockerfile: Path) -> None:
    steps = steps_of(dockerfile)
    bases = [value.partition(" AS ")[0] for name, value in steps if name == "FROM"]
    assert len(bases) == 2
    assert all(re.fullmatch(r"[a-z/]+:\d[\w.-]+", base) for base in bases), "a base without a tag"
    ending = of_last_stage(steps)
    assert last(ending, "USER") == "10001:10001"
    assert last(ending, "STOPSIGNAL") == "SIGTERM"
    assert last(ending, "VOLUME") == "/data"
    assert "PYTHONDONTWRITEBYTECODE=1" in last(ending, "ENV")
    assert last(ending, "ENTRYPOINT") == '["vicinal"]'
    assert "/livez" in last(ending, "HEALTHCHECK")
    assert "curl" not in last(ending, "HEALTHCHECK")
    # What is installed comes from the stage before: no compiler, no pip and no sources of ours.
    assert not [value for name, value in ending if name == "RUN" and "pip" in value.split()]
    assert [value for name, value in ending if name == "COPY"] == ["--from=build /opt/vicinal /opt/vicinal"]


def test_the_context_is_closed_but_for_what_is_copied() -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    patterns = [line for line in lines if line and not line.startswith("#")]
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    sent = {path.partition("/")[0] for path in tracked.stdout.splitlines() if not ignored(path, patterns)}
    copied = {
        word
        for name, value in steps_of(DOCKERFILES[0])
        if name == "COPY" and not value.startswith("--from")
        for word in value.split()[:-1]
    }
    assert sent == copied
    for path in (".git/config", ".venv/bin/python", "deploy/.env", "service/__pycache__/a.pyc", "key.pem"):
        assert ignored(path, patterns), path


# Neither a machine with a driver alone nor the base of the image has cuDNN.
GPU_PACKAGES = {
    "gpu": ({"faiss-gpu", "nvidia-cudnn-cu12", "nvidia-cufft-cu12"}, "cu1[013-9]", (1, 25)),
    "gpu13": ({"faiss-gpu-cuvs", "nvidia-cudnn-cu13", "nvidia-cufft"}, "cu1[0-24-9]", (1, 29)),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", GPU_PACKAGES)
def test_the_extras_of_a_gpu_resolve_to_packages_of_their_cuda(kind: str) -> None:
    """Only the resolution: the packages themselves are over a gigabyte."""
    wanted, others, runtime = GPU_PACKAGES[kind]
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert uv is not None
    command = [uv, "pip", "compile", "--quiet", "--no-header", "--no-annotate"]
    command += ["--python-version", "3.12", "--python-platform", "linux", "-c", ROOT / "constraints.txt"]
    for extra in {*extras_of(DOCKERFILES[1]) - {"gpu"}, kind}:
        command += ["--extra", extra]
    command += [ROOT / "pyproject.toml"]
    # pip trusts what the machine trusts, such as the proxy of a company; uv does when it is asked to.
    trusting = {**os.environ, "UV_NATIVE_TLS": "true"}
    with outer_network():
        resolved = subprocess.run(command, capture_output=True, text=True, check=False, env=trusting)
    assert resolved.returncode == 0, resolved.stderr
    versions = dict(line.split("==") for line in resolved.stdout.splitlines())
    found = tuple(map(int, versions["onnxruntime-gpu"].split(".")[:2]))
    assert found <= runtime if kind == "gpu" else found >= runtime
    assert wanted <= versions.keys()
    assert {name for name in versions if re.search(f"{others}|^torch|onnxruntime$|faiss-cpu", name)} == set()
