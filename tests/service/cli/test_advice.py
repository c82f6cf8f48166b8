"""Advice in messages: the commands and options that they name exist and take what they are given."""

from __future__ import annotations

import ast
import re
import shlex
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
import typer.main

from vicinal.calibration.advice import AdvisedError, advise
from vicinal.models.errors import install_command
from vicinal.service.cli.main import app
from vicinal.service.surfaces.command_line import Commands
from vicinal.service.words import COMMANDS, command_names, in_commands

ROOT = Path(__file__).resolve().parents[3]
_PACKAGES = ("service", "training", "indexer", "refine", "models", "calibration")
# A command in quotes or a text of its own; after the first words it may go on with its options.
_COMMAND = re.compile(r"`vicinal ([^`]+)`|^vicinal ([a-z][^`]*)$")
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]")
# Notes beside answers and in records, which are no errors and are finished sentences so far.
SAYS_COMMANDS = {
    "training/export/choice.py",
    "training/recipe.py",
    "indexer/sources/items.py",
    "service/duplicates/threshold.py",
    "service/galleries/open_galleries.py",
    "service/measuring/matcher.py",
    "service/measuring/drift.py",
}
# Options of other programs.
_OTHERS = {"--address", "--query-gpu", "--format", "--nproc-per-node", "--help", "--install-completion"}


@cache
def commands() -> dict[tuple[str, ...], Any]:
    found: dict[tuple[str, ...], Any] = {}

    def walk(command: Any, *words: str) -> None:
        found[words] = command
        for name, one in getattr(command, "commands", {}).items():
            walk(one, *words, name)

    walk(typer.main.get_command(app))
    return found


def options_of(*found: Any) -> set[str]:
    return {name for one in found for option in one.params for name in (*option.opts, *option.secondary_opts)}


def texts_of(path: Path) -> Iterator[str]:
    """Strings of a module but for docstrings and help, with an X in the place of each value."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inner = {id(one) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for one in node.values}
    documents = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(one.value) if isinstance(one, ast.Constant) else "X" for one in node.values)
        elif isinstance(node, ast.Constant) and id(node) not in inner | documents:
            yield str(node.value)


def advised() -> list[tuple[str, str]]:
    """Every module and text of the product that names a command or an option."""
    return [
        (str(path.relative_to(ROOT)), text)
        for package in _PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        for text in texts_of(path)
        if _COMMAND.search(text) or _OPTION.search(text)
    ]


def problem_of(line: str, *, is_named: bool = True) -> str | None:
    """Why a command after `vicinal` would be refused; None where it would be run, or is only named.

    Args:
        line: The command.
        is_named: Whether one without any word of its own is no command to type.
    """
    words = shlex.split(line.replace("{}", "X"))
    n = next(n for n in range(min(2, len(words)), -1, -1) if tuple(words[:n]) in commands())
    command, rest = commands()[tuple(words[:n])], words[n:]
    if not n or (hasattr(command, "commands") and rest):
        return f"there is no command '{' '.join(words[: n + 1])}'"
    if not rest and is_named:
        return None
    try:
        given, left, _ = command.make_parser(typer.Context(command)).parse_args(list(rest))
    except Exception as error:  # of whichever click typer has
        return str(error)
    missing = [one.name for one in command.params if one.required and given.get(one.name) in (None, ())]
    return f"left over: {left}" if left else f"missing: {missing}" if missing else None


@pytest.mark.slow
def test_commands_in_messages_would_be_run() -> None:
    found = [
        (module, line, not text[: match.start()].endswith("by "))
        for module, text in advised()
        for match in _COMMAND.finditer(text)
        for line in (match[1] or match[2]).split(" && ")
    ]
    assert len(found) > 40
    wrong = {
        (module, line): problem_of(line.removeprefix("vicinal "), is_named=is_named)
        for module, line, is_named in found
    }
    assert {key: why for key, why in wrong.items() if why} == {}


@pytest.mark.slow
def test_options_in_messages_are_options_of_some_command() -> None:
    known = options_of(*commands().values()) | _OTHERS
    named = {(module, name) for module, text in advised() for name in _OPTION.findall(text)}
    assert {(module, name) for module, name in named if name not in known} == set()


def advice() -> list[tuple[str, str, set[str]]]:
    """Every kind of advice with its module and the values that it is given."""
    return [
        (str(path.relative_to(ROOT)), texts_in(call.args[0]), {str(one.arg) for one in call.keywords})
        for package in _PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "advise"
    ]


def texts_in(node: ast.expr) -> str:
    return " ".join(str(one.value) for one in ast.walk(node) if isinstance(one, ast.Constant))


@pytest.mark.slow
def test_each_operation_and_field_that_errors_advise_to_has_a_name_on_the_command_line() -> None:
    options = options_of(*commands().values())
    found = advice()
    assert len(found) > 20
    blanks = {
        (module, blank)
        for module, kind, values in found
        for blank in re.findall(r"{(\w+(?:\(\))?)}", kind)
        if blank not in values
    }
    nameless = {
        (module, blank)
        for module, blank in blanks
        if blank.removesuffix("()") not in COMMANDS and command_names(blank, None) not in options
    }
    assert nameless == set()


@pytest.mark.slow
def test_below_the_command_line_no_message_names_a_command_or_an_option() -> None:
    below = ("indexer/", "models/", "refine/", "calibration/", "service/search/", "service/measuring/")
    below += (
        "service/galleries/",
        "service/labelling/",
        "service/duplicates/",
        "service/comparing/",
        "training/",
    )
    said = ((module, text) for module, text in advised() if module.startswith(below))
    # What an archive says of itself, and what a request says of its option.
    others = {*_OTHERS, "vicinal gallery", "--near/--exact"}
    found = {module for module, text in said if not others & {*text.split("=")}}
    assert found == SAYS_COMMANDS


def test_a_surface_says_advice_in_its_own_terms() -> None:
    error = AdvisedError("no ids: ", advise("name them by {id_column}, or {index()} it", gallery="a b"))
    assert (str(error), in_commands(error)) == (
        "no ids: name them by id_column, or `index` it",
        "no ids: name them by --id-column, or `vicinal index SOURCE --gallery 'a b'` it",
    )


@pytest.mark.parametrize(("flag", "said"), [("--weights", "--weights"), ("--set", "`weights`")])
def test_an_option_is_named_where_the_command_has_it(flag: str, said: str) -> None:
    def command(one: str) -> None:
        raise AdvisedError("none: ", advise("give a file with {weights}"))

    command.__annotations__["one"] = Annotated[str, typer.Option(flag)]
    alone = Commands()
    alone.command()(command)
    with pytest.raises(AdvisedError) as caught:
        alone([flag, "x"], standalone_mode=False)
    assert in_commands(caught.value) == f"none: give a file with {said}"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("calibrate --gallery shop", None),
        ("calibrate", None),
        ("calibrate --gallery shop --visits-from x", "No such option"),
        ("calibrate shop", "left over"),
        ("gallery activate shop", "missing"),
        ("gallery repair shop", "there is no command"),
        ("repair", "there is no command"),
    ],
)
def test_a_wrong_command_is_found(line: str, why: str | None) -> None:
    assert str(problem_of(line)).lower().startswith(str(why).lower())


EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


@pytest.mark.parametrize("extra", ["cpu", "gpu", "redis", "heif", "hub", "train"])
def test_what_is_missing_is_installed_by_its_own_name(extra: str) -> None:
    pip, install, *packages = shlex.split(install_command(extra))
    names = {re.split(r"[\[<>=]", one)[0].replace("_", "-") for one in packages}
    assert (pip, install) == ("pip", "install")
    assert names == {re.split(r"[\[<>=]", one)[0].replace("_", "-") for one in EXTRAS[extra]}


def test_nobody_is_told_to_install_a_package_that_no_index_has() -> None:
    files = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"), *(ROOT / "examples").rglob("*.*")]
    files += [path for package in (*_PACKAGES, "client", "deploy") for path in (ROOT / package).rglob("*.*")]
    told = [
        str(one) for one in files if one.suffix in (".md", ".py") and "vicinal[" in one.read_text("utf-8")
    ]
    assert told == []
