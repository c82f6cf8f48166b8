"""Modules of the page: they import downwards, are small and light, and write no HTML by hand."""

from __future__ import annotations

import gzip
import re
import subprocess
from collections.abc import Iterator
from graphlib import CycleError
from pathlib import Path

import pytest

from tests.programs import program
from vicinal.service.http.page_files import bundled, page_files

STATIC = Path(__file__).resolve().parents[3] / "service" / "static"
# Lowest first; a place imports no other place.
FLOORS = ("vendor", "lib", "parts", "places", "")
MOST_LINES = 200
# What one visit loads, and what all places weigh together, which nobody loads at once; packed, as served.
MOST_BYTES_OF_A_PLACE, MOST_BYTES = 90_000, 150_000
_IMPORT = re.compile(
    r"""^(?:import|export)\b[^;]*?["'](\.[^"']+)["'];|\bimport\(["'](\.[^"']+)["']\)""", re.MULTILINE
)
_FORBIDDEN = re.compile(
    r"\b(?:innerHTML|outerHTML|insertAdjacentHTML|dangerouslySetInnerHTML|document\.write|eval\()|\bstyle=\"|https?:"
)
# What a test of an address needs.
_WEB = re.compile(r"\^?https\?:\\?/|\"https?://www\.w3\.org/")


def own(folder: Path = STATIC) -> list[str]:
    """Modules that are written here."""
    paths = (one.relative_to(folder).as_posix() for one in folder.rglob("*.js"))
    return sorted(one for one in paths if not one.startswith("vendor/"))


def imports(text: str, module: str) -> Iterator[str]:
    """Modules that a module names, by their paths in the folder of the page."""
    for match in _IMPORT.finditer(text):
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


def weight(*paths: str) -> int:
    """Bytes of the shell and of files as they are served."""
    found = page_files()
    shell = gzip.compress(found.shell.encode(), 9, mtime=0)
    return len(shell) + sum(len(found.files[one].packed) for one in paths)


def test_imports_go_down_only() -> None:
    found = {module: upward(module, (STATIC / module).read_text("utf-8")) for module in own()}
    assert {module: others for module, others in found.items() if others} == {}


def test_every_module_that_is_imported_is_there() -> None:
    named = {other for module in own() for other in imports((STATIC / module).read_text("utf-8"), module)}
    assert {one for one in named if not (STATIC / one).is_file()} == set()


def test_every_name_that_is_imported_is_exported() -> None:
    texts = [one.content.decode() for name, one in page_files().files.items() if name.endswith(".js")]
    exported = {
        module: set(re.split(r"\W+", names))
        for text in texts
        for module, names in zip(
            re.findall(r"^export const (\$\w+) = \(\(\) => \{$", text, re.MULTILINE),
            re.findall(r"^return \{ ([\w, ]*) \};\n\}\)\(\);$", text, re.MULTILINE),
            strict=True,
        )
    }
    taken = [
        (module, name.partition(":")[0].strip())
        for text in texts
        for names, module in re.findall(r"^const \{([^}]*)\} = (\$\w+);$", text, re.MULTILINE)
        for name in names.split(",")
    ]
    assert len(taken) > len(own())
    missing = [(module, name) for module, name in taken if name not in exported.get(module, {name})]
    assert missing == []


def test_modules_are_small() -> None:
    sizes = {module: len((STATIC / module).read_text("utf-8").splitlines()) for module in own()}
    assert {module: n for module, n in sizes.items() if n > MOST_LINES} == {}


def test_nothing_becomes_html_by_hand_and_nothing_is_asked_for_elsewhere() -> None:
    found = {module: forbidden((STATIC / module).read_text("utf-8")) for module in own()}
    assert {module: words for module, words in found.items() if words} == {}


def test_the_shell_names_what_is_loaded_first() -> None:
    named = re.findall(r'<link rel="modulepreload" href="page/\w+/([^"]+)">', page_files().shell)
    main = page_files().files["main.js"].content.decode()
    assert sorted(named) == sorted(re.findall(r'^import .* from "\./([^"]+)";$', main, re.MULTILINE))


def test_each_file_that_is_served_can_be_read_as_a_module(tmp_path: Path) -> None:
    for name, one in page_files().files.items():
        if name.endswith(".js"):
            written = tmp_path / name.replace("/", "-").replace(".js", ".mjs")
            written.write_bytes(one.content)
            subprocess.run([program("node"), "--check", written], check=True)


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


def comments_in_templates(text: str) -> list[str]:
    """Lines of texts over several lines that would be taken for comments, and left out where it is served."""
    starts = re.finditer(r"^[ \t]*//.*$", text, re.MULTILINE)
    return [one[0].strip() for one in starts if text[: one.start()].count("`") % 2]


def test_no_text_is_taken_for_a_comment() -> None:
    assert {one: found for one in own() if (found := comments_in_templates((STATIC / one).read_text()))} == {}
    assert comments_in_templates("// a\nconst b = `\n  // c\n`;\n// d\n") == ["// c"]


def test_the_page_weighs_little() -> None:
    files = [one for one in page_files().files if one.endswith((".js", ".css"))]
    assert weight(*files) <= MOST_BYTES
    plot = {"vendor/uplot.js", "vendor/uplot.css"}
    frame = {one for one in files if one.startswith(("look/", "vendor/", "main."))} - plot
    for style in (one for one in files if one.startswith("places/")):
        place = f"{Path(style).stem}.js"
        drawn = plot if b"Plot" in page_files().files[place].content else set()
        assert weight(*frame, place, style, *drawn) <= MOST_BYTES_OF_A_PLACE, place


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


def test_a_file_holds_modules_after_what_they_import_and_asks_for_those_of_others(tmp_path: Path) -> None:
    modules = {
        "lib/a.js": 'import { b as of } from "./b.js";\nexport const a = () => of() + 1;\n',
        "lib/b.js": 'import v from "../vendor/v.js";\nfunction b() { return v; }\nexport { b };\n',
        "places/x/index.js": 'import { a } from "../../lib/a.js";\n// Says.\nexport async function x() {\n'
        "  const b = `// ${a()}`;\n  return b;\n}\n",
        "app.js": 'export const later = () => import("./places/x/index.js");\n',
    }
    made = bundled(modules)
    assert sorted(made) == ["main.js", "x.js"]
    assert b"Says" not in made["x.js"]
    (tmp_path / "vendor").mkdir()
    (tmp_path / "vendor" / "v.js").write_text("export default 1;\n")
    (tmp_path / "package.json").write_text('{"type": "module"}')
    for name, content in made.items():
        (tmp_path / name).write_bytes(content)
    script = 'import { $app } from "./main.js"; console.log(await (await $app.later()).x())'
    command = [program("node"), "--input-type=module", "--eval", script]
    assert (
        subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout == "// 2\n"
    )


def test_modules_that_import_each_other_are_refused() -> None:
    with pytest.raises(CycleError):
        bundled({"lib/a.js": 'import { b } from "./b.js";\n', "lib/b.js": 'import { a } from "./a.js";\n'})
