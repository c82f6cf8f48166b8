"""A writer over the library, to be killed in a crash run.

It is forked from a process that has loaded everything, so that a thousand starts take no hour. It leads a
process group of its own, and does seldom things often: it cleans up without grace and merges files early. A
fuse ends it by SIGKILL at one of its own steps on the disk, which moments drawn by a clock hardly ever
hit: between a commit and the pointer to it, between two renames.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import wraps
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import lance
import numpy as np
from lance import fragment
from lance.dataset import Tags
from lance.fragment import LanceFragment
from lance.optimize import Compaction

from tests.crash.steps import Held, Step
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs import changes, staging
from vicinal.indexer.jobs.changes import Patch, patch_items, remove_items
from vicinal.indexer.jobs.compaction import compact
from vicinal.indexer.jobs.index_job import IndexJob
from vicinal.indexer.jobs.retention import RetentionPolicy, prune
from vicinal.indexer.jobs.sync.plan import IndexPlan
from vicinal.indexer.reader import GalleryReader
from vicinal.models.bundle import ModelBundle
from vicinal.models.embedder import Embedder
from vicinal.service.galleries.uploads import Upload, add_uploads
from vicinal.service.galleries.versions import check_version

__all__ = ["RETENTION", "STEPS_ON_DISK", "Fuse", "metadata_of", "run_writer"]

RETENTION = RetentionPolicy(versions=2, days=0.0)
_STAGED = "crash-job"


class Fuse:
    """Ends the process before or after a step on the disk.

    Args:
        n_steps: Which one, counted from the start of the process.
    """

    def __init__(self, n_steps: int) -> None:
        self.left = n_steps

    def install(self, *more: tuple[Any, tuple[str, ...]]) -> None:
        for owner, names in (*STEPS_ON_DISK, *more):
            for name in names:
                setattr(owner, name, self._burning(getattr(owner, name)))

    def _burning(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def step(*arguments: Any, **keywords: Any) -> Any:
            self._burn()
            result = function(*arguments, **keywords)
            self._burn()
            return result

        return step

    def _burn(self) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


STEPS_ON_DISK: Sequence[tuple[Any, tuple[str, ...]]] = (
    (os, ("fsync", "mkdir", "rename", "replace", "rmdir", "unlink")),
    (np, ("save",)),
    (shutil, ("rmtree",)),
    (lance, ("write_dataset",)),
    (Tags, ("create", "delete", "update")),
    (lance.LanceDataset, ("add_columns", "cleanup_old_versions", "commit", "restore")),
    (LanceFragment, ("delete",)),
    (fragment, ("write_fragments",)),
    (Compaction, ("execute",)),
)


def metadata_of(held: Held) -> dict[str, int]:
    """Metadata that say what an item is."""
    return {"picture": held.picture, "mark": held.mark}


def run_writer(link: Connection, gallery: Path, bundle: Path, log: Path, fuse: int | None) -> None:
    """Do the steps that come over a connection, and answer each when it is done."""
    _begin(log, fuse)
    writer = _Writer(gallery, Embedder(ModelBundle.open(bundle), device="cpu", threads=1))
    link.send("ready")
    while True:
        step, pictures = link.recv()
        getattr(writer, f"do_{step.kind}")(step, pictures)
        link.send("done")


def _begin(log: Path, fuse: int | None) -> None:
    os.setpgrp()
    with log.open("a") as stream:
        for number in (1, 2):
            os.dup2(stream.fileno(), number)
    changes._CHANGES_BETWEEN_CLEANING = 5
    changes._MOST_SMALL_FILES = 6
    changes.READER_GRACE = timedelta(0)
    staging._BATCH = 8
    prune.__kwdefaults__["grace"] = timedelta(0)
    if fuse is not None:
        Fuse(fuse).install()


class _Writer:
    def __init__(self, path: Path, embedder: Embedder) -> None:
        self.reader = GalleryReader(Gallery.open(path))
        self.embedder = embedder

    def do_add(self, step: Step, pictures: dict[str, bytes]) -> None:
        uploads = [
            Upload(pictures[name], None, name, f"mark {held.mark}", metadata_of(held))
            for name, held in step.puts.items()
        ]
        add_uploads(self.reader, uploads, self.embedder, conflict="replace")

    def do_patch(self, step: Step, _pictures: object) -> None:
        patches = {name: Patch(f"mark {held.mark}", metadata_of(held)) for name, held in step.puts.items()}
        patch_items(self.reader, patches)

    def do_delete(self, step: Step, _pictures: object) -> None:
        remove_items(self.reader, step.gone)

    def do_compact(self, _step: Step, _pictures: object) -> None:
        compact(self.reader)

    def do_prune(self, _step: Step, _pictures: object) -> None:
        prune(self.reader.gallery, RETENTION, grace=timedelta(0))

    def do_activate(self, step: Step, _pictures: object) -> None:
        self.reader.gallery.pointer.activate(step.version or 0, as_built=step.option)

    def do_check(self, _step: Step, _pictures: object) -> None:
        gallery = self.reader.gallery
        (gallery.snapshot_path(gallery.versions()[0]) / "initial.index").unlink(missing_ok=True)
        for version in gallery.versions():
            check_version(gallery, version)

    def do_reindex(self, step: Step, _pictures: object) -> None:
        gallery = self.reader.gallery
        staged = staging.Staging(gallery, _STAGED)
        plan = IndexPlan(None, activate=not step.option)
        IndexJob(gallery, self.embedder, plan, staged).run()
        staged.remove()
