"""Floors of the dependencies: none admits a version with a known fault in what reads the input of others."""

from __future__ import annotations

import importlib.metadata
import tomllib
from collections.abc import Iterator

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from tests.source_tree import ROOT

# The first version without what is known, and an advisory of the last before it.
WITHOUT_KNOWN_FAULTS = {
    "filelock": "3.20.3",  # CVE-2025-68146, CVE-2026-22701: follows links that others lay
    "h11": "0.16",  # CVE-2025-43859: chunks that a proxy reads otherwise
    "onnx": "1.21",  # CVE-2025-51480, CVE-2026-27489, CVE-2026-34445: files outside of a model's folder
    "onnxruntime": "1.29",  # its kernels and its loader read beyond what a model holds
    "onnxruntime-gpu": "1.25",  # the same, as far as it is built for CUDA 12: paths of external data
    "pillow": "12.3",  # CVE-2026-40192, PYSEC-2026-2253 and more: writes beyond memory, bombs
    "pyarrow": "23.0.1",  # CVE-2026-25087: uses what is freed
    "python-multipart": "0.0.31",  # CVE-2024-53981, CVE-2026-24486, CVE-2026-42561: bodies that stop a server
    "starlette": "1.3.1",  # CVE-2025-62727, CVE-2026-48710, CVE-2026-54283: paths and bodies
    "torch": "2.6",  # CVE-2025-32434: runs what is in weights
}


def requirements() -> Iterator[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for written in (project["dependencies"], *project["optional-dependencies"].values()):
        yield from map(Requirement, written)


@pytest.mark.parametrize("name", WITHOUT_KNOWN_FAULTS)
def test_no_floor_admits_a_version_with_a_known_fault(name: str) -> None:
    found = [one for one in requirements() if one.name == name]
    assert found, f"{name} is no dependency of its own, so that nothing holds its floor"
    for one in found:
        floors = [Version(part.version) for part in one.specifier if part.operator == ">="]
        assert floors, one
        assert max(floors) >= Version(WITHOUT_KNOWN_FAULTS[name]), one


def test_every_dependency_has_a_floor_that_is_met_here() -> None:
    for one in requirements():
        assert any(part.operator == ">=" for part in one.specifier), one
        try:
            version = importlib.metadata.version(one.name)
        except importlib.metadata.PackageNotFoundError:
            continue
        assert one.specifier.contains(version, prereleases=True), (one, version)
