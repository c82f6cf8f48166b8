"""Docstrings begin with a noun or a verb: a clause without one has to be read twice."""

from __future__ import annotations

import ast
import re

import pytest

from tests.source_tree import PACKAGES, sources_of

# First lines of commands, which `--help` shows.
HELP = (
    "One calibration: what it was measured on, what it lets expect, and whether it still holds.",
    "Whether searches still look like the queries of the calibration in force, as servers have written.",
    "What a gallery holds, how it is searched, and what its threshold promises; all of it with --json.",
)
CLAUSE = re.compile(
    r"(What|Which|Who|Where|When|Why|How|Whether|One|Those|That|Of|With|From|So|As|By|For|To|If|Until)\b"
)


def clauses_in(source: str) -> list[str]:
    """First lines of docstrings that begin with a clause."""
    nodes = (
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    )
    lines = [(ast.get_docstring(node) or "").partition("\n")[0] for node in nodes]
    return [line for line in lines if CLAUSE.match(line)]


@pytest.mark.parametrize("folder", [*PACKAGES, "client"])
def test_docstrings_begin_with_a_noun_or_a_verb(folder: str) -> None:
    """What `--help` says word by word stays."""
    found = {
        path: [line for line in clauses_in(text) if line not in HELP]
        for path, text in sources_of(folder).items()
    }
    assert {path: lines for path, lines in found.items() if lines} == {}


def test_the_check_sees_a_clause() -> None:
    """Negative control."""
    source = 'def f():\n    """What it does."""\n\ndef g():\n    """Whatever."""\n'
    assert clauses_in(source) == ["What it does."]
