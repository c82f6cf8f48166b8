"""compose.yaml: by the schema of the specification, by what it names, and by the one script that it holds."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from contextlib import closing
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.forks import forked_python
from tests.postgres_server import PostgresServer
from vicinal.indexer.engines import postgres as engine
from vicinal.indexer.engines.postgres import PostgresEngine
from vicinal.indexer.errors import EngineError
from vicinal.service.http.serving import processes, server
from vicinal.service.keys import Keyring
from vicinal.service.known_names import check_variables
from vicinal.service.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
FILES = ["compose.yaml", "compose.gpu.yaml", "compose.replicas.yaml"]
OURS = ("keys", "vicinal", "worker", "second")
VARIABLE = re.compile(r"(?<!\$)\$\{?(\w+)(:-)?")


def read(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((DEPLOY / name).read_text(encoding="utf-8"))
    return loaded


def merged(first: Any, second: Any) -> Any:
    """Two files as Compose takes them together: tables are joined, and so are the volumes of a service."""
    if isinstance(first, dict) and isinstance(second, dict):
        both = {name: merged(first[name], second[name]) for name in first.keys() & second.keys()}
        return first | second | both
    return [*first, *second] if isinstance(first, list) else second


@pytest.fixture(params=[FILES[:1], [FILES[0], FILES[2]]], ids=["alone", "replicas"])
def compose(request: pytest.FixtureRequest) -> dict[str, Any]:
    found: dict[str, Any] = reduce(merged, map(read, request.param))
    return found


def ours(compose: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {name: compose["services"][name] for name in OURS if name in compose["services"]}


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
    found = VARIABLE.findall("".join((DEPLOY / name).read_text(encoding="utf-8") for name in FILES))
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


def test_the_image_has_made_what_volumes_are_mounted_at(compose: dict[str, Any]) -> None:
    """A volume that is new is its user's alone where the image has a folder of the user's."""
    made = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    (owned,) = re.findall(r"chown 10001:10001 (.*)", made)
    targets = {volume.split(":")[1] for service in ours(compose).values() for volume in service["volumes"]}
    assert targets <= set(owned.split())


def test_every_image_has_a_tag_of_a_version(compose: dict[str, Any]) -> None:
    images = {service["image"] for service in compose["services"].values()}
    assert {image for image in images if not re.fullmatch(r"[\w./-]+:v?\d+\.\d+\.\d+[\w.-]*", image)} == set()
    built = [service for service in ours(compose).values() if "build" in service]
    assert built
    assert {service["image"] for service in built} == {service["image"] for service in ours(compose).values()}
    for service in built:
        assert (DEPLOY / service["build"]["dockerfile"].removeprefix("deploy/")).is_file()


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
    addresses = [port.replace("${BIND_ADDRESS:-127.0.0.1}", "127.0.0.1").rpartition(":")[0] for port in ports]
    assert {address.partition(":")[0] for address in addresses} == {"127.0.0.1"}
    assert len(set(addresses)) == len(addresses) >= 3


def test_services_wait_for_what_they_need(compose: dict[str, Any]) -> None:
    services = compose["services"]
    for name, service in services.items():
        for other, how in service.get("depends_on", {}).items():
            # A health check of ours is the image's.
            is_told = "test" in services[other].get("healthcheck", {}) or other == "vicinal"
            assert how["condition"] == "service_completed_successfully" or is_told, (name, other)
    assert set(services["vicinal"]["depends_on"]) == {"keys", "redis"}
    # Who makes the home is there before who follows it.
    assert "second" not in services or "vicinal" in services["second"]["depends_on"]


def test_the_settings_are_known_and_fit(compose: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, service in ours(compose).items():
        given = {
            key: re.sub(r"\$\{\w+:-(.*)\}", r"\1", value) for key, value in service["environment"].items()
        }
        given |= read("compose.gpu.yaml")["services"]["vicinal"]["environment"]
        check_variables(Settings, given, "VICINAL_")
        with monkeypatch.context() as patched:
            for key, value in given.items():
                patched.setenv(key, value)
            settings = Settings()
        assert not settings.run_jobs, name
        assert settings.redis_url == "redis://redis:6379/0", name
        assert settings.device == "cuda", name


def test_replicas_differ_in_their_mirror_alone() -> None:
    services = merged(read(FILES[0]), read(FILES[2]))["services"]
    first, second = services["vicinal"], services["second"]
    for name in ("image", "environment", "networks", "mem_limit", "tmpfs", "stop_grace_period"):
        assert first[name] == second[name], name
    assert set(first["volumes"]) ^ set(second["volumes"]) == {"data:/data", "second:/data"}
    # Without a way out, as Redis: neither asks for a password.
    assert services["postgres"]["networks"] == services["redis"]["networks"] == ["jobs"]
    assert "ports" not in services["postgres"]


@pytest.mark.slow
def test_postgresql_is_given_what_galleries_need(postgres: PostgresServer) -> None:
    """The statements that its container runs once, in a database that is as new as the container's."""
    service = read(FILES[2])["services"]["postgres"]
    (script,) = (source for source, mode in mounts(service) if mode == "ro")
    postgres.run("CREATE DATABASE begun")
    with closing(PostgresEngine(postgres.url(database="begun"))) as asked:
        with pytest.raises(EngineError, match="CREATE EXTENSION vector"):
            asked.describe()
        postgres.run((DEPLOY / script).read_text(encoding="utf-8"), database="begun")
        assert "pgvector" in asked.describe().extension
    version = re.search(r":(\d+)\.(\d+)\.(\d+)-pg(\d+)", service["image"])
    assert version is not None
    assert tuple(map(int, version.groups()[:3])) >= engine._EXTENSION
    assert int(version[4]) * 10_000 >= engine._SERVER


def seconds_to_stop(shutdown_seconds: int) -> float:
    """Longest time in which a server has ended by itself, with one process and with several."""
    alone = server._DRAIN_SECONDS + shutdown_seconds + server._END_SECONDS
    return max(alone, shutdown_seconds + processes._KILL_SECONDS)


def test_a_server_has_the_time_to_stop(compose: dict[str, Any]) -> None:
    longest = seconds_to_stop(Settings().shutdown_seconds)
    for name, service in ours(compose).items():
        assert int(service["stop_grace_period"].removesuffix("s")) > longest, name


@pytest.mark.slow
def test_the_key_of_prometheus_is_made_once(tmp_path: Path) -> None:
    """The script of the service `keys`, with its folders mapped into one of the test."""
    service = read(FILES[0])["services"]["keys"]
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
