"""Prometheus and Grafana: every expression is one, every metric and state exists, every alert was tried."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any, get_args

import httpx
import pytest
import yaml
from pydantic import SecretStr

from tests.programs import program
from vicinal.models.bundle import ModelBundle
from vicinal.service.galleries.open_galleries import IntegrityState
from vicinal.service.http.serving.server import serving
from vicinal.service.jobs.records import JobState
from vicinal.service.search.answers import CalibrationState
from vicinal.service.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
ALERTS, CASES = DEPLOY / "prometheus/alerts.yaml", ROOT / "tests/deploy/alerts.test.yaml"
DASHBOARD = DEPLOY / "grafana/dashboards/vicinal.json"
NAME = re.compile(r"\bvicinal_\w+")
STATE = re.compile(r'(vicinal_\w+)\{[^}]*\bstate="(\w+)"')
STATES = {
    "vicinal_gallery_integrity": get_args(IntegrityState),
    "vicinal_gallery_calibration": get_args(CalibrationState),
    "vicinal_jobs": get_args(JobState),
}


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    return found


def expressions() -> list[str]:
    """Of the alerts and of the dashboard, where Grafana chooses the span of a rate."""
    shown = [target["expr"] for panel in panels() for target in panel.get("targets", ())]
    return [rule["expr"] for rule in alerts()] + [one.replace("$__rate_interval", "5m") for one in shown]


def names_in(texts: list[str]) -> set[str]:
    return {name for text in texts for name in NAME.findall(text)}


def names_shown(metrics: str) -> set[str]:
    """Names of the series of an exposition, also of those that have none yet."""
    found = set()
    for line in metrics.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            found |= {name} | (
                {f"{name}_{part}" for part in ("bucket", "sum", "count")} if kind == "histogram" else set()
            )
    return found


def promtool(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program("promtool"), *map(str, arguments)], capture_output=True, text=True, check=False, cwd=ROOT
    )


def rules_of(texts: list[str]) -> str:
    rules = [{"record": f"rule:{number}", "expr": text} for number, text in enumerate(texts)]
    return yaml.safe_dump({"groups": [{"name": "expressions", "rules": rules}]})


@pytest.fixture
def metrics(tmp_path: Path, tiny_bundle: ModelBundle, postgres_url: str) -> str:
    """What a running replica shows; nobody answers at the address of its Redis."""
    settings = Settings(
        data_dir=tmp_path / "data",
        home=str(tmp_path / "home"),
        database=SecretStr(postgres_url),
        bundle=tiny_bundle.path,
        device="cpu",
        threads=1,
        redis_url="redis://127.0.0.1:1/0",
    )
    with serving(settings) as url:
        return httpx.get(f"{url}/metrics").text


@pytest.mark.slow
def test_every_metric_is_one_that_a_server_shows(metrics: str) -> None:
    told = (ROOT / "docs/SCALE.md").read_text(encoding="utf-8")
    assert names_in([*expressions(), told]) - names_shown(metrics) == set()


def test_every_state_is_one_that_there_is() -> None:
    used = {pair for text in expressions() for pair in STATE.findall(text)}
    assert {metric for metric, _ in used} == set(STATES)
    assert {(metric, state) for metric, state in used if state not in STATES[metric]} == set()


def test_every_expression_can_be_parsed(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(rules_of(expressions()), encoding="utf-8")
    done = promtool("check", "rules", tmp_path / "rules.yaml")
    assert done.returncode == 0, done.stderr
    assert f"{len(expressions())} rules found" in done.stdout


@pytest.mark.slow
def test_alerts_fire_when_they_should_and_not_before() -> None:
    done = promtool("test", "rules", CASES)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_case_and_says_what_to_do() -> None:
    groups = yaml.safe_load(CASES.read_text(encoding="utf-8"))["tests"]
    fired = {case["alertname"] for group in groups for case in group["alert_rule_test"] if case["exp_alerts"]}
    assert fired == {rule["alert"] for rule in alerts()}
    for rule in alerts():
        assert set(rule["annotations"]) == {"summary", "description"}, rule["alert"]
        assert rule["labels"]["severity"] in ("critical", "warning"), rule["alert"]
