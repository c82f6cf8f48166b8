"""Driver of a crash run: asks for changes, kills whoever makes them, and compares what is there afterwards.

Every request is in a journal on the disk before it is sent, and its answer before the next one. When a
process was killed before it answered, the change must be wholly there or wholly absent; all earlier ones must
be there.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.crash.children import run_writer
from tests.crash.pictures import Pictures
from tests.crash.steps import Held, State, Step, draw_step
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.changes import create_gallery
from vicinal.indexer.jobs.retention import describe_versions
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.indexer.views.view import GalleryView
from vicinal.models.bundle import ModelBundle
from vicinal.models.embedder import Embedder
from vicinal.service.galleries.versions import check_version
from vicinal.service.measuring.matcher import Matcher

__all__ = ["CrashDriver", "CrashReport", "Killed", "LostError"]

GALLERY = "crash"
_START_SECONDS = 120.0
# Steps of a process on the disk: a change makes some 15 of them, a compaction 60.
_LONGEST_FUSE = 150
_KINDS = ("compact", "prune", "activate", "reindex", "check")


class LostError(AssertionError):
    """Something that was acknowledged is gone, or something is half there."""


@dataclass(frozen=True)
class Killed:
    """One kill.

    Attributes:
        by: `clock` at a random moment, `fuse` at a random step of the process on the disk.
        during: Kind of the step that was not answered yet, or `idle`.
        found: Whether that step was `before` or `after` being done; `same` where that is no difference.
    """

    by: str
    during: str
    found: str


@dataclass
class CrashReport:
    """What a run did and found."""

    kills: list[Killed] = field(default_factory=list)
    acknowledged: Counter[str] = field(default_factory=Counter)
    n_versions_checked: int = 0
    n_searches: int = 0
    n_unknown_revisions: int = 0

    def as_json(self) -> dict[str, Any]:
        """Counts, by way and step."""
        by = {name: Counter(getattr(one, name) for one in self.kills) for name in ("by", "during")}
        return {
            "n_kills": len(self.kills),
            **{f"kills_by_{name}": dict(sorted(counts.items())) for name, counts in by.items()},
            "unanswered_steps_found": dict(Counter(one.found for one in self.kills if one.during != "idle")),
            "acknowledged_steps": dict(sorted(self.acknowledged.items())),
            "versions_checked": self.n_versions_checked,
            "searches": self.n_searches,
            "unknown_revisions": self.n_unknown_revisions,
        }


class _UnansweredError(Exception):
    """The process was gone before it answered."""


class CrashDriver:
    """A run over one gallery.

    Args:
        folder: An empty folder.
        bundle: The bundle of the gallery.
        seed: Decides all that is drawn; where the clock's kills hit is up to the machine.
        say: Called with a line about every kill.
    """

    def __init__(
        self, folder: Path, bundle: ModelBundle, *, seed: int, say: Callable[[str], None] = lambda _: None
    ) -> None:
        self.folder, self.bundle, self.say = folder, bundle, say
        self.rng = np.random.default_rng(seed)
        self.embedder = Embedder(bundle, device="cpu", threads=1)
        self.pictures = Pictures.drawn(self.embedder)
        self.data_dir = folder / "data"
        self.gallery = Gallery(self.data_dir / "galleries" / GALLERY)
        self.report = CrashReport()
        self.state: State = {}
        self._known: dict[int, State] = {}
        self._history: list[State] = [{}]
        self._seconds = 0.1
        self._journal = (folder / "journal.jsonl").open("a")
        self._spawn = multiprocessing.get_context("forkserver")
        self._spawn.set_forkserver_preload(["tests.crash.children"])
        create_gallery(self.gallery, bundle)
        self._note_revision()

    def close(self) -> None:
        """Close the journal."""
        self._journal.close()

    def run(self, n_kills: int) -> CrashReport:
        """Kill so many writers over the library.

        Raises:
            LostError: The gallery does not hold what it must.
        """
        while len(self.report.kills) < n_kills:
            self._live()
        return self.report

    def _live(self) -> None:
        """A writer, from its start to its death."""
        here, there = self._spawn.Pipe()
        fuse = int(self.rng.integers(1, _LONGEST_FUSE)) if self.rng.random() < 0.5 else None
        with self._process(
            run_writer, there, self.gallery.path, self.bundle.path, self.folder / "log", fuse
        ) as (process, group):
            there.close()

            def ask(step: Step) -> None:
                try:
                    here.send(
                        (step, {name: self.pictures.encoded[h.picture] for name, h in step.puts.items()})
                    )
                    here.recv()
                except (EOFError, OSError) as error:
                    raise _UnansweredError from error

            with suppress(EOFError, OSError):
                here.recv()
            self._ask_until_dead(group, process, ask, fuse)

    def _ask_until_dead(
        self, group: int, process: Any, ask: Callable[[Step], None], fuse: int | None
    ) -> None:
        n_before = int(self.rng.integers(1, 8))
        step, before = None, self.state
        for number in range(60):
            if fuse is None and number == n_before:
                # Sometimes while nothing is asked for.
                self._kill_later(group, 1.5 * self._seconds * self.rng.random())
                if self.rng.random() < 0.2:
                    step, before = None, self.state
                    break
            step = draw_step(self.rng, self.state, self.gallery.versions(), _KINDS)
            before = self._intend(step)
            started = time.monotonic()
            try:
                ask(step)
            except _UnansweredError:
                break
            self._seconds = 0.8 * self._seconds + 0.2 * (time.monotonic() - started)
            self._acknowledge(step, before)
        else:
            step, before = None, self.state
            _kill_group(group)
        process.join(_START_SECONDS)
        if process.exitcode != -signal.SIGKILL:
            raise LostError(f"the writer ended by itself with {process.exitcode}: {self._log_end()}")
        self._examine("clock" if fuse is None else "fuse", step, before)

    @contextmanager
    def _process(self, target: Any, *arguments: Any) -> Iterator[tuple[Any, int]]:
        process = self._spawn.Process(target=target, args=arguments, daemon=True)
        process.start()
        group = int(process.pid or 0)
        try:
            yield process, group
        finally:
            _kill_group(group)
            process.join()

    def _kill_later(self, group: int, seconds: float) -> None:
        timer = threading.Timer(seconds, _kill_group, [group])
        timer.daemon = True
        timer.start()

    def _intend(self, step: Step) -> State:
        self._write({"intent": step.as_json()})
        return self.state

    def _acknowledge(self, step: Step, before: State) -> None:
        self._write({"acknowledged": step.kind})
        self.report.acknowledged[step.kind] += 1
        self.state = self._expected(step, before)[-1] if step.kind != "activate" else self._activated(step)
        self._note_revision()

    def _activated(self, step: Step) -> State:
        """What the gallery holds after an activation, which must be what it held at that revision."""
        found = self._found()
        if found not in self._expected(step, found):
            raise LostError(
                f"version {step.version} holds what it never held: {_difference(found, self.state)}"
            )
        return found

    def _expected(self, step: Step | None, before: State) -> list[State]:
        """States that a step may end in, the state before not counted unless it is one of them."""
        if step is None:
            return [before]
        if step.kind != "activate":
            return [step.after(before)]
        known = self._known.get(self._revision())
        if known is None:
            self.report.n_unknown_revisions += 1
        return self._history if known is None else [known]

    def _examine(self, by: str, step: Step | None, before: State) -> None:
        """After a kill: everything is there, and the unanswered step wholly or not at all."""
        if step is not None and step.kind == "check":
            # The step had damaged the files itself, to make them again.
            for version in self.gallery.versions():
                check_version(self.gallery, version)
        found = self._found()
        after = self._expected(step, before)
        if found != before and found not in after:
            during = step.as_json() if step else None
            raise LostError(f"killed during {during}: {_difference(found, before)}")
        self._check_versions()
        self._check_searches(found)
        changed = step is not None and any(one != before for one in after)
        which = ("after" if found != before else "before") if changed else "same"
        killed = Killed(by, step.kind if step else "idle", which)
        self.report.kills.append(killed)
        self._write({"killed": vars(killed)})
        self.state = found
        self._note_revision()
        self.say(f"{len(self.report.kills)} {killed} {len(found)} items, versions {self.gallery.versions()}")

    def _found(self) -> State:
        """What the gallery holds; each item is compared with all that is known of its picture."""
        gallery = Gallery.open(self.gallery.path)
        view = GalleryReader(gallery).view()
        rows = [item for _, item in view.page(None, 10_000)]
        columns = gallery.table.columns(
            view.revision, ["id", "content_sha256", "embedding", "thumbnail"]
        ).to_pylist()
        if [row["id"] for row in rows] != [column["id"] for column in columns]:
            raise LostError("the table and what is searched hold different items")
        return {row["id"]: self._held(view, row, column) for row, column in zip(rows, columns, strict=True)}

    def _held(self, view: GalleryView, row: dict[str, Any], column: dict[str, Any]) -> Held:
        picture = self.pictures.digests.index(column["content_sha256"])
        vector = view.vectors(view.positions([row["id"]]))[0]
        named = row["metadata"].get("picture", picture)
        mark = row["metadata"].get("mark", 0)
        is_whole = (
            named == picture
            and row["label"] in (None, f"mark {mark}")
            and np.allclose(vector, self.pictures.embeddings[picture], atol=1e-5)
            and np.array_equal(vector, np.asarray(column["embedding"], np.float32))
            and column["thumbnail"].startswith(b"\xff\xd8")
        )
        if not is_whole:
            raise LostError(f"item {row['id']} is half there: {row}, picture {picture}")
        return Held(picture, mark)

    def _check_versions(self) -> None:
        for version in self.gallery.versions():
            snapshot = Snapshot.open(self.gallery.snapshot_path(version))
            snapshot.check()
            rows = self.gallery.table.columns(snapshot.manifest.revision, ["id"])["id"].to_pylist()
            if rows != snapshot.item_table["id"].to_pylist():
                raise LostError(f"version {version} and its rows in the table hold different items")
            self.report.n_versions_checked += 1
        if len(describe_versions(self.gallery)) != len(self.gallery.versions()):
            raise LostError("a version cannot be described")

    def _check_searches(self, found: State) -> None:
        """Each item's own picture finds it, or another item that shows the same."""
        names = sorted(found)
        if not names:
            return
        asked = [str(name) for name in self.rng.choice(names, min(5, len(names)), replace=False)]
        pictures = [found[name].picture for name in asked]
        matcher = Matcher(self.gallery, self.embedder)
        answers = matcher.search(
            embeddings=self.pictures.embeddings[pictures], threshold=0.0, limit=len(found), rerank="off"
        )
        for name, picture, answer in zip(asked, pictures, answers, strict=True):
            best = [match.id for match in answer.matches if match.score > 1.0 - 1e-5]
            if name not in best or any(found[one].picture != picture for one in best):
                raise LostError(f"a search for item {name} finds {best}")
            self.report.n_searches += 1

    def _revision(self) -> int:
        active = self.gallery.activation
        if active is None:
            raise LostError("the gallery is gone")
        return active.revision

    def _note_revision(self) -> None:
        self._known[self._revision()] = self.state
        if self.state not in self._history[-20:]:
            self._history.append(self.state)

    def _write(self, line: dict[str, Any]) -> None:
        self._journal.write(json.dumps(line) + "\n")
        self._journal.flush()
        os.fsync(self._journal.fileno())

    def _log_end(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-2000:]


def _kill_group(group: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
    # Before it leads a group of its own.
    with suppress(ProcessLookupError):
        os.kill(group, signal.SIGKILL)


def _difference(found: State, expected: State) -> str:
    names = sorted({*found, *expected})
    return "; ".join(
        f"{name} is {found.get(name)}, expected {expected.get(name)}"
        for name in names
        if found.get(name) != expected.get(name)
    )
