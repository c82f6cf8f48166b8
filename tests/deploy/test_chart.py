"""The chart, rendered by the real Helm: by the schemas of Kubernetes, and by what it relies on elsewhere."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import redis
import yaml
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.deploy.image_tree import steps_of
from tests.deploy.test_compose import seconds_to_stop
from tests.deploy.test_monitoring import ALERTS, DEPLOY, ROOT, promtool
from tests.ports import free_port
from tests.programs import program
from tests.waiting import wait_until
from vicinal.service.known_names import check_variables
from vicinal.service.settings import Settings

CHART = DEPLOY / "helm/vicinal"
ADAPTER = DEPLOY / "prometheus/adapter.yaml"
HELM = shutil.which("helm")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(HELM is None, reason="helm is not installed: python .ci/install_helm.py FOLDER"),
]
# Kinds of others, whose schemas Kubernetes does not have.
FOREIGN = {"ServiceMonitor", "PrometheusRule"}
PARTS = ("replica", "worker")
EVERYTHING = (
    "autoscaling.enabled=true",
    "autoscaling.queueWait=200m",
    "monitoring.serviceMonitor=true",
    "monitoring.rules=true",
)
VARIANTS = {
    "as it is": (),
    "everything": (*EVERYTHING, "mirror.kind=claim", "mirror.storageClass=fast"),
    "kept mirrors": (*EVERYTHING, "mirror.kind=kept", "home.address=s3://bucket/shop"),
    "little": ("redis.own=false", "networkPolicy.enabled=false", "workers.count=0"),
}
each = pytest.mark.parametrize("values", VARIANTS.values(), ids=list(VARIANTS))


def helm(command: str, *values: str) -> subprocess.CompletedProcess[str]:
    words = [str(HELM), command, *(["v"] if command == "template" else []), str(CHART)]
    words += [word for value in values for word in ("--set", value)]
    return subprocess.run(words, capture_output=True, text=True, check=False)


@cache
def _text(values: tuple[str, ...]) -> str:
    done = helm("template", *values)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rendered(*values: str) -> list[dict[str, Any]]:
    return [one for one in yaml.load_all(_text(values), Loader=yaml.CSafeLoader) if one]


def of_kind(kind: str, *values: str) -> list[dict[str, Any]]:
    return [one for one in rendered(*values) if one["kind"] == kind]


def workloads(*values: str) -> dict[str, dict[str, Any]]:
    """By part: replica, worker, redis."""
    return {
        one["spec"]["selector"]["matchLabels"]["app.kubernetes.io/component"]: one
        for one in rendered(*values)
        if one["kind"] in ("Deployment", "StatefulSet")
    }


def pod(part: str, *values: str) -> dict[str, Any]:
    found: dict[str, Any] = workloads(*values)[part]["spec"]["template"]["spec"]
    return found


def container(part: str, *values: str) -> dict[str, Any]:
    (found,) = pod(part, *values)["containers"]
    return dict(found)


def environment(part: str, *values: str) -> dict[str, Any]:
    return {one["name"]: one.get("value") for one in container(part, *values)["env"]}


def all_values(node: object) -> Iterator[object]:
    if isinstance(node, dict):
        for value in node.values():
            yield from all_values(value)
    elif isinstance(node, list):
        for value in node:
            yield from all_values(value)
    else:
        yield node


@each
def test_helm_finds_nothing_wrong(values: tuple[str, ...]) -> None:
    done = helm("lint", *values)
    assert done.returncode == 0, done.stdout
    assert "WARNING" not in done.stdout


@pytest.mark.parametrize("version", ["1.29", "1.34"])
@each
def test_every_object_fits_the_schemas_of_kubernetes(values: tuple[str, ...], version: str) -> None:
    """Of the oldest version that the chart is for, and of a new one."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["kubeVersion"] == ">=1.29.0-0"
    objects = [one for one in rendered(*values) if one["kind"] not in FOREIGN]
    assert len(objects) >= 5
    for one in objects:
        kubernetes_validate.validate(one, version, strict=True)


def test_a_misspelled_key_does_not_fit() -> None:
    """Negative control."""
    (replicas,) = (one for one in of_kind("Deployment") if one["metadata"]["name"].endswith("replica"))
    replicas["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError, match="readynessProbe"):
        kubernetes_validate.validate(replicas, "1.34", strict=True)


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("mirror.kind=node-disk", "mirror.kind"),
        ("replicas.counts=3", "counts"),
        ("home.address=ftp://there", "home.address"),
        ("settings.redis_url=redis://there", "redis_url"),
        ("shutdownSeconds=soon", "shutdownSeconds"),
        ("disruptionBudget.maxUnavailable=half", "maxUnavailable"),
    ],
)
def test_a_value_that_is_none_is_refused(value: str, named: str) -> None:
    done = helm("template", value)
    assert done.returncode != 0
    assert named in done.stderr.replace("/", ".")


def test_the_chart_is_of_the_version_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["appVersion"] == project["version"]
    assert container("replica")["image"] == f"vicinal:{project['version']}"


@each
def test_pods_have_no_more_than_they_need(values: tuple[str, ...]) -> None:
    user, group = next(value for name, value in steps_of(DEPLOY / "Dockerfile") if name == "USER").split(":")
    for part in workloads(*values):
        spec, own = pod(part, *values), container(part, *values)
        expected = ("999", "1000") if part == "redis" else (user, group)
        context = spec["securityContext"]
        assert (str(context["runAsUser"]), str(context["runAsGroup"])) == expected
        assert context["runAsNonRoot"]
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["automountServiceAccountToken"] is False
        assert own["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert own["resources"]["limits"]["memory"]
        # A Service named vicinal would set VICINAL_PORT, which is a setting.
        assert spec["enableServiceLinks"] is False


@each
def test_what_is_mounted_is_there(values: tuple[str, ...]) -> None:
    for part, workload in workloads(*values).items():
        spec, own = pod(part, *values), container(part, *values)
        claims = workload["spec"].get("volumeClaimTemplates", ())
        there = {one["name"] for one in spec.get("volumes", ())} | {one["metadata"]["name"] for one in claims}
        assert there == {one["name"] for one in own["volumeMounts"]}
        paths = {one["mountPath"] for one in own["volumeMounts"]}
        assert "/data" in paths
        home = environment(part, *values).get("VICINAL_HOME")
        assert ("/shared" in paths) is (home == "/shared")


@each
def test_the_settings_are_known_and_fit(values: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    given = {name: value for name, value in environment("replica", *values).items() if value}
    check_variables(Settings, given, "VICINAL_")
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    settings = Settings()
    assert not settings.run_jobs
    assert settings.home == given["VICINAL_HOME"]
    assert (settings.redis_url is None) is ("redis.own=false" in values)
    assert environment("worker", *values) == environment("replica", *values)


def test_settings_of_every_kind_arrive_as_they_were_written(monkeypatch: pytest.MonkeyPatch) -> None:
    given = environment(
        "replica",
        "settings.max_limit=200",
        "settings.check_hours=0.5",
        "settings.open_metrics=true",
        "settings.allowed_hosts={a.example.com,b.example.com}",
        "settings.retention.days=3",
        "settings.rate_limit=100/minute",
    )
    for name, value in given.items():
        if value:
            monkeypatch.setenv(name, value)
    settings = Settings()
    assert (settings.max_limit, settings.check_hours, settings.open_metrics) == (200, 0.5, True)
    assert settings.allowed_hosts == ("a.example.com", "b.example.com")
    assert (settings.rate_limit, settings.retention.days) == ("100/minute", 3.0)


def test_a_pod_has_the_time_to_stop() -> None:
    (sleep,) = re.findall(r"\d+", str(container("replica")["lifecycle"]))
    for seconds in (20, 120):
        given = f"shutdownSeconds={seconds}"
        assert environment("replica", given)["VICINAL_SHUTDOWN_SECONDS"] == str(seconds)
        for part in PARTS:
            granted = pod(part, given)["terminationGracePeriodSeconds"]
            assert granted > int(sleep) + seconds_to_stop(seconds)


def test_probes_ask_what_the_service_answers() -> None:
    own = container("replica")
    assert own["livenessProbe"]["httpGet"]["path"] == "/livez"
    start = own["startupProbe"]
    ready = own["readinessProbe"]["httpGet"]["path"]
    assert ready == start["httpGet"]["path"]
    path, _, query = ready.partition("?")
    asked = json.loads((ROOT / "openapi.json").read_text(encoding="utf-8"))["paths"][path]["get"]
    (parameter,) = (one for one in asked["parameters"] if one["name"] == query.partition("=")[0])
    assert query.partition("=")[2] in parameter["schema"]["enum"]
    assert start["periodSeconds"] * start["failureThreshold"] == 30 * 60
    assert own["ports"] == [{"name": "http", "containerPort": Settings().port}]
    assert not [name for name in container("worker") if name.endswith("Probe")]


@each
def test_services_budgets_and_policies_are_for_pods_that_there_are(values: tuple[str, ...]) -> None:
    labels = [one["spec"]["template"]["metadata"]["labels"] for one in workloads(*values).values()]
    selectors = [
        found.get("matchLabels", found)
        for one in rendered(*values)
        for name in ("selector", "podSelector")
        if (found := one["spec"].get(name) if "spec" in one else None)
    ]
    assert len(selectors) >= 4
    for selector in selectors:
        assert sum(selector.items() <= one.items() for one in labels) == 1, selector


def test_redis_is_for_replicas_and_workers_alone() -> None:
    (policy,) = (one for one in of_kind("NetworkPolicy") if one["metadata"]["name"].endswith("redis"))
    (rule,) = policy["spec"]["ingress"]
    components = [peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for peer in rule["from"]]
    assert components == list(PARTS)
    assert "egress" not in policy["spec"]
    (worker,) = (one for one in of_kind("NetworkPolicy") if one["metadata"]["name"].endswith("worker"))
    assert "ingress" not in worker["spec"]
    # An empty list of ports would let everything out.
    (worker,) = (
        one
        for one in of_kind("NetworkPolicy", "networkPolicy.ports=null")
        if one["metadata"]["name"].endswith("worker")
    )
    assert [rule["ports"][0]["port"] for rule in worker["spec"]["egress"]] == [53, "redis"]


@each
def test_secrets_are_named_and_never_written(values: tuple[str, ...]) -> None:
    assert of_kind("Secret", *values) == []
    texts = [str(value) for value in all_values(rendered(*values))]
    written = [text for text in texts if re.search(r"\w+://[^/\s]*:[^$/\s][^/\s]*@", text)]
    assert written == []
    for part in PARTS:
        assert container(part, *values)["envFrom"] == [{"secretRef": {"name": "vicinal"}}]


def test_mirrors_lie_where_they_are_asked_to() -> None:
    def mirror(kind: str) -> tuple[str, dict[str, Any]]:
        given = f"mirror.kind={kind}", "mirror.size=50Gi"
        volumes = {one["name"]: one for one in pod("replica", *given)["volumes"]}
        return workloads(*given)["replica"]["kind"], volumes.get("mirror", {})

    assert mirror("node") == ("Deployment", {"name": "mirror", "emptyDir": {"sizeLimit": "50Gi"}})
    kind, volume = mirror("claim")
    assert (kind, list(volume)) == ("Deployment", ["name", "ephemeral"])
    assert mirror("kept") == ("StatefulSet", {})
    (claim,) = workloads("mirror.kind=kept", "mirror.size=50Gi")["replica"]["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["resources"]["requests"] == {"storage": "50Gi"}


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_the_autoscaler_alone_says_how_many_replicas_there_are(kind: str) -> None:
    values = (*EVERYTHING, f"mirror.kind={'kept' if kind == 'StatefulSet' else 'node'}")
    (scaler,) = of_kind("HorizontalPodAutoscaler", *values)
    target = workloads(*values)["replica"]
    assert scaler["spec"]["scaleTargetRef"] == {
        "apiVersion": target["apiVersion"],
        "kind": kind,
        "name": target["metadata"]["name"],
    }
    assert "replicas" not in target["spec"]
    assert workloads()["replica"]["spec"]["replicas"] == 2
    # Without an adapter it scales by what every cluster with a metrics server has.
    (alone,) = of_kind("HorizontalPodAutoscaler", "autoscaling.enabled=true")
    assert [one["type"] for one in alone["spec"]["metrics"]] == ["Resource"]


def adapter_rule() -> dict[str, Any]:
    (rule,) = yaml.safe_load(ADAPTER.read_text(encoding="utf-8"))["rules"]["custom"]
    return dict(rule)


def test_the_autoscaler_asks_for_what_the_adapter_has() -> None:
    rule = adapter_rule()
    named = re.sub(rule["name"]["matches"], r"\1", re.split(r"\{", rule["seriesQuery"])[0])
    (scaler,) = of_kind("HorizontalPodAutoscaler", *EVERYTHING)
    asked = [one["pods"]["metric"]["name"] for one in scaler["spec"]["metrics"] if "pods" in one]
    assert asked == [named]


def test_the_wait_of_a_pod_is_the_mean_of_its_searches(tmp_path: Path) -> None:
    """By Prometheus: 3 searches of half a second each a minute, and a pod that was not asked."""
    query = adapter_rule()["metricsQuery"].replace("<<.GroupBy>>", "pod")
    query = query.replace("<<.LabelMatchers>>", 'namespace="n",pod=~"busy|idle"')
    series = "vicinal_queue_wait_seconds"
    cases = {
        "rule_files": [],
        "tests": [
            {
                "interval": "15s",
                "input_series": [
                    {"series": f'{series}_sum{{namespace="n",pod="busy"}}', "values": "0+0.375x40"},
                    {"series": f'{series}_count{{namespace="n",pod="busy"}}', "values": "0+0.75x40"},
                    {"series": f'{series}_sum{{namespace="n",pod="idle"}}', "values": "7x40"},
                    {"series": f'{series}_count{{namespace="n",pod="idle"}}', "values": "9x40"},
                    {"series": f'{series}_sum{{namespace="other",pod="busy"}}', "values": "0+9x40"},
                ],
                "promql_expr_test": [
                    {
                        "expr": query,
                        "eval_time": "5m",
                        "exp_samples": [
                            {"labels": '{pod="busy"}', "value": 0.5},
                            {"labels": '{pod="idle"}', "value": 0},
                        ],
                    }
                ],
            }
        ],
    }
    (tmp_path / "cases.yaml").write_text(yaml.safe_dump(cases), encoding="utf-8")
    done = promtool("test", "rules", tmp_path / "cases.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_alerts_are_those_of_the_file_and_name_the_job_that_is_scraped() -> None:
    (rules,) = of_kind("PrometheusRule", *EVERYTHING)
    assert rules["spec"] == yaml.safe_load(ALERTS.read_text(encoding="utf-8"))
    (monitor,) = of_kind("ServiceMonitor", *EVERYTHING)
    (service,) = (one for one in of_kind("Service") if not one["metadata"]["name"].endswith("redis"))
    assert service["metadata"]["labels"][monitor["spec"]["jobLabel"]] == "vicinal"
    assert of_kind("ServiceMonitor") == of_kind("PrometheusRule") == []


def test_redis_asks_for_the_password(tmp_path: Path) -> None:
    """The command of its container, by a shell and a Redis of this machine."""
    program("redis-server")
    shell, flags, script = container("redis")["command"]
    port = free_port()
    script = script.replace("/data", str(tmp_path)).replace("server - ", f"server - --port {port} ")
    variables = {"PATH": os.environ["PATH"], "REDISCLI_AUTH": "s3cret"}
    with subprocess.Popen(
        [shell, flags, script], env=variables, cwd=tmp_path, stdout=subprocess.DEVNULL
    ) as server:
        try:
            wait_until(lambda: is_answered(port, "s3cret"), every=0.05)
            with pytest.raises(redis.AuthenticationError):
                client(port).ping()
            # What is read here ends with the process of the container, not with its child.
            assert b"redis-server" in Path(f"/proc/{server.pid}/cmdline").read_bytes()
            assert b"s3cret" not in Path(f"/proc/{server.pid}/cmdline").read_bytes()
        finally:
            server.terminate()
    assert list(tmp_path.glob("appendonlydir/*"))


def is_answered(port: int, password: str) -> bool:
    try:
        return bool(client(port, password=password).ping())
    except redis.ConnectionError:
        return False


def client(port: int, **options: str) -> redis.Redis:
    return redis.Redis(port=port, retry=Retry(NoBackoff(), 0), **options)
