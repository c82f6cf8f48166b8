"""Libraries of the page are the files that were looked at, each with its licence."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "service" / "static" / "vendor"


@pytest.fixture(scope="module")
def vendor() -> ModuleType:
    script = ROOT / ".ci" / "vendor.py"
    if not script.exists():
        pytest.skip("an sdist has no script that vendors")
    spec = importlib.util.spec_from_file_location("vendor", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_files_are_those_of_the_listed_packages(vendor: ModuleType) -> None:
    assert vendor.check() == []


def test_every_package_has_its_licence_beside_it(vendor: ModuleType) -> None:
    assert {one.name for one in FOLDER.glob("LICENSE.*")} == {
        "LICENSE.preact",
        "LICENSE.htm",
        "LICENSE.uplot",
    }


def test_a_changed_a_missing_and_a_further_file_are_found(vendor: ModuleType, tmp_path: Path) -> None:
    """Negative control."""
    copied = tmp_path / "vendor"
    shutil.copytree(FOLDER, copied)
    (copied / "htm.js").write_bytes((copied / "htm.js").read_bytes().replace(b"e", b"f", 1))
    (copied / "hooks.js").unlink()
    (copied / "other.js").write_text("")
    assert vendor.check(copied) == [
        "'hooks.js' is missing",
        "'other.js' is in no package of versions.json",
        "'htm.js' was changed: run `make vendor`",
    ]
