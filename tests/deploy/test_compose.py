"""compose.yaml: by the schema of the specification, by what it names, and by the one script that it holds."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
import yaml

from vicinal.service.http.serving import processes, server
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


def test_every_service_has_no_more_than_it_needs(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["mem_limit"], name
        assert service["pids_limit"] > 0, name
        assert "privileged" not in service, name


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


def seconds_to_stop(shutdown_seconds: int) -> float:
    """Longest time in which a server has ended by itself, with one process and with several."""
    alone = server._DRAIN_SECONDS + shutdown_seconds + server._END_SECONDS
    return max(alone, shutdown_seconds + processes._KILL_SECONDS)


def test_a_server_has_the_time_to_stop(compose: dict[str, Any]) -> None:
    longest = seconds_to_stop(Settings().shutdown_seconds)
    for name, service in ours(compose).items():
        assert int(service["stop_grace_period"].removesuffix("s")) > longest, name
