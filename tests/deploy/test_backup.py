"""Backup of a server that runs and is changed, and what a restore of it answers."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

from benchmarks.common.server_process import running_server
from tests.forks import forked_python
from tests.waiting import wait_until
from vicinal.models.bundle import ModelBundle
from vicinal.models.demo_catalog import write_demo_catalog

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
SEARCH, ITEMS = "/v1/galleries/shop/search", "/v1/galleries/shop/items"


class Machine:
    """A data folder with what runs on it.

    Args:
        data: The folder.
        bundle: What embeds.
        folder: Where the command `vicinal` is made.
    """

    def __init__(self, data: Path, bundle: Path, folder: Path) -> None:
        self.data, self.bundle = data, bundle
        command = folder / "vicinal"
        command.write_text(
            f'#!/bin/sh\nexec {shlex.join(forked_python())} -m vicinal "$@"\n', encoding="utf-8"
        )
        command.chmod(0o755)
        outer = {name: value for name, value in os.environ.items() if not name.startswith("VICINAL_")}
        self.variables = {
            **outer,
            "PATH": f"{folder}:{outer['PATH']}",
            "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
            "VICINAL_DATA_DIR": str(data),
            "VICINAL_BUNDLE": str(bundle),
            "VICINAL_DEVICE": "cpu",
        }

    def run(self, *command: object, fails: bool = False) -> str:
        """What a command prints on both streams."""
        done = subprocess.run(
            [str(one) for one in command],
            env=self.variables,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert (done.returncode != 0) is fails, done.stdout
        return done.stdout

    def serving(self) -> Any:
        """Context with the base URL and process of a server."""
        return running_server(self.data, self.bundle, {"PYTHONPATH": self.variables["PYTHONPATH"]})


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("catalog")
    made = write_demo_catalog(
        folder / "made", n_products=12, n_absent=4, n_views=8, n_gallery_views=6, size=64
    )
    made.gallery.rename(folder / "photos")
    (folder / "made/queries").rename(folder / "queries")
    return folder


@pytest.fixture(scope="module")
def first(catalog: Path, tiny_bundle: ModelBundle) -> Machine:
    """Gallery, threshold, alias, a key and one that was revoked; not to be changed."""
    machine = Machine(catalog / "data", tiny_bundle.path, catalog)
    machine.run("vicinal", "index", catalog / "photos", "--gallery", "shop")
    machine.run("vicinal", "calibrate", "--gallery", "shop", "--target", "fpir=20%")
    machine.run("vicinal", "gallery", "alias", "store", "shop")
    for name in ("kept", "gone"):
        key = machine.run("vicinal", "keys", "create", name, "-s", "search", "-s", "write").split()[-1]
        machine.variables[name] = key
    machine.run("vicinal", "keys", "revoke", "gone")
    return machine


@pytest.fixture
def machine(first: Machine, tmp_path: Path) -> Machine:
    """The same, for one test to change."""
    shutil.copytree(first.data, tmp_path / "data", symlinks=True)
    made = Machine(tmp_path / "data", first.bundle, tmp_path)
    made.variables.update({name: first.variables[name] for name in ("kept", "gone")})
    return made


@pytest.fixture
def other(machine: Machine, tmp_path: Path) -> Machine:
    """A machine without a data folder, where the same keys are known to people."""
    (tmp_path / "other").mkdir()
    made = Machine(tmp_path / "other/data", machine.bundle, tmp_path / "other")
    made.variables.update({name: machine.variables[name] for name in ("kept", "gone")})
    return made


def client_of(url: str, key: str) -> httpx.Client:
    return httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=120)


def answers(client: httpx.Client, pictures: list[Path], gallery: str = "shop") -> list[dict[str, Any]]:
    """All that searches say, without the time that they took and their ids."""
    found = []
    for picture in pictures:
        answer = client.post(
            f"/v1/galleries/{gallery}/search",
            files={"image": picture.read_bytes()},
            data={"include_candidates": "true"},
        )
        assert answer.status_code == 200, answer.text
        body = answer.json()
        found.append({name: body[name] for name in ("no_match", "threshold", "matches", "candidates")})
    return found


def test_a_restored_server_answers_as_the_saved_one(
    machine: Machine, other: Machine, catalog: Path, tmp_path: Path
) -> None:
    pictures = sorted((catalog / "queries").rglob("*.jpg"))[::3]
    with machine.serving() as (url, _), client_of(url, machine.variables["kept"]) as client:
        for number, picture in enumerate(pictures[:2]):
            added = client.post(
                ITEMS,
                files={"image": picture.read_bytes()},
                data={"id": f"new {number}", "metadata": '{"price": 3}'},
            )
            assert added.status_code == 200, added.text
        assert client.delete(f"{ITEMS}/new 1").status_code == 204
        expected = answers(client, pictures)
        machine.run("vicinal", "backup", tmp_path / "saved")
    other.run("vicinal", "restore", tmp_path / "saved")
    with other.serving() as (url, _), client_of(url, other.variables["kept"]) as client:
        assert answers(client, pictures) == expected
        assert answers(client, pictures, "store") == expected
        assert client.get(f"{ITEMS}/new 0").json()["metadata"] == {"price": 3}
        assert client.get(f"{ITEMS}/new 1").status_code == 404
        client.headers["Authorization"] = f"Bearer {other.variables['gone']}"
        assert client.get("/v1/galleries").status_code == 401
    # Both kinds of searches are among those that were compared.
    assert {one["no_match"] for one in expected} == {True, False}
    assert expected[0]["threshold"]["state"] == "current"
    assert len((other.data / "audit/audit.jsonl").read_text().splitlines()) == 3
    assert (other.data / "server.db").stat().st_mode & 0o077 == 0


def test_a_backup_of_a_server_that_is_changed_holds_one_moment_of_it(
    machine: Machine, other: Machine, catalog: Path, tmp_path: Path
) -> None:
    picture = tmp_path / "new.png"
    Image.effect_noise((64, 64), 60).convert("RGB").save(picture)
    with machine.serving() as (url, _), client_of(url, machine.variables["kept"]) as client:
        threshold = answers(client, [picture])[0]["threshold"]
        with Changes(client, picture) as changes:
            before = changes.wait_for(5)
            machine.run("vicinal", "backup", tmp_path / "saved")
            after = len(changes.answered)
            changes.wait_for(after + 3)
    assert after > before, "nothing was changed during the backup"
    other.run("vicinal", "restore", tmp_path / "saved")
    with other.serving() as (url, _), client_of(url, other.variables["kept"]) as client:
        there = [client.get(f"{ITEMS}/{name}").status_code == 200 for name in changes.answered]
        restored = answers(client, [picture])[0]["threshold"]
    # What was answered before the backup began is there, and of what came later the first ones are. One that
    # was on its way when the backup ended may be there, too.
    assert there == sorted(there, reverse=True)
    assert before <= sum(there) <= after + 1
    assert (restored["value"], restored["calibration"]) == (threshold["value"], threshold["calibration"])


class Changes:
    """Adds items one after the other in a thread.

    Attributes:
        answered: Ids of those that were answered for, in their order.
    """

    def __init__(self, client: httpx.Client, picture: Path) -> None:
        self.answered: list[str] = []
        self._client, self._picture = client, picture
        self._refused = ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._change)

    def __enter__(self) -> Changes:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def wait_for(self, n: int) -> int:
        """Wait until so many are answered for; gives their number."""
        wait_until(lambda: len(self.answered) >= n or not self._thread.is_alive())
        assert not self._refused
        return len(self.answered)

    def _change(self) -> None:
        content = self._picture.read_bytes()
        while not self._ended.is_set():
            name = f"added {len(self.answered)}"
            answer = self._client.post(ITEMS, files={"image": content}, data={"id": name})
            if answer.status_code != 200:
                self._refused = answer.text
                return
            self.answered.append(name)


@pytest.fixture(scope="module")
def saved(first: Machine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "backup"
    first.run("vicinal", "backup", folder)
    return folder


def test_a_backup_holds_what_its_page_says(saved: Path) -> None:
    found = sorted(path.relative_to(saved).as_posix() for path in saved.rglob("*") if path.is_file())
    assert [name for name in found if not name.endswith(".lock")] == [
        "galleries/shop.tar",
        "server.db",
    ]
    assert saved.stat().st_mode & 0o077 == 0


def test_a_changed_backup_is_refused(other: Machine, saved: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(saved, tmp_path / "copy"))
    archive = copy / "galleries/shop.tar"
    content = bytearray(archive.read_bytes())
    content[len(content) // 2] ^= 1
    archive.write_bytes(content)
    assert "damaged" in other.run("vicinal", "restore", copy, fails=True)
    assert list((other.data / "galleries").glob("[!.]*")) == []


@pytest.fixture(autouse=True)
def settings_of_the_test_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("VICINAL_")]:
        monkeypatch.delenv(name)
