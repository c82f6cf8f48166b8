"""A damaged gallery is named everywhere with what to do, and hides no other."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner, Result

from tests.damaged_rows import damage_pointer
from tests.service.types import MakeSettings
from vicinal.service.cli import app
from vicinal.service.doctor import examine
from vicinal.service.http.app import create_app
from vicinal.service.words import in_commands


def written(name: str, content: bytes) -> Callable[[Path], None]:
    return lambda folder: [path.write_bytes(content) for path in folder.glob(name)] and None


def removed(name: str) -> Callable[[Path], None]:
    def remove(folder: Path) -> None:
        for path in [*folder.glob(name)]:
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return remove


def both(*damages: Callable[[Path], None]) -> Callable[[Path], None]:
    return lambda folder: [damage(folder) for damage in damages] and None


DAMAGES = {
    "last move": damage_pointer,
    "all moves": lambda folder: damage_pointer(folder, n_moves=100),
    "state of noise": written("gallery.db", b"\xff" * 300),
    "table and versions gone": both(removed("versions"), removed("items.lance")),
    "rows and versions gone": both(removed("versions"), removed("items.lance/data")),
    "noise in place of the table's heads": both(
        removed("versions"), written("items.lance/_versions/*", b"\xff" * 300)
    ),
}
pytestmark = pytest.mark.usefixtures("cli_environment")


def run(*words: object) -> Result:
    return CliRunner().invoke(app, [str(one) for one in words])


@pytest.fixture
def damaged_dir(data_dir: Path, request: pytest.FixtureRequest) -> Path:
    """Three galleries, of which that in the middle is damaged."""
    root = data_dir / "galleries"
    for name in ("boots", "zebras"):
        shutil.copytree(root / "shoes", root / name)
    request.param(root / "shoes")
    return data_dir


every_damage = pytest.mark.parametrize("damaged_dir", DAMAGES.values(), ids=DAMAGES, indirect=True)
every_pointer = pytest.mark.parametrize(
    "damaged_dir", [DAMAGES["last move"], DAMAGES["all moves"]], indirect=True
)


@pytest.mark.slow
@every_damage
def test_the_service_tells_of_it_and_of_the_others(damaged_dir: Path, make_settings: MakeSettings) -> None:
    with TestClient(create_app(make_settings(damaged_dir))) as client:
        listed = client.get("/v1/galleries").json()
        ready = client.get("/readyz")
        states = {one["name"]: one["problem"] for one in ready.json()["galleries"]}
        assert [one["name"] for one in listed["galleries"]] == ["boots", "zebras"]
        assert listed["problems"].keys() == {"shoes"}
        assert (ready.status_code, states["boots"], states["zebras"]) == (503, None, None)
        assert states["shoes"]
        assert client.get("/metrics").status_code == 200
        assert client.post("/v1/galleries/boots/search", json={"item_id": "plain/view 0.png"}).is_success


@pytest.mark.slow
@every_pointer
@pytest.mark.parametrize("ask", ["list", "check", "doctor"])
def test_the_advice_for_a_damaged_pointer_works_as_it_is_printed(
    damaged_dir: Path, make_settings: MakeSettings, ask: str
) -> None:
    if ask == "doctor":
        said = " ".join(one.says for one in examine(make_settings(damaged_dir)))
    else:
        words = ("list",) if ask == "list" else ("check", "shoes")
        done = run("gallery", *words, "--data-dir", damaged_dir)
        said = done.stdout + ("" if done.exception is None else in_commands(done.exception))
    advice = re.search("`vicinal (gallery activate .*?)`", said)
    assert advice is not None
    done = run(*shlex.split(advice[1]))
    assert done.exit_code == 0, done.stderr
    assert run("gallery", "check", "shoes", "--data-dir", damaged_dir).exit_code == 0
