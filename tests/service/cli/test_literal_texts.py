"""Ids and labels are anybody's: the command line and its pages show each as it is, and read none of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rich.table import Table

from tests.service.types import Fail
from vicinal.service.cli import console
from vicinal.service.cli.console import print_table, say
from vicinal.service.words import visible

TEXTS = [
    "[new] shoes",
    "sku:key:0",
    "tea [/] coffee",
    "[link=https://example.org]x[/link]",
    "\\[red]",
    "\x1b[2J\x1b[31mred\x1b[0m",
    "\u202egnp.exe",
    "\u200eleft\u200f \u2066isolated\u2069",
    "two\nlines\rover\ttab",
    "nul\x00 bell\x07 \x9b31m",
    "no\xa0break\u3000wide\u2028line",
    "zero\u200bwidth\ufeff",
    "not UTF-8 \udce9",
    "שלום ✨ 👩‍🚀 鞋",
    "long " + "x" * 5000,
]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("is_terminal", [False, True])
def test_lines_and_tables_show_every_text_as_it_is(
    text: str, is_terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console.console, "_force_terminal", is_terminal)
    monkeypatch.setattr(console.console, "_width", 20_000)
    table = Table(text, "n", title=text, box=None)
    table.add_row(text, "1")
    table.add_row("a", text)
    say(text)
    print_table(table)
    said = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert said.count(visible(text)) == 5
    assert said.splitlines()[0] == visible(text)
    assert all(one.isprintable() or one in "\n\u200d" for one in said)


@pytest.mark.parametrize("text", TEXTS)
def test_an_error_names_what_it_is_about_as_it_is(fail: Fail, data_dir: Path, text: str) -> None:
    """Blanks are drawn together: an error is one line."""
    if "\0" in text:
        text = text.replace("\0", "")
    line = fail("search", "-g", "shoes", "--item", text)
    assert visible(" ".join(text.split())) in line


def test_nothing_else_of_the_command_line_prints() -> None:
    """One place prints, so that no text is read as markup by a command that forgot."""
    folder = Path(console.__file__).parent
    printing = re.compile(r"\bprint\(|\.print\(|typer\.s?echo|markup|Console\(|\[/\]|\[bold")
    found = {
        f"{path.name}: {line.strip()}"
        for path in folder.rglob("*.py")
        if path.name != "console.py"
        for line in path.read_text(encoding="utf-8").splitlines()
        if printing.search(line)
    }
    assert found == set()
