"""compose.yaml: by what it names, and by the one script that it holds."""

from __future__ import annotations

import re
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


def mounts(service: dict[str, Any]) -> list[tuple[str, str]]:
    """What each volume of a service mounts, and how."""
    parts = [volume.split(":") for volume in service.get("volumes", ())]
    return [(source, rest[-1]) for source, *rest in parts]


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
            key: re.sub(r"\$\{\w+:[-?](.*?)\}", r"\1", value).replace("see deploy/README.md", "secret")
            for key, value in service["environment"].items()
        }
        given |= read("compose.gpu.yaml")["services"]["vicinal"]["environment"]
        check_variables(Settings, given, "VICINAL_")
        with monkeypatch.context() as patched:
            for key, value in given.items():
                patched.setenv(key, value)
            settings = Settings()
        assert not settings.run_jobs, name
        assert (settings.home is None) is (settings.database is None), name
        assert settings.device == "cuda", name


def seconds_to_stop(shutdown_seconds: int) -> float:
    """Longest time in which a server has ended by itself, with one process and with several."""
    alone = server._DRAIN_SECONDS + shutdown_seconds + server._END_SECONDS
    return max(alone, shutdown_seconds + processes._KILL_SECONDS)


def test_a_server_has_the_time_to_stop(compose: dict[str, Any]) -> None:
    longest = seconds_to_stop(Settings().shutdown_seconds)
    for name, service in ours(compose).items():
        assert int(service["stop_grace_period"].removesuffix("s")) > longest, name
