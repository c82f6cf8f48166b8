"""Doctor: says whether what an installation needs is there and works, in a line each."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Literal

import numpy as np

from vicinal.indexer.engines import GalleryTables
from vicinal.indexer.errors import IndexDeviceError
from vicinal.indexer.gallery import list_galleries
from vicinal.indexer.graph.gpu import gpus
from vicinal.indexer.reader import GalleryReader
from vicinal.models.bundle import ModelBundle
from vicinal.models.embedder import Embedder
from vicinal.models.errors import install_command
from vicinal.models.probe import read_probe, try_out
from vicinal.service.problem_types import ERRORS
from vicinal.service.words import command_names, in_commands

if TYPE_CHECKING:
    from vicinal.indexer.gallery import Gallery
    from vicinal.service.settings import Settings

# Of each pair exactly one: they install the same modules, and take them away from each other.
_PAIRS = (("faiss-cpu", "faiss-gpu", "faiss-gpu-cuvs"), ("onnxruntime", "onnxruntime-gpu"))
# Cosine between what two machines make of a picture, which round a network of 8 bits in other places: with
# other optimizations of ONNX Runtime, the bundle that ships stays above .998. Sums that are cut off give .95
# (docs/RESULTS.md).
_LEAST_PARITY = 0.99
_LITTLE_ROOM = 2**30


@dataclass(frozen=True)
class Finding:
    """Finding; `failed` breaks what the settings ask for, `warning` slows it or makes its answers worse than
    promised, `absent` is not asked for.
    """

    name: str
    state: Literal["ok", "absent", "warning", "failed"]
    says: str


def examine(settings: Settings) -> Iterator[Finding]:
    """Look at everything, one after the other; takes some seconds."""
    yield from _packages()
    yield _gpus_of_driver()
    yield examine_network(settings)
    data = _disk(settings)
    yield data
    if data.state != "failed":
        yield from _galleries(settings)


def _packages() -> Iterator[Finding]:
    for pair in _PAIRS:
        there = [f"{name} {found}" for name in pair if (found := _version(name)) is not None]
        if len(there) == 1:
            yield Finding("packages", "ok", there[0])
        elif there:
            both = " and ".join(there)
            yield Finding("packages", "failed", f"{both} exclude each other: uninstall both, install one")
        else:
            yield Finding("packages", "failed", f"{' or '.join(pair)} is needed: {install_command('cpu')}")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _gpus_of_driver() -> Finding:
    try:
        there = gpus()
    except IndexDeviceError as error:
        return Finding("GPU", "warning", str(error))
    if not there:
        return Finding("GPU", "absent", "no driver of NVIDIA is installed, or CUDA_VISIBLE_DEVICES hides all")
    told = (f"{one.number}: {one.name}, {one.free / 2**30:.1f} GiB free" for one in there)
    return Finding("GPU", "ok", "; ".join(told))


def examine_network(settings: Settings) -> Finding:
    """Look at the bundle of the settings: its files, and what its network makes of pictures."""
    try:
        bundle = ModelBundle.open(settings.bundle)
        if bundle.manifest.space:
            return Finding("network", "ok", f"{bundle.name} takes ready embeddings; there is none to run")
        try_out(bundle, f"bundle '{bundle.name}'")
        embedder = Embedder(bundle, device=settings.device, threads=settings.threads)
        probe = read_probe(bundle)
        ran = f"{bundle.name}, {bundle.fingerprint[:12]}, runs on {embedder.provider}"
        if probe is None:
            return Finding("network", "ok", f"{ran}, with no pictures to compare by")
        embedded = np.concatenate([embedder.embed([one]) for one in probe.pictures])
    except ERRORS as error:
        return Finding("network", "failed", in_commands(error))
    parity = float((embedded * probe.embeddings).sum(axis=1).min())
    if parity >= _LEAST_PARITY:
        return Finding("network", "ok", f"{ran}, parity {parity:.6f} with the machine that made the bundle")
    says = (
        f"embeddings differ from those of the machine that made the bundle: {parity:.4f}. Install ONNX "
        "Runtime and Pillow anew, and do not search galleries that were indexed elsewhere before"
    )
    return Finding("network", "failed", says)


def _disk(settings: Settings) -> Finding:
    folder = settings.data_dir
    # One that is made with the first gallery lies in one that is there.
    there = next(one for one in (folder, *folder.absolute().parents) if one.exists())
    try:
        with tempfile.TemporaryFile(dir=there):
            free = shutil.disk_usage(there).free
    except OSError as error:
        return Finding("data", "failed", f"nothing can be written to {there}: {error.strerror or error}")
    n = len(list_galleries(settings.galleries_path))
    says = f"{folder} holds {n} {'gallery' if n == 1 else 'galleries'}, {free / 2**30:,.1f} GiB are free"
    return Finding("data", "warning" if free < _LITTLE_ROOM else "ok", says)


def _galleries(settings: Settings) -> Iterator[Finding]:
    """State of each gallery; what `vicinal gallery check` finds in the files of versions takes longer."""
    from vicinal.service.records import damaged_records

    engine = settings.open_engine()
    for gallery in list_galleries(settings.galleries_path):
        gallery.tables = GalleryTables(gallery.path, engine)
        name = f"gallery {gallery.name}"
        try:
            if damaged := damaged_records(gallery, command_names):
                yield Finding(name, "failed", "; ".join(damaged))
            else:
                yield _state(name, gallery)
        except (*ERRORS, OSError) as error:
            yield Finding(name, "failed", in_commands(error))
    engine.close()


def _state(name: str, gallery: Gallery) -> Finding:
    """Items of a sound gallery, or the promises in force that a check found broken."""
    from vicinal.service.measuring.records.store import CalibrationStore

    # Searches can do without the table for a while.
    view, _ = GalleryReader(gallery).view(), gallery.in_words
    store = CalibrationStore(gallery.path, calibrated_as=view.calibrated_as)
    records = [store.get(one) for one in sorted(store.in_force())]
    checks = [(record.id, check) for record in records if (check := store.last_check(record)) is not None]
    broken = [f"calibration {one}: {check.sentence}" for one, check in checks if check.verdict == "broken"]
    return Finding(name, "warning" if broken else "ok", "; ".join(broken) or f"{len(view):,} items")
