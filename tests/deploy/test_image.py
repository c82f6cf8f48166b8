"""The CPU image, built and run without a container engine: see `tests.deploy.image_tree`."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from PIL import Image

from tests.deploy.image_tree import ImageTree, ignored, steps_of
from tests.networks import outer_network
from tests.ports import free_port
from tests.waiting import wait_until

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


@pytest.fixture(scope="module")
def image() -> Iterator[ImageTree]:
    # Not below pytest's own folder, which other users cannot enter.
    with tempfile.TemporaryDirectory(prefix="vicinal-image-") as folder:
        Path(folder).chmod(0o755)
        built = ImageTree(DOCKERFILES[0], ROOT, Path(folder))
        built.build()
        print(f"not run of {DOCKERFILES[0].name}: {built.skipped}")
        yield built


@contextmanager
def served(image: ImageTree) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """Port and process of the image's own command, once its health check says that it is well."""
    port = free_port()
    command = [*image.words("ENTRYPOINT"), *image.words("CMD")]
    server = image.start(command, VICINAL_PORT=str(port))
    try:
        wait_until(lambda: server.poll() is not None or is_well(image, port), every=0.5)
        assert server.poll() is None, server.communicate()[0]
        yield port, server
    finally:
        if server.poll() is None:
            server.kill()
        server.communicate()


def is_well(image: ImageTree, port: int) -> bool:
    return image.run(image.words("HEALTHCHECK"), VICINAL_PORT=str(port))[0] == 0


@pytest.mark.slow
def test_the_tree_is_read_only_for_who_runs_in_it(image: ImageTree) -> None:
    """Negative control of the next test: what it would notice cannot be done by accident."""
    for path in ("/opt/vicinal/new", "/new"):
        assert image.run(["sh", "-c", f"echo > {image.map_text('/opt').removesuffix('/opt')}{path}"])[0] != 0
    assert image.run(["sh", "-c", "echo > /data/new && rm /data/new"])[0] == 0


@pytest.mark.slow
def test_the_image_serves_from_a_read_only_tree(image: ImageTree) -> None:
    before = image.state()
    status, key = image.run(["vicinal", "keys", "create", "test", "--scope", "search"])
    assert status == 0, key
    pictures = image.folder / "photos" / "shoe"
    pictures.mkdir(parents=True)
    for number in range(8):
        Image.effect_noise((64, 64), 30 + 10 * number).convert("RGB").save(pictures / f"{number}.png")
    status, printed = image.run(["vicinal", "index", str(pictures.parent), "--gallery", "shop"])
    assert status == 0, printed
    with served(image) as (port, server):
        answer = httpx.post(
            f"http://127.0.0.1:{port}/v1/galleries/shop/search",
            files={"image": (pictures / "3.png").read_bytes()},
            data={"include_candidates": "true"},
            headers={"Authorization": f"Bearer {key.split()[-1]}"},
            timeout=120,
        )
        assert answer.status_code == 200, answer.text
        found = answer.json()["matches"] + answer.json()["candidates"]
        assert found[0]["id"] == "photos/shoe/3.png"
        server.send_signal(signal.SIGTERM)
        printed, _ = server.communicate(timeout=120)
    assert server.returncode == 0, printed
    assert "Traceback" not in printed
    assert image.state() == before
    assert not Path("/nonexistent").exists()
    assert strays(image) == []


def strays(image: ImageTree) -> list[Path]:
    """Files of the image's user that lie in folders of the machine which everybody may write to."""
    if not image.as_user:
        return []
    open_to_all = [Path(name) for name in ("/tmp", "/var/tmp", "/dev/shm", "/run/lock")]
    return [
        path
        for folder in open_to_all
        for path in folder.glob("*")
        if path != image.folder and path.lstat().st_uid == image.as_user["user"]
    ]


@pytest.mark.slow
def test_the_health_check_fails_where_nobody_answers(image: ImageTree) -> None:
    """Negative control."""
    assert not is_well(image, free_port())


@pytest.mark.slow
def test_packages_have_the_versions_of_the_constraints(image: ImageTree) -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = dict(line.split("==") for line in lines if "==" in line)
    code = (
        "import importlib.metadata as m\n"
        "for d in m.distributions(): print(d.name.lower().replace('_', '-'), d.version)"
    )
    status, printed = image.run(["python", "-c", code])
    assert status == 0, printed
    installed = dict(line.split() for line in printed.splitlines())
    known = {name.lower().replace("_", "-"): version for name, version in pinned.items()}
    both = installed.keys() & known.keys()
    assert {"numpy", "onnxruntime", "redis", "pillow-heif"} <= both
    assert {name: installed[name] for name in both} == {name: known[name] for name in both}


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
