"""Builds on a real cluster of Ray with three nodes: what the local engine makes, whatever dies meanwhile."""

from __future__ import annotations

import csv
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.conftest import write_tiny_bundle
from tests.photos import draw_photo
from tests.ports import free_port
from tests.waiting import SECONDS, wait_until
from vicinal.indexer import EmbeddingSource, Gallery, SourceItem, index_items
from vicinal.indexer.errors import ClusterError
from vicinal.indexer.graph import cell_lists, neighbor_graph
from vicinal.indexer.jobs import ray_cluster as ray_module
from vicinal.indexer.jobs.ray_cluster import RayCluster, ray_cluster
from vicinal.indexer.jobs.staging import Staging
from vicinal.indexer.sources.archives import FileElsewhere, FileStat
from vicinal.indexer.views.refined_snapshot import RefinedSnapshot, RefinementPlan
from vicinal.models.bundle import ModelBundle, space_manifest
from vicinal.models.decoding import DecodeLimits
from vicinal.models.embedder import Embedder, SpaceEmbedder
from vicinal.models.similarity import normalize
from vicinal.refine.context_refiner import ContextRefiner

ray = pytest.importorskip("ray", reason="ray is not installed")
pytestmark = [
    pytest.mark.slow,
    # Ray starts its processes by a fork, and what comes of it at once begins another program.
    pytest.mark.filterwarnings("ignore:lance is not fork-safe"),
]

N, BLOCK = 40, 8
DRIVER = os.getpid()


@dataclass(frozen=True)
class File(FileElsewhere):
    """A photo, whose reading ends its process (once, where `marker` is not there yet), or raises."""

    photo: Path
    marker: Path | None = None
    raises: bool = False
    is_hidden: bool = False

    @property
    def container(self) -> Path:  # type: ignore[override]
        return Path("/nowhere") if self.is_hidden and os.getpid() != DRIVER else self.photo

    def __str__(self) -> str:
        return str(self.photo)

    def stat(self) -> FileStat:
        return FileStat(1, 1)

    def read(self, limits: DecodeLimits) -> bytes:
        del limits
        if self.raises:
            raise RuntimeError("this photo breaks the decoder")
        if self.marker is not None and not self.marker.exists():
            self.marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return self.container.read_bytes()


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder for what the nodes lay down for a time."""
    return tmp_path_factory.mktemp("scratch")


@contextmanager
def nodes(scratch: Path, n: int) -> Iterator[Any]:
    """A cluster of so many nodes with a processor each."""
    from ray import cloudpickle
    from ray.cluster_utils import Cluster

    # Of this module the nodes know what comes with the photos; Vicinal they have.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    room = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
        # Otherwise whatever else runs on the machine comes first.
        patched.setenv("RAY_worker_niceness", "0")
        patched.setenv("TMPDIR", str(scratch))
        # Names of sockets are short.
        patched.setenv("RAY_TMPDIR", "/tmp")
        cluster = Cluster(initialize_head=True, head_node_args={**room, "include_dashboard": False})
        for _ in range(n - 1):
            cluster.add_node(**room)
    cluster.wait_for_nodes(timeout=SECONDS)
    yield cluster
    cluster.shutdown()


@pytest.fixture(scope="module")
def address(scratch: Path) -> Iterator[str]:
    with nodes(scratch, 3) as made:
        yield made.address


@pytest.fixture(scope="module")
def cluster(address: str) -> Iterator[RayCluster]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ray_module, "_ANSWER_SECONDS", SECONDS)
        with ray_cluster(address, "cpu") as found:
            yield found


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory, with_refiner: Any) -> Embedder:
    return Embedder(with_refiner(), device="cpu", threads=1, batch_size=4)


@pytest.fixture(scope="module")
def items(tmp_path_factory: pytest.TempPathFactory) -> list[SourceItem]:
    """Photos, among them one that is none, and one under the id of another."""
    folder = tmp_path_factory.mktemp("photos")
    for number in range(N):
        draw_photo(number).save(folder / f"{number}.png")
    (folder / "5.png").write_bytes(b"no photo")
    items = [SourceItem(f"item {i}", folder / f"{i}.png", f"label {i % 4}") for i in range(N)]
    return [*items[:20], replace(items[3], path=items[4].path), *items[20:]]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_module, "_BLOCK", BLOCK)


def gallery_at(folder: Path, embedder: Embedder, cluster: RayCluster | None = None) -> Gallery:
    refiner = ContextRefiner(embedder.bundle)
    plan = RefinementPlan(refiner, min(2, refiner.n_steps))
    gallery = Gallery(folder / "galleries" / "shop", refinement=plan)
    gallery.cluster = cluster
    return gallery


def assert_same(here: Gallery, there: Gallery) -> None:
    mine, theirs = here.snapshot(), there.snapshot()
    names = ["id", "label", "metadata"]
    assert theirs.item_table.select(names) == mine.item_table.select(names)
    np.testing.assert_allclose(theirs.embeddings, mine.embeddings, atol=1e-6)
    np.testing.assert_array_equal(theirs.neighbor_ids, mine.neighbor_ids)
    np.testing.assert_allclose(theirs.neighbor_similarities, mine.neighbor_similarities, atol=1e-6)
    plan = here.refinement
    if plan is not None:
        key = plan.refiner.fingerprint, plan.n_steps
        ours, others = RefinedSnapshot.open(mine, *key), RefinedSnapshot.open(theirs, *key)
        assert ours is not None
        assert others is not None
        np.testing.assert_allclose(others.embeddings, ours.embeddings, atol=1e-6)
        np.testing.assert_array_equal(others._contexts, ours._contexts)


def test_a_killed_worker_and_a_block_that_always_fails_cost_what_is_theirs(
    tmp_path: Path, items: list[SourceItem], embedder: Embedder, cluster: RayCluster, scratch: Path
) -> None:
    """All else is as the local engine makes it. The first block loses its process in its middle."""
    before = {*scratch.iterdir()}
    deadly = replace(items[2], path=File(Path(str(items[2].path)), tmp_path / "killed"))
    # The fourth photo under a known id is told of before blocks are cut.
    broken = replace(items[27], path=File(Path(str(items[27].path)), raises=True))
    there = gallery_at(tmp_path / "there", embedder, cluster)
    made = index_items(there, [*items[:2], deadly, *items[3:27], broken, *items[28:]], embedder)
    left_out = {items[place].id for place in range(25, 33)}
    here = gallery_at(tmp_path / "here", embedder)
    expected = index_items(here, [one for one in items if one.id not in left_out], embedder)
    assert (tmp_path / "killed").exists()
    assert_same(here, there)
    failed = {one.id: one.reason for one in made.failures}
    assert failed.keys() == left_out | {one.id for one in expected.failures}
    assert "failed 3 times on the cluster; it raised: RuntimeError: this photo breaks" in failed[broken.id]
    assert failed["item 5"] == next(one.reason for one in expected.failures if one.id == "item 5")
    assert made.n_items == expected.n_items
    assert made.provider == "CPUExecutionProvider of 3 Ray actors"
    # No copy of the bundle is left, not even of the process that was killed.
    assert {*scratch.iterdir()} == before


def test_a_node_that_does_not_see_the_source_is_named_and_what_is_done_stays(
    tmp_path: Path,
    items: list[SourceItem],
    embedder: Embedder,
    cluster: RayCluster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(RayCluster, "actors", lambda _: [{"num_cpus": 1}])
    hidden = replace(items[12], path=File(Path(str(items[12].path)), is_hidden=True))
    gallery = gallery_at(tmp_path, embedder, cluster)
    with pytest.raises(ClusterError, match=r"node [\d.]+ of the Ray cluster .* does not see '.*/12.png'"):
        index_items(gallery, [*items[:12], hidden], embedder)
    (staged,) = (gallery.path / "staging").iterdir()
    assert len(Staging(gallery, staged.name).ids()) == BLOCK - 1
    assert gallery.active_version is None


def test_lists_by_cells_of_ready_embeddings_are_the_local_ones(
    tmp_path: Path, cluster: RayCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(neighbor_graph, "EXACT_LIMIT", 500)
    monkeypatch.setattr(cell_lists, "_APART", 256)
    rng = np.random.default_rng(0)
    vectors = normalize(rng.normal(size=(100, 16))[rng.integers(0, 100, 2000)] + rng.normal(size=(2000, 16)))
    ids = [str(number) for number in range(2000)]
    parquet.write_table(pa.table({"id": ids, "embedding": list(vectors)}), tmp_path / "ready.parquet")
    galleries = []
    for found in (None, cluster):
        gallery = Gallery(tmp_path / f"{found is None}" / "galleries" / "shop")
        gallery.cluster = found
        space = SpaceEmbedder(ModelBundle(gallery.space_path, space_manifest("clip", 16)), gallery.name)
        index_items(gallery, EmbeddingSource.open(tmp_path / "ready.parquet"), space)
        galleries.append(gallery)
    assert_same(*galleries)


def test_a_killed_driver_goes_on_and_a_second_writer_is_refused(tmp_path: Path, address: str) -> None:
    """By the command line, into which Ray writes nothing. The last photo comes when the driver was killed."""
    names = [f"{number}.png" for number in range(2 * BLOCK + 1)]
    for number, name in enumerate(names):
        draw_photo(number).save(tmp_path / name)
    is_killed = tmp_path / "is-killed"
    write_tiny_bundle(tmp_path / "bundle")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "VICINAL_DATA_DIR": str(tmp_path / "data"),
        "VICINAL_BUNDLE": str(tmp_path / "bundle"),
        "VICINAL_DEVICE": "cpu",
    }
    program = (
        "import time\nfrom pathlib import Path\n"
        "from vicinal.__main__ import main\n"
        "from vicinal.indexer.jobs import ray_cluster\n"
        f"ray_cluster._BLOCK, ray_cluster._ANSWER_SECONDS = {BLOCK}, {SECONDS}\n"
        "embedded = ray_cluster.RayCluster.embedded\n"
        "def held(*given):\n"
        "    for rows, failed in embedded(*given):\n"
        "        n_rows.append(rows is not None)\n"
        f"        while sum(n_rows) > 2 and not Path({str(is_killed)!r}).exists():\n"
        "            time.sleep(0.1)\n"
        "            yield None, ()\n"
        "        yield rows, failed\n"
        "n_rows = []\n"
        "ray_cluster.RayCluster.embedded = held\n"
        "ray_cluster.RayCluster.actors = lambda _: [{'num_cpus': 1}]\n"
        "main()"
    )
    command = [sys.executable, "-c", program, "index", str(tmp_path / "photos.csv"), "-g", "shop"]
    on_ray = [*command, "--build-on", "ray", "--ray-address", address, "--json"]
    gallery = Gallery(tmp_path / "data" / "galleries" / "shop")

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(
            on_ray, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def is_staged() -> bool:
        assert driver.poll() is None, driver.communicate()
        staged = [*gallery.path.glob("staging/*/rows.seals")]
        return bool(staged) and len(Staging(gallery, staged[0].parent.name).ids()) == 2 * BLOCK

    with (tmp_path / "photos.csv").open("w") as file:
        csv.writer(file).writerows([["path"], *([name] for name in names)])
    driver = start()
    wait_until(is_staged, every=0.2)
    second = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert second.returncode != 0
    assert "is being worked on by another process" in second.stderr
    driver.kill()
    driver.communicate()
    killed_at = datetime.now(UTC)
    is_killed.touch()
    driver = start()
    output, told = driver.communicate()
    assert driver.returncode == 0, told
    result = json.loads(output[output.index('{\n  "version"') :])
    assert (result["n_items"], result["failures"]) == (2 * BLOCK + 1, [])
    rows = gallery.table.columns(gallery.snapshot().manifest.revision, ["uri", "added_at"]).to_pylist()
    assert [Path(row["uri"]).name for row in rows] == names
    assert [row["added_at"] < killed_at for row in rows] == [True] * (2 * BLOCK) + [False]
    assert "ray" not in told.replace(str(tmp_path), "").lower()


HEADLESS = """
import sys, time
from vicinal.indexer.errors import ClusterError
from vicinal.indexer.jobs import ray_cluster

ray_cluster._HEADLESS_SECONDS = 1.0
with ray_cluster.ray_cluster(sys.argv[1], "cpu") as cluster:
    try:
        for _ in cluster.map(time.sleep, [0.0, 600.0]):
            print("there", flush=True)
    except ClusterError as error:
        print(error)
print("it goes on")
"""


def test_a_head_that_dies_ends_the_build_with_a_sentence(scratch: Path) -> None:
    """And not the process."""
    with nodes(scratch, 1) as made:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [sys.executable, "-Pc", HEADLESS, made.address]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == "there\n"
            made.head_node.kill_gcs_server()
            told = child.stdout.read().splitlines()
    assert (child.returncode, told[-1]) == (0, "it goes on")
    assert "does not answer any more: start the cluster again; what is embedded is kept" in told[0]


def test_wrong_addresses_are_told_at_once() -> None:
    with pytest.raises(ClusterError, match=r"'127.0.0.1:\d+' cannot be reached: .*Connection refused"):
        ray_module._connect(f"127.0.0.1:{free_port()}")
    with pytest.raises(ClusterError, match="'nonsense' cannot be reached: that is no address"):
        ray_module._connect("nonsense")


def test_a_port_where_something_else_listens_is_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_module, "_ANSWER_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(ClusterError, match=f"'127.0.0.1:{port}' cannot be reached: .*no Ray answers"):
            ray_module._connect(f"127.0.0.1:{port}")
