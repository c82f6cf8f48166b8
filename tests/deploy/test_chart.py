"""The chart, rendered by the real Helm: by the schemas of Kubernetes, and by what it relies on elsewhere."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.deploy.dockerfiles import steps_of
from tests.deploy.test_monitoring import DEPLOY
from vicinal.service.known_names import check_variables
from vicinal.service.settings import Settings

CHART = DEPLOY / "helm/vicinal"
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
    "little": ("networkPolicy.enabled=false", "workers.count=0"),
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
    """By part: replica, worker."""
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


@each
def test_pods_have_no_more_than_they_need(values: tuple[str, ...]) -> None:
    user, group = next(value for name, value in steps_of(DEPLOY / "Dockerfile") if name == "USER").split(":")
    for part in workloads(*values):
        spec, own = pod(part, *values), container(part, *values)
        context = spec["securityContext"]
        assert (str(context["runAsUser"]), str(context["runAsGroup"])) == (user, group)
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
def test_the_settings_are_known_and_fit(values: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    given = {name: value for name, value in environment("replica", *values).items() if value}
    check_variables(Settings, given, "VICINAL_")
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    settings = Settings()
    assert not settings.run_jobs
    assert settings.home == given["VICINAL_HOME"]
    assert environment("worker", *values) == environment("replica", *values)


@each
def test_secrets_are_named_and_never_written(values: tuple[str, ...]) -> None:
    assert of_kind("Secret", *values) == []
    texts = [str(value) for value in all_values(rendered(*values))]
    written = [text for text in texts if re.search(r"\w+://[^/\s]*:[^$/\s][^/\s]*@", text)]
    assert written == []
    for part in PARTS:
        assert container(part, *values)["envFrom"] == [{"secretRef": {"name": "vicinal"}}]
