"""Blocks of a documentation page, run in order in a folder with pictures: shell, TOML, JSON, programs.

An indented block is shell. A fenced one says what it is; `text` is not run. A comment above a block:

    <!-- not run: needs a network -->     leaves it out; the reason is needed
    <!-- printed, shortened -->           JSON with names and truths that the last command printed

Commands run as `python -m vicinal` in the page's folder and ask a server of the test's in place of the
one at port 8321, and so do programs. JavaScript whose first line is the comment `// name.mjs` is also kept as
that file, which later blocks import. What a user reads off an answer is a variable: `$ID` is the id that was
printed last, `$NEW` and `$OLD` are the numbers of the newest and the oldest version.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import textwrap
import time
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
from sybil import Document, Example, Region
from sybil.parsers.markdown.lexers import FencedCodeBlockLexer

from benchmarks.common.server_process import running_server
from tests.forks import forked_python
from tests.programs import program
from vicinal.models.bundle import default_bundle_path

__all__ = ["PageFolder", "blocks", "run_page"]

ROOT = Path(__file__).resolve().parents[1]
_FENCES = FencedCodeBlockLexer(r"\w*")
_INDENTED = re.compile(r"(?:\A|(?<=\n\n))(?: {4}.*\n(?:\n(?= {4}))?)+")
_EXCEPTED = re.compile(r"<!-- not run: \w.* -->\s*\Z")
_PRINTED = re.compile(r"<!-- printed, shortened -->\s*\Z")
_HERE = re.compile(r"(?:localhost|127\.0\.0\.1):8321")
_MODULE_NAME = re.compile(r"// (\w+\.mjs)\n")
_ID = re.compile(r"\b\d{8}-\d{6}-[0-9a-f]{6}\b|\b[0-9a-f]{32}\b")
_IN_SHELL = """
vicinal() { $FORKED_PYTHON -m vicinal "$@"; }
curl() { command curl --silent --show-error --fail-with-body "$@"; }
"""


class PageFolder:
    """Where the commands of one page run, one after the other.

    Args:
        path: The folder, with the pictures that the pages name.
        seconds: Longest time of a command or job.
    """

    def __init__(self, path: Path, *, seconds: float = 120.0) -> None:
        self.path = path
        self.seconds = seconds
        self.data = path / "data"
        self.printed = ""
        self._variables: dict[str, str] = {}
        self._server: str | None = None
        self._stack = ExitStack()

    def __enter__(self) -> PageFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self, script: str) -> None:
        """Run every command of a block.

        Raises:
            AssertionError: One of them, or the job that it started, fails.
        """
        for command in _commands(script):
            if command.startswith("vicinal serve"):
                self._serve()
            if not command.startswith("vicinal serve"):
                self._run(command)

    def run_python(self, source: str) -> None:
        """Run a program.

        Raises:
            AssertionError: It fails.
        """
        self._run_program([*forked_python(), "-"], source)

    def run_javascript(self, source: str) -> None:
        """Run a module with Node; without Node the test is skipped.

        Raises:
            AssertionError: It fails.
        """
        node = program("node")
        named = _MODULE_NAME.match(source)
        if named:
            (self.path / named[1]).write_text(self._here(source), encoding="utf-8")
        self._run_program([node, "--input-type=module", "-"], source)

    def _run_program(self, command: list[str], source: str) -> None:
        done = subprocess.run(
            command,
            input=self._here(source),
            cwd=self.path,
            env=os.environ | self._settings(),
            capture_output=True,
            text=True,
            timeout=self.seconds,
        )
        assert done.returncode == 0, f"the program failed: {done.stderr}{done.stdout}"
        self.printed = done.stdout

    def _here(self, text: str) -> str:
        """A text with the address of the test's server."""
        if _HERE.search(text):
            self._serve()
        return _HERE.sub((self._server or "").removeprefix("http://"), text)

    def _serve(self) -> None:
        if self._server is None:
            found = running_server(self.data, default_bundle_path(), self._settings(), folder=self.path)
            self._server, _ = self._stack.enter_context(found)

    def _run(self, command: str) -> None:
        done = subprocess.run(
            ["bash", "-euc", _IN_SHELL + self._here(command)],
            cwd=self.path,
            env=os.environ | self._settings() | self._variables | self._versions(),
            capture_output=True,
            text=True,
            timeout=self.seconds,
        )
        assert done.returncode == 0, f"`{command}` failed: {done.stderr}{done.stdout}"
        self.printed = done.stdout
        for found in _ID.findall(done.stdout):
            self._variables["ID"] = found
        self._wait_for_job(command, done.stdout)

    def _settings(self) -> dict[str, str]:
        return {
            "FORKED_PYTHON": " ".join(forked_python()),
            "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'client' / 'src'}:{ROOT}",
            "VICINAL_DATA_DIR": str(self.data),
            "VICINAL_SOURCES_DIR": str(self.path),
            "VICINAL_BUNDLES_DIR": str(self.path / "bundles"),
            "VICINAL_DEVICE": "cpu",
        }

    def _versions(self) -> dict[str, str]:
        numbers = sorted(int(one.name) for one in self.data.glob("galleries/shop/versions/[0-9]*"))
        return {"OLD": str(numbers[0]), "NEW": str(numbers[-1])} if numbers else {}

    def _wait_for_job(self, command: str, answer: str) -> None:
        if "/v1/admin/" not in command or '"state":"queued"' not in answer.replace(" ", ""):
            return
        job, deadline = json.loads(answer), time.monotonic() + self.seconds
        while job["state"] in ("queued", "running"):
            assert time.monotonic() < deadline, f"`{command}` started a job that does not end: {job}"
            time.sleep(0.1)
            job = httpx.get(f"{self._server}/v1/jobs/{job['id']}").json()
        assert job["state"] == "succeeded", f"`{command}` started a job that failed: {job['problem']}"


def run_page(page: Path, folder: PageFolder) -> int:
    """Run all blocks of a page.

    Returns:
        How many there are.

    Raises:
        AssertionError: One fails.
    """
    found = list(Document.parse(str(page), lambda document: blocks(document, folder)))
    for example in found:
        try:
            example.evaluate()
        except Exception as error:
            raise AssertionError(f"{page.name}, line {example.line}: {error}") from error
    return len(found)


def blocks(document: Document, folder: PageFolder) -> Iterator[Region]:
    """The blocks of a page that are run, each with what runs it."""
    fenced = list(_FENCES(document))
    spans = [(one.start, one.end, one.lexemes["language"], str(one.lexemes["source"])) for one in fenced]
    for match in _INDENTED.finditer(document.text):
        if not any(start < match.start() < end for start, end, *_ in spans):
            spans.append((match.start(), match.end(), "sh", textwrap.dedent(match.group())))
    for start, end, language, source in sorted(spans):
        before = document.text[:start]
        kind = "printed" if language == "json" and _PRINTED.search(before) else language
        if not _EXCEPTED.search(before):
            yield Region(start, end, parsed=(kind, source), evaluator=_evaluator(folder))


def _evaluator(folder: PageFolder) -> object:
    kinds = {
        "sh": folder.run,
        "toml": tomllib.loads,
        "json": json.loads,
        "printed": lambda source: _compare(json.loads(source), json.loads(folder.printed), "the answer"),
        "python": folder.run_python,
        "javascript": folder.run_javascript,
        "text": str,
    }

    def evaluate(example: Example) -> None:
        language, source = example.parsed
        assert language in kinds, f"a block of '{language}' cannot be run: {', '.join(kinds)}"
        kinds[language](source)

    return evaluate


def _compare(shown: object, printed: object, where: str) -> None:
    """Check that what is shown was printed at its place: names, and what is true or false."""
    if isinstance(shown, dict):
        assert isinstance(printed, dict), f"{where} is {printed!r}, the page shows {shown!r}"
        unknown = sorted(set(shown) - set(printed))
        assert not unknown, f"{where} has no {', '.join(unknown)}, but {', '.join(printed)}"
        for name, value in shown.items():
            _compare(value, printed[name], name)
    elif isinstance(shown, bool):
        assert shown is printed, f"{where} is {printed!r}, the page shows {shown!r}"
    elif isinstance(shown, list) and isinstance(printed, list) and printed:
        for value in shown:
            _compare(value, printed[0], where)


def _commands(script: str) -> list[str]:
    """Commands of a block; a backslash at the end of a line, or a quote left open, goes on with the next."""
    commands: list[str] = []
    whole = ""
    for line in script.splitlines():
        whole += line
        is_open = subprocess.run(["bash", "-n", "-c", whole], capture_output=True).returncode != 0
        if whole.endswith("\\") or is_open:
            whole += "\n"
        elif whole.strip():
            commands.append(whole.strip())
            whole = ""
        else:
            whole = ""
    assert not whole, f"an unfinished command: {whole}"
    return commands
