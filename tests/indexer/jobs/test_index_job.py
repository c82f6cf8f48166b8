"""Index job: attempts go on where the last one was, live changes are kept, and nothing is doubled or lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import write_tiny_bundle
from tests.indexer.pictures import write_picture
from vicinal.indexer import Gallery, SourceItem, index_items
from vicinal.indexer.errors import GalleryError
from vicinal.indexer.graph.neighbor_graph import build_neighbor_graph
from vicinal.indexer.jobs.changes import Patch, add_items, patch_items, remove_items
from vicinal.indexer.jobs.compaction import compact
from vicinal.indexer.jobs.embedding_run import RunOptions
from vicinal.indexer.jobs.index_job import IndexJob
from vicinal.indexer.jobs.preparation import as_rows, prepare_item
from vicinal.indexer.jobs.staging import Staging
from vicinal.indexer.jobs.sync.plan import IndexPlan, IndexResult
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.storage.active_pointer import Activation, ActivePointer
from vicinal.indexer.views.view import GalleryView
from vicinal.models.bundle import ModelBundle
from vicinal.models.embedder import Embedder
from vicinal.models.progress import OnProgress, no_progress

N = 20
OPTIONS = RunOptions(workers=1, rows_per_commit=4)


class DiedError(Exception):
    """The worker died here."""


@pytest.fixture(scope="module")
def embedder(tiny_bundle: ModelBundle) -> Embedder:
    return Embedder(tiny_bundle, device="cpu", threads=1, batch_size=4)


@pytest.fixture(scope="module")
def other_embedder(tmp_path_factory: pytest.TempPathFactory) -> Embedder:
    bundle = write_tiny_bundle(tmp_path_factory.mktemp("other") / "other", name="other", dim=16, seed=1)
    return Embedder(bundle, device="cpu", threads=1, batch_size=4)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pictures")
    for number in range(2 * N):
        write_picture(root / f"{number}.png", number)
    return root


@pytest.fixture
def items(pictures: Path) -> list[SourceItem]:
    return [SourceItem(f"item {i}", pictures / f"{i}.png", label=f"label {i % 4}") for i in range(N)]


@pytest.fixture
def gallery(tmp_path: Path, items: list[SourceItem], pictures: Path, embedder: Embedder) -> Gallery:
    """A gallery of other pictures under the items' ids, which is searched."""
    made = Gallery(tmp_path / "galleries" / "shoes")
    held = [replace(item, path=pictures / f"{N + i}.png") for i, item in enumerate(items)]
    index_items(made, held, embedder, workers=1)
    return made


@pytest.fixture
def rebuild(gallery: Gallery, embedder: Embedder) -> Callable[..., IndexResult]:
    """Makes an attempt at job `job`, which puts a source in the place of what the gallery holds."""

    def run(
        items: list[SourceItem] | None,
        on_progress: OnProgress = no_progress,
        *,
        job: str = "job",
        with_embedder: Embedder | None = None,
        **plan: object,
    ) -> IndexResult:
        plan = {"options": OPTIONS, "conflict": "replace", **plan}
        chosen = IndexPlan(items, job=job, **plan)
        return IndexJob(gallery, with_embedder or embedder, chosen, Staging(gallery, job), on_progress).run()

    return run


def die_at(stage: str, done: int = 0) -> OnProgress:
    def on_progress(at: str, n_done: int, _total: int) -> None:
        if at == stage and n_done >= done:
            raise DiedError

    return on_progress


def once(change: Callable[[], object], stage: str) -> OnProgress:
    """Makes a live change when a stage is first heard of."""
    made = []

    def on_progress(at: str, _done: int, _total: int) -> None:
        if at == stage and not made:
            made.append(change())

    return on_progress


def labels(gallery: Gallery) -> dict[str, str | None]:
    return {name: item["label"] for name, item in contents(gallery).items()}


def uris(gallery: Gallery) -> dict[str, str]:
    return {name: item["uri"] for name, item in contents(gallery).items()}


def contents(gallery: Gallery) -> dict[str, dict[str, Any]]:
    view = GalleryReader(gallery).view()
    positions = np.arange(view.n_positions)
    found = view.items(positions[~view.is_dead(positions)])
    assert len({item["id"] for item in found}) == len(found), "an item stands twice"
    return {item["id"]: item for item in found}


def test_a_rebuild_makes_what_an_index_job_makes(
    gallery: Gallery,
    rebuild: Callable[..., IndexResult],
    items: list[SourceItem],
    embedder: Embedder,
    tmp_path: Path,
) -> None:
    fresh = Gallery(tmp_path / "galleries" / "fresh")
    first, result = index_items(fresh, items, embedder), rebuild(items)
    expected, after = fresh.snapshot(), gallery.snapshot()
    assert (result.is_active, gallery.active_version, result.n_items) == (True, result.version, N)
    assert (result.counts, result.n_embedded) == ({"replaced": N}, N)
    np.testing.assert_array_equal(after.embeddings, expected.embeddings)
    np.testing.assert_array_equal(after.neighbor_ids, expected.neighbor_ids)
    reports = gallery.reports.of(result.version), fresh.reports.of(first.version)
    assert reports[0]["hygiene"] == reports[1]["hygiene"]


def test_the_next_attempt_embeds_only_what_is_missing(
    gallery: Gallery, rebuild: Callable[..., IndexResult], items: list[SourceItem]
) -> None:
    seen: list[tuple[str, int, int]] = []
    with pytest.raises(DiedError):
        rebuild(items, die_at("embed", done=8))
    result = rebuild(items, lambda *one: seen.append(one))
    assert [one for one in seen if one[0] == "embed"] == [("embed", n, N) for n in (12, 16, 20, 20)]
    assert (result.n_items, labels(gallery)) == (N, {item.id: item.label for item in items})


@pytest.mark.parametrize("stage", ["embed", "neighbors", "publish"])
def test_wherever_an_attempt_dies_the_old_version_is_searched_and_the_next_attempt_succeeds(
    gallery: Gallery, rebuild: Callable[..., IndexResult], items: list[SourceItem], stage: str
) -> None:
    before, held = gallery.active_version, uris(gallery)
    for _ in range(2):
        with pytest.raises(DiedError):
            rebuild(items[:15], die_at(stage))
        assert gallery.active_version == before
    rebuild(items[:15])
    assert uris(gallery) == {**held, **{item.id: str(item.path) for item in items[:15]}}


def test_rows_of_another_bundle_are_not_gone_on_with(
    gallery: Gallery,
    rebuild: Callable[..., IndexResult],
    items: list[SourceItem],
    other_embedder: Embedder,
) -> None:
    with pytest.raises(DiedError):
        rebuild(items, die_at("embed", done=8))
    rebuild(items, with_embedder=other_embedder)
    assert gallery.snapshot().manifest.dim == other_embedder.bundle.dim
    assert len(labels(gallery)) == N


def test_the_gallery_s_own_items_are_indexed_anew_without_their_files(
    gallery: Gallery, rebuild: Callable[..., IndexResult], pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the same bundle nothing has to be decoded."""
    monkeypatch.setattr("vicinal.indexer.jobs.embedding_run.prepare_item", None)
    before = gallery.snapshot()
    result = rebuild(None, index="SQ8")
    after = gallery.snapshot()
    assert (result.index, before.manifest.index) == ("SQ8", "Flat")
    np.testing.assert_array_equal(after.embeddings, before.embeddings)
    assert after.items(range(N)) == before.items(range(N))
    assert gallery.thumbnail(result.version, "item 3") == gallery.thumbnail(before.manifest.version, "item 3")


@pytest.mark.parametrize(
    ("stage", "bundle"), [("embed", "same"), ("publish", "same"), ("neighbors", "other")]
)
def test_live_changes_that_come_meanwhile_are_kept(
    gallery: Gallery,
    rebuild: Callable[..., IndexResult],
    items: list[SourceItem],
    pictures: Path,
    embedder: Embedder,
    other_embedder: Embedder,
    stage: str,
    bundle: str,
) -> None:
    def change() -> None:
        reader = GalleryReader(gallery)
        new = [
            SourceItem("item 1", pictures / "31.png", label="replaced"),
            SourceItem("item 99", pictures / "32.png", label="added"),
        ]
        prepared = [prepare_item(item, embedder) for item in new]
        rows = as_rows(prepared, embedder.embed([item.path for item in new]))
        add_items(reader, rows, bundle=embedder.bundle.fingerprint, conflict="replace")
        remove_items(reader, ["item 2", "item 19"])
        patch_items(reader, {"item 3": Patch(label="patched")})

    with_embedder = embedder if bundle == "same" else other_embedder
    rebuild(items, once(change, stage), with_embedder=with_embedder)
    expected = {item.id: item.label for item in items if item.id not in ("item 2", "item 19")}
    expected |= {"item 1": "replaced", "item 99": "added", "item 3": "patched"}
    assert labels(gallery) == expected
    snapshot = gallery.snapshot()
    np.testing.assert_allclose(
        snapshot.embeddings[GalleryView.of(snapshot).position("item 1")],
        with_embedder.embed([pictures / "31.png"])[0],
        rtol=0,
        atol=1e-6,
    )
    np.testing.assert_array_equal(
        snapshot.neighbor_ids, build_neighbor_graph(np.asarray(snapshot.embeddings)).ids
    )


@pytest.mark.parametrize("own", [False, True])
def test_an_item_removed_meanwhile_stays_out_in_the_next_attempt_too(
    gallery: Gallery,
    rebuild: Callable[..., IndexResult],
    items: list[SourceItem],
    pictures: Path,
    embedder: Embedder,
    monkeypatch: pytest.MonkeyPatch,
    own: bool,
) -> None:
    """Also one that came after the job began, and was already taken over."""
    new = SourceItem("item 99", pictures / "32.png")

    def change() -> None:
        rows = as_rows([prepare_item(new, embedder)], embedder.embed([new.path]))
        add_items(GalleryReader(gallery), rows, bundle=embedder.bundle.fingerprint)
        remove_items(GalleryReader(gallery), ["item 2"])

    def die(*_: object, **__: object) -> None:
        raise DiedError

    with monkeypatch.context() as patched:
        patched.setattr(Gallery, "start", die)
        with pytest.raises(DiedError):
            rebuild(None if own else items, once(change, "publish"))
    assert "item 99" in Staging(gallery, "job").ids()
    remove_items(GalleryReader(gallery), ["item 99"])
    rebuild(None if own else items)
    assert set(labels(gallery)) == {item.id for item in items} - {"item 2"}


def test_a_version_is_not_activated_over_one_that_was_indexed_meanwhile(
    gallery: Gallery, rebuild: Callable[..., IndexResult], items: list[SourceItem], embedder: Embedder
) -> None:
    def change() -> int:
        return index_items(gallery, items[:3], embedder, conflict="replace", workers=1).version

    result = rebuild(items, once(change, "neighbors"))
    assert (result.is_active, "activate it" in str(result.remark)) == (False, True)
    taken = {str(item.path) for item in items}
    assert sum(uri in taken for uri in uris(gallery).values()) == 3
    gallery.pointer.activate(result.version)
    assert {*uris(gallery).values()} == taken


def test_a_gallery_that_is_deleted_meanwhile_stays_deleted(
    gallery: Gallery, rebuild: Callable[..., IndexResult], items: list[SourceItem]
) -> None:
    with pytest.raises(GalleryError):
        rebuild(items, once(gallery.delete, "embed"))
    assert gallery.activation is None


@pytest.mark.slow
def test_another_writer_is_waited_for_but_not_beyond_a_request_to_stop(
    gallery: Gallery, rebuild: Callable[..., IndexResult], items: list[SourceItem]
) -> None:
    asked = []

    def stop_at_the_third(stage: str, _done: int, _total: int) -> None:
        if stage == "publish":
            asked.append(1)
            if len(asked) == 3:
                raise DiedError

    with gallery.writing(), pytest.raises(DiedError):
        rebuild(items, stop_at_the_third)
    rebuild(items)
    assert len(labels(gallery)) == N


def test_a_version_that_lacks_the_last_change_is_made_again(
    gallery: Gallery,
    rebuild: Callable[..., IndexResult],
    items: list[SourceItem],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Compactions do not wait for the writer's lock."""
    reader = GalleryReader(gallery)
    remove_items(reader, ["item 2"])
    replaced = ActivePointer.activate_if_unchanged
    tried: list[int] = []

    def compact_first(
        self: ActivePointer, before: Activation | None, version: int, *, calibrated_as: int | None
    ) -> bool:
        if not tried:
            compact(reader)
        tried.append(version)
        return replaced(self, before, version, calibrated_as=calibrated_as)

    monkeypatch.setattr(ActivePointer, "activate_if_unchanged", compact_first)
    result = rebuild(items[:10])
    assert (result.is_active, result.version, len(tried)) == (True, tried[1], 2)
    assert tried[0] not in gallery.versions()


@pytest.fixture
def rolled_back(gallery: Gallery) -> Callable[[], object]:
    """Goes back to a compacted version that has neither a removal nor a patch that came after it."""
    reader = GalleryReader(gallery)
    remove_items(reader, ["item 1"])
    compact(reader)
    version = gallery.versions()[-1]
    patch_items(reader, {"item 3": Patch(label="patched")})
    remove_items(reader, ["item 2"])
    compact(reader)
    return lambda: gallery.pointer.activate(version, as_built=True)


def test_an_attempt_after_a_roll_back_mixes_nothing(
    gallery: Gallery, rebuild: Callable[..., IndexResult], rolled_back: Callable[[], object]
) -> None:
    with pytest.raises(DiedError):
        rebuild(None, die_at("neighbors"))
    rolled_back()
    before = labels(gallery)
    assert rebuild(None).is_active
    assert labels(gallery) == before
    assert ("item 2" in before, before["item 3"]) == (True, "label 3")
