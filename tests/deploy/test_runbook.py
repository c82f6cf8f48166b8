"""Running it, of docs/SCALE.md: what needs no cluster is run as it stands there, the chart has the rest."""

from __future__ import annotations

import re
import shlex
import subprocess
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from typer.main import get_command

from benchmarks.common.server_process import running_server
from tests.deploy.test_backup import Machine
from tests.deploy.test_chart import CHART, HELM
from tests.service.redis_server import RedisServer
from tests.waiting import wait_until
from vicinal.models.bundle import ModelBundle
from vicinal.models.demo_catalog import write_demo_catalog
from vicinal.service.cli.main import app

ROOT = Path(__file__).resolve().parents[2]
_BLOCK = re.compile(r"(?:\A|(?<=\n\n))(?: {4}.*\n)+")


def section(title: str) -> str:
    page = (ROOT / "docs/SCALE.md").read_text(encoding="utf-8")
    (found,) = re.findall(rf"^### {title}\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL)
    return str(found)


def blocks(title: str) -> list[str]:
    return [textwrap.dedent(block) for block in _BLOCK.findall(section(title))]


def commands(first: str) -> list[list[str]]:
    """Words of every command of the page that begins with a word."""
    page = (ROOT / "docs/SCALE.md").read_text(encoding="utf-8").replace("\\\n", " ")
    found = re.findall(rf"^ {{4}}({first} .*)$", page, re.MULTILINE)
    return [shlex.split(one, comments=True) for one in found]


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What Helm makes of the values of the page, by kind and name."""
    if HELM is None:
        pytest.skip("helm is not installed: python .ci/install_helm.py FOLDER")
    values = tmp_path_factory.mktemp("runbook") / "values.yaml"
    (written,) = re.findall(r"```yaml\n(.*?)```", section("Kubernetes"), re.DOTALL)
    values.write_text(written, encoding="utf-8")
    for words in commands("helm (?:upgrade|install)"):
        at = words.index(str(CHART.relative_to(ROOT)))
        rest = [str(values) if word == values.name else word for word in words[at + 1 :]]
        done = subprocess.run(
            [HELM, "template", words[at - 1], str(CHART), *rest], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    documents = [one for one in yaml.safe_load_all(done.stdout) if one]
    return {f"{one['kind'].lower()}/{one['metadata']['name']}": one for one in documents}


@pytest.mark.slow
def test_the_chart_has_what_is_named(objects: dict[str, dict[str, Any]]) -> None:
    named = {word for words in commands("kubectl") for word in words if re.fullmatch(r"[a-z]+/[a-z-]+", word)}
    assert named
    assert named - objects.keys() == set()
    namespaces = {words[words.index("-n") + 1] for words in commands("kubectl") if "-n" in words}
    assert namespaces == {words[-1] for words in commands("kubectl create namespace")}


@pytest.mark.slow
def test_the_secret_has_the_keys_that_the_chart_reads(objects: dict[str, dict[str, Any]]) -> None:
    (made,) = (words for words in commands("kubectl") if "secret" in words)
    given = {
        word.removeprefix("--from-literal=").partition("=")[0] for word in made if "from-literal" in word
    }
    read = set(re.findall(r"'key': '(\w+)'", str(objects)))
    assert read == {"REDIS_PASSWORD"}
    assert read <= given
    assert made[made.index("generic") + 1] == yaml.safe_load((CHART / "values.yaml").read_text())["secret"]


def test_commands_of_ours_are_commands() -> None:
    known = get_command(app).commands  # type: ignore[attr-defined]
    after = [words[words.index("--") + 1 :] for words in commands("kubectl") if "--" in words]
    ours = [words[1] for words in [*after, *commands("vicinal")] if words[0] == "vicinal"]
    assert ours
    assert [one for one in ours if one not in known] == []


class Replica(Machine):
    """A data folder with what runs on it, and with what the page exports there."""

    def follow(self, script: str, changes: dict[str, str]) -> None:
        """Run a block but for `vicinal serve`, with names of this machine; what it exports stays."""
        lines = [line for line in script.splitlines() if line != "vicinal serve"]
        text = "\n".join(lines)
        for old, new in changes.items():
            text = text.replace(old, new)
        done = self.run("bash", "-euc", f"{text}\necho exported; env | grep ^VICINAL_")
        exported = dict(line.split("=", 1) for line in done.rpartition("exported\n")[2].splitlines())
        others = {name: text for name, text in self.variables.items() if not name.startswith("VICINAL_")}
        self.variables = others | exported

    def serving(self) -> Any:
        return running_server(self.data, self.bundle, self.variables, folder=self.data.parent)


@pytest.fixture
def redis_url(tmp_path: Path) -> Iterator[str]:
    server = RedisServer(tmp_path / "redis")
    server.start()
    yield server.url
    server.stop()


def replica(folder: Path, bundle: ModelBundle) -> Replica:
    folder.mkdir()
    return Replica(folder / "data", bundle.path, folder)


def ids(url: str) -> set[str]:
    items = httpx.get(f"{url}/v1/galleries/shop/items", params={"size": 100}, timeout=60).json()["items"]
    return {one["id"] for one in items}


def add(url: str, name: str, picture: Path) -> None:
    files = {"image": picture.read_bytes()}
    answer = httpx.post(f"{url}/v1/galleries/shop/items", files=files, data={"id": name}, timeout=60)
    assert answer.status_code == 200, answer.text


@pytest.mark.slow
def test_one_machine_becomes_two_and_one_again(
    tmp_path: Path, tiny_bundle: ModelBundle, redis_url: str
) -> None:
    write_demo_catalog(tmp_path / "made", n_products=4, n_absent=1, n_views=3, n_gallery_views=2, size=32)
    picture = min((tmp_path / "made/absent").rglob("*.jpg"))
    first, second = replica(tmp_path / "first", tiny_bundle), replica(tmp_path / "second", tiny_bundle)
    first.run("vicinal", "index", tmp_path / "made/gallery", "--gallery", "shop")
    changes = {
        "deploy/backup.sh": str(ROOT / "deploy/backup.sh"),
        "saved": str(tmp_path / "saved"),
        "redis://redis:6379/0": redis_url,
        "/mnt/home": str(tmp_path / "home"),
        "/var/lib/vicinal": str(second.data),
    }
    begin, join = blocks("From one machine to several")
    first.follow(begin, changes)
    second.follow(join, changes)
    with ExitStack() as stack:
        urls = [stack.enter_context(one.serving())[0] for one in (first, second)]
        before = ids(urls[0])
        add(urls[1], "new", picture)
        wait_until(lambda: ids(urls[0]) == {*before, "new"})
        (save,) = blocks("Saving a home")
        first.follow(save, changes)
        add(urls[0], "later", picture)
        wait_until(lambda: "later" in ids(urls[1]))
    (back,) = blocks("And back")
    first.follow(back, changes)
    assert not first.variables.keys() & {"VICINAL_HOME", "VICINAL_REDIS_URL"}
    with first.serving() as (url, _):
        assert ids(url) == {*before, "new", "later"}
        add(url, "alone", picture)
    # What was saved of the home is what a replica with an empty folder begins with.
    third = replica(tmp_path / "third", tiny_bundle)
    changes |= {"/mnt/home": str(tmp_path / "saved-home"), "/var/lib/vicinal": str(third.data)}
    third.follow(join, changes)
    with third.serving() as (url, _):
        assert ids(url) == {*before, "new"}
