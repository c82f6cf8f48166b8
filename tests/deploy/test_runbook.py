"""Running it, of docs/SCALE.md: its commands are commands, and the chart has what it names."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from tests.deploy.test_chart import CHART, HELM
from vicinal.service.cli.main import app

ROOT = Path(__file__).resolve().parents[2]


def section(title: str) -> str:
    page = (ROOT / "docs/SCALE.md").read_text(encoding="utf-8")
    (found,) = re.findall(rf"^### {title}\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL)
    return str(found)


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
