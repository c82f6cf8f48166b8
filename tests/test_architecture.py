"""Architecture: floors, public names, and what a base installation needs."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from vicinal.models.bundle import ModelBundle

ROOT = Path(__file__).resolve().parents[1]
# For each package the others of ours that it may import.
FLOORS = {
    "calibration": set(),
    "models": {"calibration"},
    "refine": {"models"},
    "indexer": {"refine", "models"},
    "service": {"indexer", "refine", "models", "calibration"},
}
# Where modules may need the `train` extra to be imported.
FOR_TRAINING = (
    "models/backbone.py",
    "models/export.py",
    "models/losses/",
    "models/plain_conv_net.py",
    "models/training/",
    "refine/training/",
)
TRAINING_PACKAGES = ("torch", "timm", "pytorch_metric_learning", "onnx", "onnxscript", "torchvision")

WITHOUT_TRAINING_PACKAGES = f"""
import sys
for name in {TRAINING_PACKAGES!r}:
    sys.modules[name] = None
import vicinal.calibration, vicinal.indexer, vicinal.models, vicinal.refine, vicinal.service.cli
from vicinal import Settings, create_app
app = create_app(Settings(data_dir=sys.argv[1], bundle=sys.argv[2], device="cpu", threads=1))
print(len(app.routes))
"""


def modules_of(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def ours_imported_by(source: str) -> Iterator[str]:
    """Our packages that a module imports, also inside of functions."""
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        yield from (name.split(".")[1] for name in names if name.startswith("vicinal."))


def training_packages_imported_by(source: str) -> set[str]:
    """Packages of the `train` extra that importing a module imports, apart from what it imports in turn."""
    names: list[str] = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.append(node.module)
    return {name.partition(".")[0] for name in names} & set(TRAINING_PACKAGES)


def asserts_in(source: str) -> list[int]:
    return [node.lineno for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Assert)]


def packages_with_public_names() -> list[str]:
    inits = (path for package in FLOORS for path in (ROOT / package).rglob("__init__.py"))
    with_names = (path for path in inits if "__all__" in path.read_text(encoding="utf-8"))
    return sorted(".".join(("vicinal", *path.parent.relative_to(ROOT).parts)) for path in with_names)


@pytest.mark.parametrize("package", FLOORS)
def test_imports_go_down_the_floors_only(package: str) -> None:
    upward = {
        (path.name, imported)
        for path in modules_of(package)
        for imported in ours_imported_by(path.read_text(encoding="utf-8"))
        if imported not in FLOORS[package] | {package}
    }
    assert upward == set()


def test_the_check_of_the_floors_sees_an_import_inside_a_function() -> None:
    """Negative control."""
    source = "def run():\n    from vicinal.service.matcher import Matcher\n    import vicinal.indexer as b\n"
    assert set(ours_imported_by(source)) == {"service", "indexer"}


@pytest.mark.parametrize("package", FLOORS)
def test_only_training_folders_import_torch(package: str) -> None:
    importing = [
        path.relative_to(ROOT).as_posix()
        for path in modules_of(package)
        if training_packages_imported_by(path.read_text(encoding="utf-8"))
    ]
    assert [path for path in importing if not path.startswith(FOR_TRAINING)] == []


def test_the_check_for_torch_sees_an_import_from_it() -> None:
    """Negative control."""
    assert training_packages_imported_by("import numpy\nfrom torch.nn import Linear\n") == {"torch"}


def test_serving_and_indexing_need_no_training_package(tmp_path: Path, tiny_bundle: ModelBundle) -> None:
    """In a process where torch and its company cannot be imported."""
    command = [sys.executable, "-c", WITHOUT_TRAINING_PACKAGES, str(tmp_path), str(tiny_bundle.path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 5


@pytest.mark.parametrize("package", TRAINING_PACKAGES)
def test_a_blocked_package_cannot_be_imported(package: str) -> None:
    """Negative control of the test above."""
    code = f"import sys; sys.modules[{package!r}] = None; import {package}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, timeout=60)
    assert b"ModuleNotFoundError" in done.stderr


@pytest.mark.parametrize("package", packages_with_public_names())
def test_public_names_are_sorted_and_exist(package: str) -> None:
    module = importlib.import_module(package)
    assert module.__all__ == sorted(module.__all__)
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


def test_every_floor_names_its_public_api() -> None:
    assert {f"vicinal.{name}" for name in FLOORS} - set(packages_with_public_names()) == set()


@pytest.mark.parametrize("package", FLOORS)
def test_no_shipped_module_asserts(package: str) -> None:
    """`python -O` drops them, and a user would see a traceback without a reason."""
    found = {path.name: asserts_in(path.read_text(encoding="utf-8")) for path in modules_of(package)}
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_the_check_for_asserts_sees_one() -> None:
    """Negative control."""
    assert asserts_in("def f(x):\n    assert x\n") == [2]
