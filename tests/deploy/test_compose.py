"""compose.yaml: by the schema of the specification, by what it names, and by the one script that it holds."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.forks import forked_python
from vicinal.service.http.serving import processes, server
from vicinal.service.keys import Keyring
from vicinal.service.known_names import check_variables
from vicinal.service.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
FILES = ["compose.yaml", "compose.gpu.yaml"]
OURS = ("keys", "vicinal", "worker")
VARIABLE = re.compile(r"(?<!\$)\$\{?(\w+)(:-)?")


def read(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((DEPLOY / name).read_text(encoding="utf-8"))
    return loaded


@pytest.fixture
def compose() -> dict[str, Any]:
    return read("compose.yaml")


def schema_says(path: Path) -> str:
    """Why a file is no compose file; nothing where it is one."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    return done.stdout if done.returncode else ""


def mounts(service: dict[str, Any]) -> list[tuple[str, str]]:
    """What each volume of a service mounts, and how."""
    parts = [volume.split(":") for volume in service.get("volumes", ())]
    return [(source, rest[-1]) for source, *rest in parts]


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_a_file_fits_the_specification(name: str) -> None:
    assert schema_says(DEPLOY / name) == ""


@pytest.mark.slow
def test_a_misspelled_key_does_not_fit(tmp_path: Path) -> None:
    """Negative control."""
    text = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
    (tmp_path / "compose.yaml").write_text(text.replace("    mem_limit:", "    memlimit:", 1))
    assert "memlimit" in schema_says(tmp_path / "compose.yaml")


@pytest.mark.parametrize("name", FILES)
def test_every_variable_has_a_default(name: str) -> None:
    found = VARIABLE.findall((DEPLOY / name).read_text(encoding="utf-8"))
    assert [variable for variable, default in found if not default] == []


def test_variables_of_the_file_itself_are_none_that_a_command_would_refuse() -> None:
    """Who exports VICINAL_... for the file could not run `vicinal` in the same shell."""
    found = VARIABLE.findall((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    assert found
    assert [variable for variable, _ in found if variable.startswith("VICINAL_")] == []


def test_what_is_mounted_is_there(compose: dict[str, Any]) -> None:
    sources = {source for service in compose["services"].values() for source, _ in mounts(service)}
    files = {source for source in sources if source.startswith((".", "/"))}
    assert {source for source in files if not (DEPLOY / source).exists()} == set()
    assert sources - files == set(compose["volumes"])
    read_only = {
        mode for service in compose["services"].values() for one, mode in mounts(service) if one in files
    }
    assert read_only == {"ro"}


def test_every_image_has_a_tag_of_a_version(compose: dict[str, Any]) -> None:
    images = {service["image"] for service in compose["services"].values()}
    assert {image for image in images if not re.fullmatch(r"[\w./-]+:v?\d+\.\d+\.\d+[\w.-]*", image)} == set()
    for name in OURS:
        assert (DEPLOY / compose["services"][name]["build"]["dockerfile"].removeprefix("deploy/")).is_file()


def test_every_service_has_no_more_than_it_needs(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["mem_limit"], name
        assert service["pids_limit"] > 0, name
        assert "privileged" not in service, name


def test_ports_are_this_machines_own(compose: dict[str, Any]) -> None:
    ports = [port for service in compose["services"].values() for port in service.get("ports", ())]
    assert {port.split(":8321:")[0].removeprefix("${BIND_ADDRESS:-").rstrip("}") for port in ports} == {
        "127.0.0.1",
        "127.0.0.1:9090:9090",
        "127.0.0.1:3000:3000",
    }


def test_services_wait_for_what_they_need(compose: dict[str, Any]) -> None:
    services = compose["services"]
    for name, service in services.items():
        for other, how in service.get("depends_on", {}).items():
            # A health check of ours is the image's.
            is_told = "test" in services[other].get("healthcheck", {}) or other == "vicinal"
            assert how["condition"] == "service_completed_successfully" or is_told, (name, other)
    assert set(services["vicinal"]["depends_on"]) == {"keys", "redis"}


def test_the_settings_are_known_and_fit(compose: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    environment = dict(compose["services"]["vicinal"]["environment"])
    given = {name: re.sub(r"\$\{\w+:-(.*)\}", r"\1", value) for name, value in environment.items()}
    given |= read("compose.gpu.yaml")["services"]["vicinal"]["environment"]
    check_variables(Settings, given, "VICINAL_")
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    settings = Settings()
    assert not settings.run_jobs
    assert settings.redis_url == "redis://redis:6379/0"
    assert settings.device == "cuda"


def test_a_server_has_the_time_to_stop(compose: dict[str, Any]) -> None:
    seconds = Settings().shutdown_seconds
    alone = server._DRAIN_SECONDS + seconds + server._END_SECONDS
    together = seconds + processes._KILL_SECONDS
    for name in ("vicinal", "worker"):
        assert int(compose["services"][name]["stop_grace_period"].removesuffix("s")) > max(alone, together)


@pytest.mark.slow
def test_the_key_of_prometheus_is_made_once(compose: dict[str, Any], tmp_path: Path) -> None:
    """The script of the service `keys`, with its folders mapped into one of the test."""
    service = compose["services"]["keys"]
    (script,) = service["command"]
    for name in ("keys", "data", "bin"):
        (tmp_path / name).mkdir()
    command = tmp_path / "bin/vicinal"
    command.write_text(f'#!/bin/sh\nexec {shlex.join(forked_python())} -m vicinal "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    variables = {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
        "VICINAL_DATA_DIR": str(tmp_path / "data"),
    }
    keyring = Keyring(Settings(data_dir=tmp_path / "data"))
    key = tmp_path / "keys/prometheus"

    def run() -> str:
        words = [*service["entrypoint"], script.replace("/keys/", f"{tmp_path}/keys/")]
        subprocess.run(words, env=variables, cwd=ROOT, check=True, capture_output=True)
        found = keyring.find(key.read_text().strip())
        assert found is not None
        assert found.scopes == ("admin",)
        return key.read_text()

    first = run()
    assert run() == first
    # A data folder that was restored has the old key's record, and the key itself is nowhere.
    key.unlink()
    assert run() != first
    assert keyring.find(first.strip()) is None
