"""Output of the command line: text for people on a console, JSON for scripts on standard output.

Ids, labels and paths are printed as they are: nothing is read as markup or emoji, and what cannot be seen
stands as an escape (`service.words.visible`). Both consoles do that to every text, in tables too.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel
from rich import progress as bars
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from vicinal.service.operations import Progress
from vicinal.service.words import look_lines, visible

if TYPE_CHECKING:
    from vicinal.indexer.jobs.embedding_run import Failure
    from vicinal.indexer.sources import EmbeddingSource, Source, SourceLook
    from vicinal.models.progress import OnProgress

_SHOWN_FAILURES = 10
_SECONDS_A_LINE = 10.0
# Of a line that is read by a program or kept in a file.
_ANY_WIDTH = 1_000_000


class _LiteralConsole(Console):
    """A console that shows each text as it is."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, markup=False, emoji=False, highlight=False)

    def render_str(self, text: str, **options: Any) -> Text:
        """Every text passes here: lines, and the cells of tables."""
        return super().render_str(visible(text), **options)


console = _LiteralConsole()
errors = _LiteralConsole(stderr=True)


class _RateColumn(ProgressColumn):
    """Units a second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        digits = 0 if speed is None or speed >= 10 else 2
        return Text("" if speed is None else f"{speed:,.{digits}f}/s", style="progress.data.speed")


class ProgressLines:
    """A line every ten seconds, where no bar can move: stage, what is done, rate and time left."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._said_at = clock()
        self._stage: str | None = None
        self._began_at, self._first = 0.0, 0
        self._unsaid: str | None = None
        self._is_worth_it = False

    def __call__(self, stage: str, done: int, total: int, note: str = "", /) -> None:
        """See `OnProgress`."""
        now = self._clock()
        if stage != self._stage:
            self._stage, self._began_at, self._first = stage, now, done
        self._unsaid = self._line(now, done, total, note)
        self._is_worth_it = self._is_worth_it or bool(note)
        if now - self._said_at >= _SECONDS_A_LINE:
            self._said_at = now
            self._is_worth_it = True
            self._say()

    def end(self) -> None:
        """Say how it ended, if there was anything to say before, or a note."""
        if self._is_worth_it and self._unsaid:
            self._say()

    def _say(self) -> None:
        say(self._unsaid or "", to=errors)
        self._unsaid = None

    def _line(self, now: float, done: int, total: int, note: str) -> str:
        words = [f"{self._stage}: {done:,} of {total:,}"]
        rate = (done - self._first) / (now - self._began_at) if now > self._began_at else 0.0
        if rate:
            seconds = timedelta(seconds=round((total - done) / rate))
            words += [f"{rate:,.{0 if rate >= 10 else 2}f}/s"]
            words += [f"{seconds} left"] if done < total else []
        return ", ".join([*words, *([note] if note else [])])


@contextmanager
def progress_bar(clock: Callable[[], float] = time.monotonic) -> Iterator[OnProgress]:
    """Bar with rate and time left, on standard error; lines every ten seconds where that is no terminal."""
    if not errors.is_terminal:
        lines = ProgressLines(clock)
        yield lines
        lines.end()
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        _RateColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", markup=False),
    )
    with bars.Progress(*columns, console=errors) as progress:
        tasks: dict[str, Any] = {}

        def update(stage: str, done: int, total: int, note: str = "", /) -> None:
            if stage not in tasks:
                tasks[stage] = progress.add_task(visible(stage), total=total, note="")
            progress.update(tasks[stage], completed=done, total=total, note=visible(note))

        yield update


@contextmanager
def progress_of(
    stages: Mapping[str, str], on_source: Callable[[Source | EmbeddingSource], None] | None = None
) -> Iterator[Progress]:
    """Progress of an operation as a bar with the titles of its stages; others are not shown.

    What it says of how long it takes is a line on standard error.
    """
    with progress_bar() as update:

        def show(stage: str, done: int, total: int, note: str = "", /) -> None:
            if stage in stages:
                update(stages[stage], done, total, note)

        yield Progress(show, on_source, lambda plan: say(plan, to=errors))


def say(*lines: str, to: Console = console) -> None:
    """Print lines for people, as they are and not wrapped."""
    for line in lines:
        to.print(line, soft_wrap=True)


def print_table(table: Table) -> None:
    """A table of which nothing is cut: wrapped on a console, on lines as long as they need be elsewhere."""
    for column in table.columns:
        column.overflow = "fold"
    (console if console.is_terminal else _LiteralConsole(width=_ANY_WIDTH)).print(table)


def print_failures(failures: Sequence[Failure], whole_list: str) -> None:
    """The first images that were left out, and where the others are listed."""
    for failure in failures[:_SHOWN_FAILURES]:
        is_told = failure.path.endswith(failure.id.rpartition("/")[2])
        # A row without a file of its own is found by its id alone.
        name = failure.path if is_told else f"'{failure.id}' of {failure.path}"
        say(f"  left out {name}: {failure.reason}")
    if len(failures) > _SHOWN_FAILURES:
        say(f"  and {len(failures) - _SHOWN_FAILURES:,} more; the whole list is in {whole_list}")


def print_look(look: SourceLook, *, as_json: bool = False) -> None:
    """Say what a source holds, beside a JSON document on standard error."""
    say(*look_lines(look), to=errors if as_json else console)


def print_left_out(failures: Sequence[Failure], *, as_json: bool) -> None:
    """Say which queries were left out, beside a JSON document on standard error."""
    say(*(f"left out {one.path}: {one.reason}" for one in failures), to=errors if as_json else console)


def print_json(value: Any) -> None:
    """Print a JSON document on standard output."""
    sys.stdout.write(json.dumps(value, indent=2, default=_plain) + "\n")


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else str(value)
