"""Cluster of Ray: an actor a processor or GPU reads, decodes and embeds, tasks find neighbors and refine.

Plain actors, not Ray Data: a block that fails has to be told item by item with the reason, which Ray Data
writes into a log alone, and a block in an actor's hands is all that its death may cost. Tries are counted
here, so that they are the same whether a block raises or kills its process.
"""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from vicinal.indexer.errors import ClusterError
from vicinal.indexer.item_rules import readable
from vicinal.indexer.jobs.embedding_run import EmbeddingRun, RunOptions
from vicinal.indexer.jobs.preparation import FileState
from vicinal.indexer.sources import ImageFile, SourceItem
from vicinal.models.bundle import MANIFEST_FILE, ModelBundle, read_manifest
from vicinal.models.decoding import DecodeLimits
from vicinal.models.embedder import Embedder
from vicinal.models.errors import MissingPackageError
from vicinal.models.runtime import CPU, Device, usable_processors

logger = logging.getLogger(__name__)

Part = TypeVar("Part")
Result = TypeVar("Result")

LOCAL = "local"
# Images that an actor takes at a time: seconds on a processor, and some megabytes of rows; on a GPU several
# batches, of which one is decoded while another is embedded. Rows are staged in order, so that no more blocks
# than these an actor may be ahead of one that is slow.
_BLOCK, _BLOCK_OF_GPU = 128, 1024
_AHEAD = 4
# Failures of a block after which its images are left out, and of opening an actor after which all ends.
_TRIES = 3
# So that a job that must stop hears of it meanwhile.
_LOOK_SECONDS = 1.0
_CONNECT_SECONDS, _ANSWER_SECONDS = 5.0, 60.0
# Without the head Ray ends this process after a minute, whosever program it is.
_HEADLESS_SECONDS = 20.0
_LONGEST_REASON = 300
# Otherwise Ray tells its makers of the cluster, warns of its next version, and writes where a signal came.
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DISABLE_FAILURE_SIGNAL_HANDLER": "1",
}


class Failed(NamedTuple):
    """Image of a block that cannot be used."""

    place: int
    reason: str
    is_seen: bool  # Whether the machine sees its file


class Embedded(NamedTuple):
    """Block that an actor is through with."""

    rows: pa.Table | None
    failed: list[Failed]
    node: str


class EmbeddingActor:
    """Process that embeds blocks of images with one network, on `device`, and decodes in some threads."""

    def __init__(self, device: Device, threads: int) -> None:
        self._device: Device = device
        self._threads = threads
        self._folder = tempfile.TemporaryDirectory(prefix="vicinal-bundle-")

    def opened(self, files: dict[str, bytes], limits: DecodeLimits) -> str:
        """Open a bundle from its files, and tell the execution provider."""
        folder = Path(self._folder.name)
        for name, content in files.items():
            (folder / name).write_bytes(content)
        self._embedder = Embedder(
            ModelBundle.open(folder), device=self._device, threads=self._threads, limits=limits
        )
        if self._embedder.provider == CPU:
            # Only a GPU that fails has them read again. Ray ends a process without a word.
            self.close()
        return self._embedder.provider

    def close(self) -> None:
        """Remove the bundle's files."""
        self._folder.cleanup()

    def embed(self, items: Sequence[SourceItem]) -> Embedded:
        """Read, decode and embed images; nothing of them but their rows leaves the process."""
        rows: list[pa.Table] = []
        run = EmbeddingRun(rows.append, self._embedder, RunOptions(workers=self._threads, resumes=True))
        run.over(items)
        places = {readable(one.id): place for place, one in enumerate(items)}
        failed = [
            Failed(places[one.id], one.reason, is_seen(items[places[one.id]].path)) for one in run.failures
        ]
        return Embedded(pa.concat_tables(rows) if rows else None, failed, _node())


def is_seen(file: ImageFile) -> bool:
    """Tell whether this machine can read a file; of one in a bucket it is not known."""
    if isinstance(file, Path):
        return os.access(file, os.R_OK)
    return file.container is None or os.access(file.container, os.R_OK)


def _node() -> str:
    import ray

    return str(ray.util.get_node_ip_address())


def _call(function: Callable[..., Result], *arguments: Any) -> Result:
    return function(*arguments)


@contextmanager
def ray_cluster(address: str | None = None, device: Device = "auto") -> Iterator[RayCluster]:
    """The cluster at `HOST:PORT`, `auto` for that of this machine, or `local` for processes of this machine,
    which end with the build; None is what `RAY_ADDRESS` says, else `local`.

    Raises:
        ClusterError: It cannot be reached, or has no processors.
        MissingPackageError: Ray is not installed.
    """
    try:
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        import ray
    except ImportError as error:
        raise MissingPackageError("ray", "ray", "building on a cluster of Ray") from error

    chosen = address or os.environ.get("RAY_ADDRESS") or LOCAL
    is_ours = not ray.is_initialized()
    if is_ours:
        _connect(chosen)
    try:
        cluster = RayCluster(chosen, device)
        if not cluster.n_workers:
            raise ClusterError(f"the Ray cluster '{chosen}' has no processors: start a node with some")
        yield cluster
    finally:
        if is_ours:
            ray.shutdown()


def _connect(address: str) -> None:
    import ray
    from ray._private import worker

    # Ray prints what its processes do on our standard output, whatever it is told of logs.
    worker._worker_logs_enabled = False
    own: dict[str, Any] = {}
    if address == LOCAL:
        own = {"num_cpus": usable_processors(), "include_dashboard": False}
    try:
        if address not in (LOCAL, "auto"):
            _require_answer(address)
        with warnings.catch_warnings(action="ignore"):
            ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL, **own)
    except (OSError, RuntimeError, ValueError, ImportError, ray.exceptions.RayError) as error:
        raise ClusterError(
            f"the Ray cluster '{address}' cannot be reached: {_reason(error)}; give HOST:PORT of its head, "
            "on a machine that `ray start` made a node of it"
        ) from error


def _require_answer(address: str) -> None:
    """Refuse an address where no cluster is, before Ray waits for one for minutes and writes about it."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "/" in host:
        raise ValueError("that is no address")
    socket.create_connection((host, int(port)), _CONNECT_SECONDS).close()
    asking = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", address]
    try:
        answer = subprocess.run(asking, capture_output=True, check=False, timeout=_ANSWER_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(f"no Ray answers there within {_ANSWER_SECONDS:.0f} s") from error
    if answer.returncode:
        raise ConnectionError("no Ray answers there")


class RayCluster:
    """Machines that Ray knows; `device` says where networks run there, on `auto` a GPU where there are."""

    def __init__(self, address: str, device: Device) -> None:
        self.address = address
        self.device = device
        self.provider = ""

    def require_head(self) -> None:
        """Wait a while for the head of the cluster where it is away; ClusterError where it stays so."""
        import ray

        host, _, port = ray.get_runtime_context().gcs_address.rpartition(":")
        over = time.monotonic() + _HEADLESS_SECONDS
        while True:
            try:
                socket.create_connection((host, int(port)), _CONNECT_SECONDS).close()
                return
            except OSError as error:
                if time.monotonic() > over:
                    raise ClusterError(
                        f"the head of the Ray cluster '{self.address}' does not answer any more: start the "
                        "cluster again; what is embedded is kept, and the same command goes on from there"
                    ) from error
            time.sleep(_LOOK_SECONDS)

    @cached_property
    def _nodes(self) -> list[dict[str, float]]:
        import ray

        return [node["Resources"] for node in ray.nodes() if node["Alive"]]

    @cached_property
    def n_workers(self) -> int:
        """Processors."""
        return int(sum(node.get("CPU", 0) for node in self._nodes))

    def share(self, value: Any) -> Any:
        """Put a value into Ray's object store, from where a node gets it once."""
        import ray

        return ray.put(value)

    def map(self, function: Callable[..., Result], parts: Iterable[Part], *shared: Any) -> Iterator[Result]:
        """Results of `function(*shared, part)` as they come, each tried three times."""
        import ray

        task = ray.remote(num_cpus=1, max_retries=_TRIES - 1, retry_exceptions=True)(_call)
        left, running = iter(parts), list[Any]()
        while True:
            self.require_head()
            # One for each processor waits beside it, so that none is idle while a result is taken.
            some = islice(left, 2 * self.n_workers - len(running))
            running += [task.remote(function, *shared, part) for part in some]
            if not running:
                return
            done, running = ray.wait(running, timeout=_LOOK_SECONDS)
            for one in done:
                try:
                    yield ray.get(one)
                except ray.exceptions.RayError as error:
                    raise ClusterError(
                        f"a part of the build failed {_TRIES} times on the Ray cluster '{self.address}': "
                        f"{_reason(error)}; what is embedded is kept, and the same command goes on from there"
                    ) from error

    def embedded(
        self, items: Iterator[SourceItem], embedder: Embedder
    ) -> Iterator[tuple[pa.Table | None, list[tuple[SourceItem, str]]]]:
        """Rows of the images in their order, and those that cannot be used; see `Cluster`."""
        with _Actors.opened(self, embedder) as actors:
            yield from actors.over(items)

    def actors(self) -> list[dict[str, Any]]:
        """Resources of the actors that there is room for: a GPU each where there are, else a processor."""
        n_gpus = int(sum(node.get("GPU", 0) for node in self._nodes))
        if self.device == "cpu" or not n_gpus:
            return [{"num_cpus": 1}] * self.n_workers
        return [
            {"num_gpus": 1, "num_cpus": max(1, int(node.get("CPU", 1) // node["GPU"]))}
            for node in self._nodes
            for _ in range(int(node.get("GPU", 0)))
        ]


@dataclass
class _Block:
    """Images that are embedded together."""

    number: int
    items: list[SourceItem]
    reasons: list[str] = field(default_factory=list)  # Of its failures


@dataclass
class _Slot:
    """Place of an actor, where another takes the place of one that died."""

    resources: dict[str, Any]
    actor: Any = None
    n_failures: int = 0  # Of opening it, one after the other


class _Actors:
    """Actors, and the blocks in their hands."""

    def __init__(self, cluster: RayCluster, embedder: Embedder) -> None:
        import ray

        bundle = embedder.bundle
        names = (MANIFEST_FILE, *bundle.manifest.files)
        # What the manifest there names: a gallery's own refiner lies elsewhere, and embeds nothing.
        own = read_manifest(bundle.path).refiner
        refiner = () if own is None else own.files
        self._files = ray.put({name: (bundle.path / name).read_bytes() for name in (*names, *refiner)})
        self._cluster = cluster
        self._limits = embedder.limits
        self._ready: deque[_Slot] = deque()
        self._at_work: dict[Any, tuple[_Slot, _Block | None]] = {}
        self._again: deque[_Block] = deque()
        self._done: dict[int, tuple[pa.Table | None, list[tuple[SourceItem, str]]]] = {}
        self.slots = [_Slot(resources) for resources in cluster.actors()]
        self._size = _BLOCK_OF_GPU if "num_gpus" in self.slots[0].resources else _BLOCK

    @classmethod
    @contextmanager
    def opened(cls, cluster: RayCluster, embedder: Embedder) -> Iterator[_Actors]:
        """Actors that end with the context, whatever they do."""
        actors = cls(cluster, embedder)
        try:
            for slot in actors.slots:
                actors._open(slot)
            yield actors
        finally:
            actors._close()

    def _close(self) -> None:
        import ray

        # Where an error has ended the cluster before, asking for it would start another.
        if ray.is_initialized():
            opening = [slot for slot, block in self._at_work.values() if block is None]
            if closing := [slot.actor.close.remote() for slot in (*self._ready, *opening)]:
                ray.wait(closing, num_returns=len(closing), timeout=_CONNECT_SECONDS)
            for slot in self.slots:
                _kill(slot.actor)

    def over(
        self, items: Iterator[SourceItem]
    ) -> Iterator[tuple[pa.Table | None, list[tuple[SourceItem, str]]]]:
        """Blocks of images, in order; nothing after each second in which there is none."""
        blocks = (_Block(number, block) for number, block in enumerate(_blocks(items, self._size)))
        n_told, most = 0, _AHEAD * len(self.slots)
        n_taken, is_over = 0, False
        while True:
            while self._ready and (self._again or (n_taken < n_told + most and not is_over)):
                block = self._again.popleft() if self._again else next(blocks, None)
                if block is None:
                    is_over = True
                    break
                n_taken = max(n_taken, block.number + 1)
                slot = self._ready.popleft()
                self._at_work[slot.actor.embed.remote(block.items)] = slot, block
            while n_told in self._done:
                yield self._done.pop(n_told)
                n_told += 1
            if is_over and n_told == n_taken:
                return
            if not self._look():
                yield None, []

    def _look(self) -> bool:
        """Take what is done; tell whether anything was."""
        import ray

        self._cluster.require_head()
        done, _ = ray.wait([*self._at_work], timeout=_LOOK_SECONDS)
        for one in done:
            slot, block = self._at_work.pop(one)
            try:
                result = ray.get(one)
            except ray.exceptions.RayTaskError as error:
                self._failed(slot, block, error, has_raised=True)
            except ray.exceptions.RayError as error:
                self._failed(slot, block, error)
            else:
                slot.n_failures = 0
                self._ready.append(slot)
                if block is None:
                    self._cluster.provider = f"{result} of {len(self.slots)} Ray actors"
                else:
                    self._done[block.number] = result.rows, self._left_out(block, result)
        return bool(done)

    def _failed(
        self, slot: _Slot, block: _Block | None, error: Exception, *, has_raised: bool = False
    ) -> None:
        """Put a block back, or leave it out; an actor that died gets a successor."""
        reason = _reason(error)
        if block is None:
            slot.n_failures += 1
            if slot.n_failures >= _TRIES:
                raise ClusterError(
                    f"no process that embeds can be opened on the Ray cluster '{self._cluster.address}': "
                    f"{reason}; install this version of vicinal on all of its nodes"
                ) from error
        else:
            block.reasons.append(f"{'it raised' if has_raised else 'its process died'}: {reason}")
            logger.warning("%d images failed on the cluster: %s", len(block.items), block.reasons[-1])
            if len(block.reasons) < _TRIES:
                self._again.append(block)
            else:
                last = block.reasons[-1]
                why = f"its block of {len(block.items)} images failed {_TRIES} times on the cluster; {last}"
                self._done[block.number] = None, [(item, why) for item in block.items]
        if block is not None and has_raised:
            self._ready.append(slot)
        else:
            self._open(slot)

    def _open(self, slot: _Slot) -> None:
        import ray

        self._cluster.require_head()
        _kill(slot.actor)
        # Ray shows a process the GPUs that are its own alone.
        device = "cpu" if "num_gpus" not in slot.resources else self._cluster.device.partition(":")[0]
        made = ray.remote(EmbeddingActor).options(**slot.resources)
        slot.actor = made.remote(device, slot.resources["num_cpus"])
        self._at_work[slot.actor.opened.remote(self._files, self._limits)] = slot, None

    def _left_out(self, block: _Block, result: Embedded) -> list[tuple[SourceItem, str]]:
        for one in result.failed:
            item = block.items[one.place]
            if not one.is_seen and is_seen(item.path) and FileState.of(item.path) is not None:
                raise ClusterError(
                    f"node {result.node} of the Ray cluster '{self._cluster.address}' does not see "
                    f"'{readable(str(item.path))}': lay the source into a folder that all nodes share under "
                    "one path, or give an address; what is embedded is kept"
                )
        return [(block.items[one.place], one.reason) for one in result.failed]


def _blocks(items: Iterator[SourceItem], size: int) -> Iterator[list[SourceItem]]:
    while block := list(islice(items, size)):
        yield block


def _kill(actor: Any) -> None:
    import ray

    if actor is not None:
        with suppress(ray.exceptions.RayError):
            ray.kill(actor)


def _reason(error: BaseException) -> str:
    """Words of an error on another machine, without the way there, which Ray tells before them."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines or [type(error).__name__])[-1][:_LONGEST_REASON]
