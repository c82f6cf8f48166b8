"""Architecture: floors, folders, public names, and what a base installation needs."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.source_tree import (
    PACKAGES,
    ROOT,
    circles,
    import_graph,
    imported_names,
    package_sources,
    repeated_runs,
    sources_of,
    upward_imports,
)
from vicinal.models.bundle import ModelBundle

# For each package the others of ours that it may import.
FLOORS = {
    "calibration": set(),
    "models": {"calibration"},
    "refine": {"models", "calibration"},
    "training": {"refine", "models", "calibration"},
    "indexer": {"refine", "models", "calibration"},
    "service": {"training", "indexer", "refine", "models", "calibration"},
}
# Inside of two packages, lowest first: a folder or module imports itself and what stands before it.
INNER_FLOORS = {
    "indexer": (
        "errors",
        "item_rules",
        "csv_tables",
        "disk",
        "state",
        "sources",
        "filters",
        "storage",
        "cluster",
        "graph",
        "engines",
        "duplicates",
        "views",
        "gallery",
        "hygiene",
        "originals",
        "reader",
        "jobs",
        "transfer",
    ),
    "service": (
        "request_fields",
        "errors",
        "checked_calls",
        "problem_types",
        "records",
        "known_names",
        "observability",
        "process",
        "training",
        "search",
        "settings",
        "database",
        "keys",
        "measuring",
        "words",
        "labelling",
        "answering",
        "galleries",
        "comparing",
        "duplicates",
        "reports",
        "jobs",
        "operations",
        "surfaces",
        "local_gallery",
        "http",
        "demo",
        "doctor",
        "cli",
    ),
}
GENERATED = "by `client/generate.py`"
MOST_MODULES = 15
# Lines of Python that are shipped, but for what is generated, and of tests; they only fall.
BUDGET = {"shipped": 70237, "tests": 62542}
MOST_LINES = 2500
# Folders with more, until they are made lighter.
LARGE_FOLDERS = {
    "indexer/sources",
    "service",
    "service/cli",
    "service/http/routes",
    "service/measuring",
    "service/search",
}

TRAINING_PACKAGES = ("torch", "timm", "pytorch_metric_learning", "onnx", "onnxscript", "torchvision")
FOR_TRAINING = "training/"
# The one module of the service that names anything of training, and loads it when it is asked to.
TO_TRAINING = "service/training.py"
HEAVY = ("faiss", "fastapi", "lance", "numpy", "onnxruntime", "pydantic", *TRAINING_PACKAGES)

WITHOUT_TRAINING_PACKAGES = f"""
import sys
for name in {(*TRAINING_PACKAGES, "sklearn")!r}:
    sys.modules[name] = None
import vicinal.calibration, vicinal.indexer, vicinal.models, vicinal.refine, vicinal.service.cli
from vicinal import Settings, create_app
app = create_app(Settings(data_dir=sys.argv[1], bundle=sys.argv[2], device="cpu", threads=1))
print(len(app.routes))
"""


@pytest.fixture(scope="module")
def graph() -> dict[str, set[str]]:
    return import_graph(package_sources())


def training_packages_imported_by(source: str) -> set[str]:
    """Packages of the `train` extra that a module imports, also inside of functions."""
    return {name.partition(".")[0] for name in imported_names(source)} & set(TRAINING_PACKAGES)


def asserts_in(source: str) -> list[int]:
    return [node.lineno for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Assert)]


def packages_with_public_names() -> list[str]:
    inits = (path for package in FLOORS for path in (ROOT / package).rglob("__init__.py"))
    with_names = (path for path in inits if "__all__" in path.read_text(encoding="utf-8"))
    return sorted(".".join(("vicinal", *path.parent.relative_to(ROOT).parts)) for path in with_names)


def is_for_training(package: str) -> bool:
    return package.startswith("vicinal.training")


def modules_loaded_by(code: str) -> set[str]:
    """Top-level modules that a new process has loaded after some code."""
    command = [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT / "src", timeout=120, check=True)
    return {name.partition(".")[0] for name in done.stdout.split()}


@pytest.mark.parametrize("package", FLOORS)
def test_imports_go_down_the_floors_only(package: str, graph: dict[str, set[str]]) -> None:
    upward = {
        (module, other)
        for module, others in graph.items()
        for other in others
        if module.startswith(f"vicinal.{package}")
        and (other == "vicinal" or other.split(".")[1] not in FLOORS[package] | {package})
    }
    assert upward == set()


@pytest.mark.parametrize("package", INNER_FLOORS)
def test_imports_inside_a_package_go_down_its_floors(package: str, graph: dict[str, set[str]]) -> None:
    assert upward_imports(graph, f"vicinal.{package}", INNER_FLOORS[package]) == set()


def test_the_check_of_the_floors_sees_an_import_inside_a_function() -> None:
    """Negative control."""
    sources = {
        "vicinal.service.search": "",
        "vicinal.service.search.scorer": "def run():\n    from vicinal.service.http import app\n",
        "vicinal.service.http": "",
        "vicinal.service.http.app": "from ..search.scorer import run\n",
    }
    graph = import_graph(sources)
    upward = upward_imports(graph, "vicinal.service", INNER_FLOORS["service"])
    assert upward == {("search.scorer", "http.app")}
    assert circles(graph) == [["vicinal.service.http.app", "vicinal.service.search.scorer"]]


def test_a_folder_without_a_floor_is_refused() -> None:
    """Negative control: a new folder cannot stand outside of the table."""
    with pytest.raises(ValueError, match="'attic'"):
        upward_imports({"vicinal.service.attic.box": set()}, "vicinal.service", INNER_FLOORS["service"])


def test_no_modules_import_each_other_in_a_circle(graph: dict[str, set[str]]) -> None:
    assert circles(graph) == []


def test_folders_stay_small() -> None:
    paths = [Path(path) for package in PACKAGES for path in sources_of(package)]
    sizes = Counter(path.parent.as_posix() for path in paths if path.name != "__init__.py")
    assert {folder: n for folder, n in sizes.items() if n > MOST_MODULES} == {}


@pytest.mark.parametrize(("name", "call"), [("time", "sleep"), ("os", "kill")])
def test_a_quick_test_that_sleeps_or_kills_is_noticed(name: str, call: str) -> None:
    """Negative control of the guard in `tests/conftest.py`."""
    with pytest.raises(pytest.fail.Exception, match="mark it slow"):
        getattr(importlib.import_module(name), call)(0, 0)


def is_generated(path: str, text: str) -> bool:
    """Tell if the client's build makes a module; what makes it is written by hand, and names itself too."""
    return path.startswith("client/src/vicinal_client/") and GENERATED in text


def test_what_generates_counts_and_what_is_generated_does_not() -> None:
    generated = {Path(path).name for path, text in sources_of("client").items() if is_generated(path, text)}
    assert generated == {"models.py", "options.py"}


def lines_by_folder(*tops: str) -> Counter[str]:
    counts: Counter[str] = Counter()
    for top in tops:
        for path, text in sources_of(top).items():
            if not is_generated(path, text):
                counts[Path(path).parent.as_posix()] += text.count("\n")
    return counts


def test_lines_stay_within_the_budget() -> None:
    lines = {
        "shipped": lines_by_folder(*PACKAGES, "client").total(),
        "tests": lines_by_folder("tests").total(),
    }
    assert {what: (n, BUDGET[what]) for what, n in lines.items() if n > BUDGET[what]} == {}


def test_no_folder_is_large_but_by_name() -> None:
    lines = lines_by_folder(*PACKAGES, "client")
    assert {folder for folder, n in lines.items() if n > MOST_LINES} == LARGE_FOLDERS


def test_the_client_imports_httpx_and_pydantic_alone() -> None:
    imported = {name for text in sources_of("client/src").values() for name in imported_names(text)}
    tops = {name.partition(".")[0] for name in imported}
    assert tops - set(sys.stdlib_module_names) == {"httpx", "pydantic", "vicinal_client"}


def test_no_ten_lines_stand_twice() -> None:
    sources = {
        path: text
        for folder in (*PACKAGES, "client", "src", "benchmarks", "docs")
        for path, text in sources_of(folder).items()
        if not is_generated(path, text)
    }
    assert repeated_runs(sources, 10) == []


def test_the_check_for_repetition_sees_lines_that_moved() -> None:
    """Negative control: other indents, comments and imports hide nothing, and a longer run counts once."""
    lines = [f"x{i} = {i}" for i in range(12)]
    moved = ["def f():", "    import os", *(f"    {line}\n    # why" for line in lines)]
    found = repeated_runs({"a.py": "\n".join(lines), "b.py": "\n".join(moved)}, 10)
    assert found == [("a.py:1", "b.py:3")]
    assert repeated_runs({"a.py": "\n".join(lines[:9]), "b.py": "\n".join(moved)}, 10) == []


@pytest.mark.parametrize("package", PACKAGES)
def test_only_training_files_import_torch(package: str) -> None:
    with_torch = {path for path, text in sources_of(package).items() if training_packages_imported_by(text)}
    assert {path for path in with_torch if not path.startswith(FOR_TRAINING)} == set()


def test_the_service_reaches_training_at_one_place() -> None:
    reaching = {
        path
        for path, text in sources_of("service").items()
        if any(name.startswith("vicinal.training") for name in imported_names(text))
    }
    assert reaching == {TO_TRAINING}


def test_serving_and_commands_load_nothing_of_training() -> None:
    modules = ("http.app", "cli.main", "surfaces.jobs")
    code = "import sys, " + ", ".join(f"vicinal.service.{one}" for one in modules)
    said = f"{code}; print([one for one in sys.modules if one.startswith('vicinal.training')])"
    done = subprocess.run(
        [sys.executable, "-c", said],
        capture_output=True,
        text=True,
        cwd=ROOT / "src",
        timeout=120,
        check=True,
    )
    assert done.stdout.split() == ["[]"]


@pytest.mark.slow
def test_every_name_of_training_that_the_service_asks_for_is_there() -> None:
    """The table and what type checkers read name the same."""
    module = importlib.import_module("vicinal.service.training")
    tree = ast.parse((ROOT / TO_TRAINING).read_text(encoding="utf-8"))
    for_types = {
        f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("vicinal.training")
        for alias in node.names
    }
    assert for_types == {f"vicinal.training.{place}.{name}" for name, place in module._MODULES.items()}
    assert all(getattr(module, name) is not None for name in module._MODULES)


def test_the_check_for_torch_sees_an_import_from_it() -> None:
    """Negative control."""
    source = "import numpy\ndef f():\n    from torch.nn import Linear\n"
    assert training_packages_imported_by(source) == {"torch"}


@pytest.mark.slow
def test_serving_and_indexing_need_no_training_package(tmp_path: Path, tiny_bundle: ModelBundle) -> None:
    """In a process where torch and its company cannot be imported."""
    command = [sys.executable, "-c", WITHOUT_TRAINING_PACKAGES, str(tmp_path), str(tiny_bundle.path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT / "src", timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 5


@pytest.mark.parametrize("package", TRAINING_PACKAGES)
def test_a_blocked_package_cannot_be_imported(package: str) -> None:
    """Negative control of the test above."""
    code = f"import sys; sys.modules[{package!r}] = None; import {package}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, timeout=60)
    assert b"ModuleNotFoundError" in done.stderr


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert modules_loaded_by("import vicinal; dir(vicinal)") & set(HEAVY) == set()


def test_searching_from_a_program_loads_no_training_package() -> None:
    loaded = modules_loaded_by("from vicinal import Matcher")
    assert loaded & set(TRAINING_PACKAGES) == set()
    assert "numpy" in loaded


@pytest.mark.parametrize(
    "package",
    [
        pytest.param(name, marks=[pytest.mark.slow] if is_for_training(name) else [])
        for name in packages_with_public_names()
    ],
)
def test_public_names_are_sorted_and_exist(package: str) -> None:
    module = importlib.import_module(package)
    assert module.__all__ == sorted(module.__all__)
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


def test_every_floor_names_its_public_api() -> None:
    """What the service asks training for stands in its one module for that."""
    assert {f"vicinal.{name}" for name in FLOORS} - set(packages_with_public_names()) == {"vicinal.training"}


@pytest.mark.parametrize("package", [*FLOORS, "client"])
def test_no_shipped_module_asserts(package: str) -> None:
    """`python -O` drops them, and a user would see a traceback without a reason."""
    found = {path: asserts_in(text) for path, text in sources_of(package).items()}
    assert {path: lines for path, lines in found.items() if lines} == {}


def test_the_check_for_asserts_sees_one() -> None:
    """Negative control."""
    assert asserts_in("def f(x):\n    assert x\n") == [2]


@pytest.mark.parametrize("folder", ["service/operations", "service/cli"])
def test_what_a_command_needs_is_imported_when_it_runs(folder: str) -> None:
    heavy = {"faiss", "fastapi", "lance", "numpy", "onnxruntime", "PIL", "pyarrow", "torch"}
    for path, text in sources_of(folder).items():
        first = [one for one in ast.parse(text).body if isinstance(one, ast.Import | ast.ImportFrom)]
        names = imported_names("\n".join(map(ast.unparse, first)), "vicinal")
        assert {name.partition(".")[0] for name in names} & heavy == set(), path
