"""Doctor: tries whether what an installation needs is there and works, in a sentence each."""

from __future__ import annotations

import platform
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Literal

import numpy as np

from vicinal.calibration.arrays import FloatArray, Ints
from vicinal.indexer.engines import GalleryTables
from vicinal.indexer.errors import IndexDeviceError
from vicinal.indexer.gallery import list_galleries
from vicinal.indexer.graph.gpu import GpuComparison, faiss_gpus, gpus
from vicinal.indexer.graph.vector_index import FaissIndex, import_faiss
from vicinal.indexer.reader import GalleryReader
from vicinal.models.bundle import ModelBundle
from vicinal.models.embedder import Embedder
from vicinal.models.errors import install_command
from vicinal.models.probe import drawn_pictures, read_probe, try_out
from vicinal.models.runtime import offers_cuda
from vicinal.models.similarity import normalize
from vicinal.service.problem_types import ERRORS
from vicinal.service.words import command_names, in_commands

if TYPE_CHECKING:
    from PIL import Image

    from vicinal.indexer.gallery import Gallery
    from vicinal.models.runtime import Device
    from vicinal.service.settings import Settings

# Of each pair exactly one: they install the same modules, and take them away from each other.
_PAIRS = (("faiss-cpu", "faiss-gpu", "faiss-gpu-cuvs"), ("onnxruntime", "onnxruntime-gpu"))
# Cosine between what one session makes of a picture alone and among others.
_LEAST_TOGETHER = 0.999
# The same of two devices or machines, which round a network of 8 bits in other places: with other
# optimizations of ONNX Runtime, the bundle that ships stays above .998. Sums that are cut off give .95
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
    yield Finding("system", "ok", f"Python {platform.python_version()}, {platform.platform(terse=True)}")
    yield from _packages()
    yield from _gpus_of_driver()
    yield from _faiss()
    yield from examine_network(settings)
    yield _redis(settings)
    yield from _engine(settings)
    yield _home(settings)
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
    torch = _version("torch")
    if torch is None:
        yield Finding("packages", "absent", f"torch, which only training needs: {install_command('train')}")
    else:
        yield Finding("packages", "ok", f"torch {torch}")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _gpus_of_driver() -> Iterator[Finding]:
    try:
        there = gpus()
    except IndexDeviceError as error:
        yield Finding("GPU", "warning", str(error))
        return
    for gpu in there:
        free, total = f"{gpu.free / 2**30:.1f}", f"{gpu.total / 2**30:.1f}"
        says = f"{gpu.number}: {gpu.name}, {free} of {total} GiB free, driver {gpu.driver}"
        yield Finding("GPU", "ok", says)
    if not there:
        yield Finding("GPU", "absent", "no driver of NVIDIA is installed, or CUDA_VISIBLE_DEVICES hides all")


def _faiss() -> Iterator[Finding]:
    try:
        faiss = import_faiss()
        vectors = normalize(np.random.default_rng(0).standard_normal((1000, 64), dtype=np.float32))
        expected = FaissIndex.build(vectors).search(vectors[:10], 5)
    except (*ERRORS, RuntimeError) as error:
        yield Finding("Faiss", "failed", in_commands(error))
        return
    if not np.array_equal(expected[:, 0], np.arange(10)):
        yield Finding("Faiss", "failed", f"{faiss.__version__} does not find what was put in")
        return
    built = faiss.get_compile_options().split()
    yield Finding("Faiss", "ok", f"{faiss.__version__}, built for {', '.join(built)}")
    for number in faiss_gpus("auto"):
        yield _faiss_on_gpu(number, vectors, expected)


def _faiss_on_gpu(number: int, vectors: FloatArray, expected: Ints) -> Finding:
    name = f"Faiss on GPU {number}"
    try:
        found = GpuComparison(number, None).nearest(vectors[:10], vectors, 5, most=len(vectors))
    except IndexDeviceError as error:
        return Finding(name, "warning", str(error))
    if not np.array_equal(found, expected):
        return Finding(name, "warning", "it finds other neighbors than the processor")
    return Finding(name, "ok", "it finds the neighbors that the processor finds")


def examine_network(settings: Settings) -> Iterator[Finding]:
    """Look at the bundle of the settings: its files, and what its network makes of pictures."""
    try:
        bundle = ModelBundle.open(settings.bundle)
    except ERRORS as error:
        yield Finding("bundle", "failed", in_commands(error))
        return
    if bundle.manifest.space:
        yield Finding("bundle", "ok", f"{bundle.name} takes ready embeddings; there is no network to run")
        return
    yield Finding("bundle", "ok", f"{bundle.name}, {bundle.fingerprint[:12]}")
    pictures = drawn_pictures()
    try:
        embedder = Embedder(bundle, device="cpu", threads=settings.threads)
        expected = _one_by_one(embedder, pictures)
        try_out(bundle, f"bundle '{bundle.name}'")
    except ERRORS as error:
        yield Finding("network on CPU", "failed", in_commands(error))
        return
    yield _compared("network on CPU", embedder, pictures, expected, least=_LEAST_TOGETHER)
    yield _beside_reference(embedder)
    if offers_cuda():
        yield _on_cuda(bundle, settings.device, pictures, expected)
    elif settings.device.startswith("cuda"):
        yield Finding("network on CUDA", "failed", "the settings ask for it; this ONNX Runtime has none")
    else:
        yield Finding("network on CUDA", "absent", "this ONNX Runtime is built without it")


def _on_cuda(
    bundle: ModelBundle, device: Device, pictures: list[Image.Image], expected: FloatArray
) -> Finding:
    name, is_asked = "network on CUDA", device.startswith("cuda")
    asked = device if is_asked else "cuda"
    try:
        return _compared(name, Embedder(bundle, device=asked), pictures, expected)
    except ERRORS as error:
        return Finding(name, "failed" if is_asked else "warning", in_commands(error))


def _beside_reference(embedder: Embedder) -> Finding:
    try:
        probe = read_probe(embedder.bundle)
    except ERRORS as error:
        return Finding("reference", "warning", in_commands(error))
    if probe is None:
        return Finding("reference", "absent", "the bundle does not say what its network makes of pictures")
    parity = _parity(_one_by_one(embedder, probe.pictures), probe.embeddings)
    if not parity >= _LEAST_PARITY:
        says = (
            f"embeddings differ from those of the machine that made the bundle: {parity:.4f}. Install ONNX "
            "Runtime and Pillow anew, and do not search galleries that were indexed elsewhere before"
        )
        return Finding("reference", "failed", says)
    return Finding("reference", "ok", f"parity {parity:.6f} with the machine that made the bundle")


def _one_by_one(embedder: Embedder, pictures: list[Image.Image]) -> FloatArray:
    return np.concatenate([embedder.embed([one]) for one in pictures])


def _parity(embedded: FloatArray, expected: FloatArray) -> float:
    """Lowest cosine between what two ways made of the same picture."""
    return float((embedded * expected).sum(axis=1).min())


def _compared(
    name: str,
    embedder: Embedder,
    pictures: list[Image.Image],
    expected: FloatArray,
    *,
    least: float = _LEAST_PARITY,
) -> Finding:
    embedder.embed(pictures)
    begun = time.perf_counter()
    embedded = embedder.embed(pictures)
    spent = 1e3 * (time.perf_counter() - begun) / len(pictures)
    parity = _parity(embedded, expected)
    if not parity >= least:
        return Finding(name, "failed", f"embeddings differ from those of one picture at a time: {parity:.4f}")
    return Finding(name, "ok", f"{spent:.1f} ms a picture, parity {parity:.6f}")


def _engine(settings: Settings) -> Iterator[Finding]:
    engine = settings.open_engine()
    if engine.address is None:
        return
    begun = time.perf_counter()
    try:
        with engine.asking() as asked:
            found = asked.describe()
    except ERRORS as error:
        yield Finding("Milvus", "failed", in_commands(error))
    else:
        spent = 1e3 * (time.perf_counter() - begun)
        yield Finding("Milvus", "ok", f"{found.server} answers in {spent:.1f} ms")
    engine.close()


def _redis(settings: Settings) -> Finding:
    try:
        link = settings.open_link()
        if link is None:
            return Finding("Redis", "absent", "no address is set")
        begun = time.perf_counter()
        found = link.ask(lambda client: client.info("server"))
    except ERRORS as error:
        return Finding("Redis", "failed", in_commands(error))
    spent = 1e3 * (time.perf_counter() - begun)
    return Finding("Redis", "ok", f"{found['redis_version']} answers in {spent:.1f} ms")


def _home(settings: Settings) -> Finding:
    if not settings.has_home:
        return Finding("home", "absent", "galleries lie in the data folder alone")
    from vicinal.indexer.storage.home import Mirror
    from vicinal.indexer.storage.home.stores import open_store, require_exclusive

    begun = time.perf_counter()
    try:
        mirror = Mirror.of(settings.data_dir)
        if mirror is None:
            require_exclusive(open_store(settings.home or ""))
            return Finding(
                "home", "ok", f"{settings.home} takes each name once; a server that starts joins it"
            )
        mirror.pull()
    except ERRORS as error:
        return Finding("home", "failed", in_commands(error))
    spent, found = 1e3 * (time.perf_counter() - begun), mirror.contents()
    holders = ", ".join(f"'{scope}' by replica {one}" for scope, one in sorted(found.holders.items()))
    says = (
        f"{mirror.home} answers in {spent:.1f} ms: entry {found.number:,}, {found.n_bytes / 2**30:,.2f} GiB "
        f"in {found.n_files:,} files of {len(found.replicas)} replicas; this is {mirror.replica}"
    )
    return Finding("home", "ok", f"{says}; being changed: {holders}" if holders else says)


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
    """Damaged galleries; what `vicinal gallery check` finds in the files of versions takes longer."""
    from vicinal.service.records import damaged_records

    engine = settings.open_engine()
    for gallery in list_galleries(settings.galleries_path):
        gallery.tables = GalleryTables(gallery.path, engine)
        try:
            found = damaged_records(gallery, command_names)
            if not found:
                # Searches can do without the table for a while.
                _ = GalleryReader(gallery).view(), gallery.in_words
                yield from _promises(gallery)
        except (*ERRORS, OSError) as error:
            found = [in_commands(error)]
        yield from (Finding(f"gallery {gallery.name}", "failed", says) for says in found)
    engine.close()


def _promises(gallery: Gallery) -> Iterator[Finding]:
    """Promises in force that a check found broken."""
    from vicinal.service.measuring.records.store import CalibrationStore

    view = GalleryReader(gallery).view()
    store = CalibrationStore(gallery.calibrations_path, calibrated_as=view.calibrated_as)
    for record in map(store.get, sorted(store.in_force())):
        check = store.last_check(record)
        if check is not None and check.verdict == "broken":
            yield Finding(f"gallery {gallery.name}", "warning", f"calibration {record.id}: {check.sentence}")
