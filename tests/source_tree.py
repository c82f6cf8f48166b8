"""What the project's sources say of themselves: who imports whom, and which lines stand twice."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import resolve_name
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("calibration", "models", "refine", "training", "indexer", "service")
Graph = Mapping[str, set[str]]


def sources_of(folder: str) -> dict[str, str]:
    """The text of every Python file below a folder of the repository, by its path from the root."""
    files = sorted((ROOT / folder).rglob("*.py"))
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in files}


def package_sources() -> dict[str, str]:
    """The same of everything that is installed, by the name it is imported under."""
    found = {"vicinal": (ROOT / "src/vicinal/__init__.py").read_text(encoding="utf-8")}
    for package in PACKAGES:
        for path, text in sources_of(package).items():
            name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            found[f"vicinal.{name}"] = text
    return found


def imported_names(source: str, package: str = "") -> Iterator[str]:
    """Every name that a module imports, at any level: `a.b.c` for `from a.b import c`.

    Args:
        source: The module's text.
        package: The package that its relative imports start from.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = resolve_name("." * node.level + (node.module or ""), package or None)
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def import_graph(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """The modules of ours that each module names in an import."""
    graph: dict[str, set[str]] = {}
    for module, text in sources.items():
        is_package = any(other.startswith(f"{module}.") for other in sources)
        package = module if is_package else module.rpartition(".")[0]
        named = (_module_of(name, sources) for name in imported_names(text, package))
        graph[module] = {name for name in named if name is not None and name != module}
    return graph


def _module_of(name: str, known: Iterable[str]) -> str | None:
    """The longest part of a name that is a module: an import of a function belongs to its module."""
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name or None


def circles(graph: Graph) -> list[list[str]]:
    """Groups of modules in which each is reached from each other (Tarjan's strongly connected components)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        order[module] = lowest[module] = len(order)
        stack.append(module)
        for other in sorted(graph.get(module, ())):
            if other not in order:
                visit(other)
            if other in stack:
                lowest[module] = min(lowest[module], lowest[other])
        if lowest[module] == order[module]:
            members = stack[stack.index(module) :]
            del stack[-len(members) :]
            if len(members) > 1:
                found.append(sorted(members))

    for module in sorted(graph):
        if module not in order:
            visit(module)
    return found


def upward_imports(graph: Graph, package: str, floors: Sequence[str]) -> set[tuple[str, str]]:
    """Imports inside a package that go to a higher floor.

    Args:
        graph: Who imports whom.
        package: Such as `vicinal.service`.
        floors: Its folders and modules, lowest first.

    Raises:
        ValueError: The package holds a folder or module that is on no floor.
    """
    inside = {name: _part(name, package) for name in graph if name.startswith(f"{package}.")}
    unknown = set(inside.values()) - set(floors)
    if unknown:
        raise ValueError(f"no floor is given for {sorted(unknown)} of {package}")
    return {
        (module.removeprefix(f"{package}."), other.removeprefix(f"{package}."))
        for module, part in inside.items()
        for other in graph[module] & set(inside)
        if floors.index(inside[other]) > floors.index(part)
    }


def _part(module: str, package: str) -> str:
    return module.removeprefix(f"{package}.").partition(".")[0]


def repeated_runs(sources: Mapping[str, str], length: int) -> list[tuple[str, str]]:
    """Places that share a run of equal lines, as `path:line` pairs; only the start of a longer run is told.

    Indents do not count; blank lines, comments and imports are passed over.
    """
    places: dict[tuple[str, ...], list[tuple[str, int]]] = defaultdict(list)
    lines = {path: _counted_lines(text) for path, text in sources.items()}
    for path, counted in lines.items():
        for start in range(len(counted) - length + 1):
            places[tuple(text for _, text in counted[start : start + length])].append((path, start))
    found = set()
    for first, *others in places.values():
        for other in others:
            before = [lines[path][start - 1][1] if start else None for path, start in (first, other)]
            if before[0] is None or before[0] != before[1]:
                found.add(tuple(f"{path}:{lines[path][start][0]}" for path, start in (first, other)))
    return sorted(found)


def _counted_lines(source: str) -> list[tuple[int, str]]:
    imports = {
        line
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    numbered = (
        (number, re.sub(r"\s+", " ", line.strip())) for number, line in enumerate(source.split("\n"), 1)
    )
    return [(n, line) for n, line in numbered if line and not line.startswith("#") and n not in imports]
