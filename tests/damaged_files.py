"""Damage a file in every way and open it each time, in a process of its own: a crash is an answer, too.

    python -m tests.damaged_files KIND FOLDER FILE...

opens what lies in FOLDER as `OPENERS` says, once for every damage of each FILE, and prints what became of it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.disks import short_files

__all__ = ["OPENERS", "damages", "outcome_of"]

_HEAD = 4096
_N_CUTS = 60
_N_CHANGES = 200
Opener = Callable[[Path], object]


def damages(encoded: bytes) -> Iterator[tuple[str, bytes]]:
    """Every prefix of the first 4 kB and some of the rest, and files with a byte changed or some more."""
    rng = np.random.default_rng(len(encoded))
    cuts = {*range(min(_HEAD, len(encoded))), *rng.integers(0, len(encoded), _N_CUTS).tolist()}
    for n_bytes in sorted(cuts):
        yield f"cut to {n_bytes} bytes", encoded[:n_bytes]
    for place in rng.integers(0, len(encoded), _N_CHANGES).tolist():
        changed = bytearray(encoded)
        changed[place] ^= int(rng.integers(1, 256))
        yield f"byte {place} changed", bytes(changed)
    yield "longer", encoded + bytes(64)


def outcome_of(kind: str, folder: Path, *files: Path) -> dict[str, Any]:
    """What became of all damages, by file: how many were refused, and which were not; or what ended it."""
    command = [sys.executable, "-m", "tests.damaged_files", kind, str(folder), *map(str, files)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600, env=environment)
    if done.returncode:
        during = (folder / "during").read_text() if (folder / "during").exists() else "the start"
        return {"ended": f"with {done.returncode} at {during}: {done.stderr[-500:]}"}
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _open_snapshot(folder: Path) -> object:
    from vicinal.indexer.views.snapshot import Snapshot

    snapshot = Snapshot.open(folder / "snapshot")
    return snapshot.index.search(np.asarray(snapshot.embeddings[:2]), 3), snapshot.items([0])


def _open_bundle(folder: Path) -> object:
    from vicinal.models.bundle import ModelBundle
    from vicinal.refine.context_refiner import ContextRefiner

    return ContextRefiner(ModelBundle.open(folder / "bundle"))


def _network_opener(folder: Path) -> Opener:
    """The bundle was whole when it was opened, and its network is read later."""
    from vicinal.models.bundle import ModelBundle
    from vicinal.models.embedder import Embedder

    bundle = ModelBundle.open(folder / "bundle")
    return lambda _folder: Embedder(bundle, device="cpu", threads=1)


def _read_table(folder: Path) -> object:
    from vicinal.indexer.gallery import Gallery

    gallery = Gallery(folder / "shoes")
    active = gallery.activation
    assert active is not None
    return gallery.table.columns(
        active.revision, ["id", "label", "metadata", "embedding", "thumbnail"]
    ).to_pylist()


def _read_staged(folder: Path) -> object:
    from vicinal.indexer.gallery import Gallery
    from vicinal.indexer.jobs.staging import Staging

    staging = Staging(Gallery(folder / "shoes"), "job")
    base = staging.base()
    assert base is not None
    return base.contents.to_pylist(), staging.ids(), staging.embeddings()


OPENERS: dict[str, Callable[[Path], Opener]] = {
    "bundle": lambda _folder: _open_bundle,
    "network": _network_opener,
    "snapshot": lambda _folder: _open_snapshot,
    "staged": lambda _folder: _read_staged,
    "table": lambda _folder: _read_table,
}


def _save_without_room(folder: Path) -> dict[str, Any]:
    """An index file that is cut by the disk while it is written."""
    from vicinal.indexer.errors import StorageError
    from vicinal.indexer.graph.vector_index import FaissIndex

    index, refused = FaissIndex.build(np.eye(16, dtype=np.float32), "Flat"), 0
    for longest in range(512):
        (folder / "during").write_text(f"room for {longest} bytes")
        with short_files(longest):
            try:
                index.save(folder / "full.index")
            except StorageError:
                refused += 1
    return {"refused": refused, "not refused": []}


def _try_all(kind: str, folder: Path, file: Path) -> dict[str, Any]:
    from vicinal.indexer.errors import GalleryError
    from vicinal.models.errors import BundleError

    encoded, opener = file.read_bytes(), OPENERS[kind](folder)
    opener(folder)
    refused, others = 0, []
    with (folder / "during").open("w") as during:
        for what, damaged in damages(encoded):
            during.seek(0)
            during.write(f"{file.name} {what:40}")
            during.flush()
            file.write_bytes(damaged)
            try:
                opener(folder)
                others.append(f"{what}: opened")
            except (BundleError, GalleryError):
                refused += 1
            except BaseException as error:
                others.append(f"{what}: {type(error).__name__}")
    file.write_bytes(encoded)
    opener(folder)
    return {"refused": refused, "not refused": others[:10]}


def _main(kind: str, folder: Path, *files: Path) -> None:
    if kind == "full disk":
        done = _save_without_room(folder)
    else:
        done = {file.name: _try_all(kind, folder, file) for file in files}
    sys.stdout.write(json.dumps(done) + "\n")


if __name__ == "__main__":
    _main(sys.argv[1], *map(Path, sys.argv[2:]))
