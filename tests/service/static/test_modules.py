"""Modules of the page: they import downwards, are small and light, and write no HTML by hand."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

STATIC = Path(__file__).resolve().parents[3] / "service" / "static"
# Lowest first; a place imports no other place.
FLOORS = ("vendor", "lib", "parts", "places", "")
MOST_LINES = 200
# What one visit loads, and what all places weigh together, which nobody loads at once.
MOST_BYTES_OF_A_PLACE, MOST_BYTES = 90_000, 200_000
_STATIC_IMPORT = re.compile(r"""^(?:import|export)\b[^;]*?["'](\.[^"']+)["'];""", re.MULTILINE)
_IMPORT = re.compile(rf"""{_STATIC_IMPORT.pattern}|\bimport\(["'](\.[^"']+)["']\)""", re.MULTILINE)
_FORBIDDEN = re.compile(
    r"\b(?:innerHTML|outerHTML|insertAdjacentHTML|dangerouslySetInnerHTML|document\.write|eval\()|\bstyle=\"|https?:"
)
# What a test of an address needs.
_WEB = re.compile(r"\^?https\?:\\?/|\"https?://www\.w3\.org/")


def own(folder: Path = STATIC) -> list[str]:
    """Modules that are written here."""
    paths = (one.relative_to(folder).as_posix() for one in folder.rglob("*.js"))
    return sorted(one for one in paths if not one.startswith("vendor/"))


def imports(text: str, module: str, pattern: re.Pattern[str] = _IMPORT) -> Iterator[str]:
    """Modules that a module names, by their paths in the folder of the page."""
    for match in pattern.finditer(text):
        named = next(filter(None, match.groups()))
        yield (STATIC / module).parent.joinpath(named).resolve().relative_to(STATIC).as_posix()


def floor(module: str) -> tuple[int, str]:
    """Height of a module, and its place."""
    top, *rest = module.split("/")
    if not rest:
        return len(FLOORS) - 1, ""
    return FLOORS.index(top), rest[0] if top == "places" else ""


def upward(module: str, text: str) -> list[str]:
    """Imports of a module that lead up, or into another place."""
    height, place = floor(module)
    found = []
    for other in imports(text, module):
        their_height, their_place = floor(other)
        if their_height > height or (place and their_place and their_place != place):
            found.append(other)
    return found


def forbidden(text: str) -> list[str]:
    """Ways to write HTML by hand or to ask elsewhere."""
    return _FORBIDDEN.findall(_WEB.sub("", text))


def closure(*modules: str) -> set[str]:
    """Modules, and all that they load before they run."""
    found, waiting = set[str](), list(modules)
    while waiting:
        module = waiting.pop()
        if module not in found:
            found.add(module)
            waiting += imports((STATIC / module).read_text("utf-8"), module, _STATIC_IMPORT)
    return found


def weight(paths: set[Path]) -> int:
    return sum(len(gzip.compress(one.read_bytes(), 9, mtime=0)) for one in paths)


def test_imports_go_down_only() -> None:
    found = {module: upward(module, (STATIC / module).read_text("utf-8")) for module in own()}
    assert {module: others for module, others in found.items() if others} == {}


def test_every_module_that_is_imported_is_there() -> None:
    named = {other for module in own() for other in imports((STATIC / module).read_text("utf-8"), module)}
    assert {one for one in named if not (STATIC / one).is_file()} == set()


def test_modules_are_small() -> None:
    sizes = {module: len((STATIC / module).read_text("utf-8").splitlines()) for module in own()}
    assert {module: n for module, n in sizes.items() if n > MOST_LINES} == {}


def test_nothing_becomes_html_by_hand_and_nothing_is_asked_for_elsewhere() -> None:
    found = {module: forbidden((STATIC / module).read_text("utf-8")) for module in own()}
    assert {module: words for module, words in found.items() if words} == {}


def test_the_shell_names_what_is_loaded_first() -> None:
    shell = (STATIC / "index.html").read_text("utf-8")
    named = re.findall(r'<link rel="modulepreload" href="page/\{digest\}/([^"]+)">', shell)
    assert sorted(named) == sorted(closure("main.js") - {"main.js"})


def test_every_place_has_a_module_and_a_style_whose_classes_are_its_own() -> None:
    routes = (STATIC / "routes.js").read_text("utf-8")
    for module in imports(routes, "routes.js"):
        text = (STATIC / module).read_text("utf-8")
        assert re.search(r"export (?:const|function) Place\b", text), module
        style = (STATIC / module).with_name(f"{module.split('/')[1]}.css")
        classes = set(re.findall(r"^\s*\.([a-z][\w-]*)", style.read_text("utf-8"), re.MULTILINE))
        name = style.stem
        assert {one for one in classes if one != name and not one.startswith(f"{name}-")} == set(), style


def test_what_a_place_needs_is_what_its_way_says() -> None:
    routes = (STATIC / "routes.js").read_text("utf-8")
    said = re.findall(r'place\("([^"]+)", ("\w+"|null), \(\) => import\("\./([^"]+)"\)', routes)
    assert len(said) == len(list(imports(routes, "routes.js")))
    for title, needs, module in said:
        text = (STATIC / module).read_text("utf-8")
        assert f'export const title = "{title}";' in text, module
        assert f"export const needs = {needs};" in text, module


def test_the_page_weighs_little() -> None:
    everything = {one for one in STATIC.rglob("*") if one.suffix in (".js", ".css", ".html")}
    assert weight(everything - {STATIC / "docs.html"}) <= MOST_BYTES
    frame = {
        STATIC / "index.html",
        *(STATIC / "look").glob("*.css"),
        *map(STATIC.joinpath, closure("main.js")),
    }
    for module in imports((STATIC / "routes.js").read_text("utf-8"), "routes.js"):
        folder = (STATIC / module).parent
        place = {*folder.glob("*.js"), *folder.glob("*.css"), *map(STATIC.joinpath, closure(module))}
        assert weight(frame | place) <= MOST_BYTES_OF_A_PLACE, module


@pytest.mark.parametrize(
    ("module", "text", "found"),
    [
        ("lib/api.js", 'import { a } from "../parts/grid.js";', ["parts/grid.js"]),
        ("lib/api.js", 'export { a } from "../parts/grid.js";', ["parts/grid.js"]),
        ("parts/grid.js", 'const a = await import("../places/jobs/index.js");', ["places/jobs/index.js"]),
        ("places/jobs/index.js", 'import "../search/why.js";', ["places/search/why.js"]),
        ("places/jobs/index.js", 'import { a } from "./job.js"; import b from "../../lib/api.js";', []),
    ],
)
def test_the_check_of_the_imports_sees_one_that_leads_up(module: str, text: str, found: list[str]) -> None:
    """Negative control."""
    assert upward(module, text) == found


@pytest.mark.parametrize(
    "text",
    ["place.innerHTML = text", "eval(text)", '<p style="color: red">', 'fetch("https://evil.example/")'],
)
def test_the_check_of_the_words_sees_them(text: str) -> None:
    """Negative control."""
    assert len(forbidden(text)) == 1


def test_an_address_may_be_tried() -> None:
    assert forbidden(r"/^https?:\/\//i.test(uri)") == []
