"""Real galleries in courses of events: the same replicas, with all that Lance, versions and pruning do."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np

from tests.indexer.conftest import BUNDLE, make_rows, publish_rows
from tests.indexer.storage.home.replicas import Replica
from tests.indexer.storage.home.shops import Journal
from vicinal.indexer.errors import GalleryError
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.changes import Patch, add_items, patch_items, remove_items
from vicinal.indexer.jobs.compaction import compact
from vicinal.indexer.jobs.retention import RetentionPolicy, prune
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.storage.home.mirror import Mirror
from vicinal.models.similarity import normalize

_N_ITEMS, _DIM = 12, 8
_KINDS = ("add", "delete", "patch", "compact", "prune", "activate")


def rows_of(ids: list[str], seed: int) -> Any:
    return make_rows(ids, normalize(np.random.default_rng(seed).normal(size=(len(ids), _DIM))))


def gallery_of(mirror: Mirror) -> Gallery:
    return Gallery(mirror.data_dir / "galleries" / "shoes")


def begin(mirror: Mirror) -> list[str]:
    """Make the gallery; its items."""
    ids = [f"first-{i}" for i in range(_N_ITEMS)]
    gallery = gallery_of(mirror)
    with gallery.writing():
        publish_rows(gallery, rows_of(ids, 0))
    return ids


def ids_of(gallery: Gallery) -> list[str]:
    """Items that a search finds, as many times as it does."""
    view = GalleryReader(gallery).view()
    queries = normalize(np.random.default_rng(1).normal(size=(2, _DIM)))
    found = view.nearest(queries, len(view)).ravel()
    positions = np.unique(found[found >= 0])
    gallery.table.check(view.revision)
    return [str(item["id"]) for item in view.items(positions)]


def send(replica: Replica, mirror: Mirror, journal: Journal) -> None:
    """Send one request."""
    draw, gallery = replica.random, gallery_of(mirror)
    mirror.pull()
    if not gallery.pointer.exists:
        raise GalleryError("nothing here yet")
    reader, held = GalleryReader(gallery), ids_of(gallery)
    kind = draw.choices(_KINDS, weights=(6, 3, 2, 2, 1, 1))[0]
    name = draw.randbytes(4).hex()
    if kind == "add":
        journal.tried.add(name)
        add_items(reader, rows_of([name], draw.randrange(10**6)), bundle=BUNDLE)
        journal.added.add(name)
    elif kind == "delete" and len(held) > 4:
        chosen = draw.choice(sorted(held))
        journal.deletions.add(chosen)
        remove_items(reader, [chosen])
        journal.deleted.add(chosen)
    elif kind == "patch" and held:
        patch_items(reader, {draw.choice(sorted(held)): Patch(label=name)})
    elif kind == "compact":
        compact(reader)
    elif kind == "prune":
        prune(gallery, RetentionPolicy(versions=2, days=0.0), grace=timedelta(0))
    elif kind == "activate":
        gallery.pointer.activate(gallery.activation.version)
    ids_of(gallery)
