"""No sequence of syncs, additions, removals, moves and deaths loses an item or brings a removed one back.

Unless that was asked for.

Two folders have one name and the same file names, and all files have one size; those of one number of writes
have one time. So only their content tells them apart.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from PIL import Image

from tests.conftest import write_tiny_bundle
from vicinal.calibration.arrays import FloatArray
from vicinal.indexer import Gallery, SourceItem, index_items, read_source
from vicinal.indexer.errors import BuildError, GalleryExistsError, ItemExistsError, SourceError
from vicinal.indexer.jobs.changes import add_items, create_gallery, remove_items
from vicinal.indexer.jobs.compaction import compact
from vicinal.indexer.jobs.preparation import as_rows, prepare_encoded, ready_rows
from vicinal.indexer.jobs.source_addition import add_embeddings, add_source
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.sources import SourceOptions, source_name
from vicinal.indexer.sources.embedding_files import ReadyRows
from vicinal.indexer.sources.embeddings import EmbeddingSource
from vicinal.indexer.state import state_of
from vicinal.indexer.state.schema import removals
from vicinal.indexer.transfer.archive import export_gallery, import_gallery
from vicinal.indexer.transfer.moving import copy_gallery, rename_gallery
from vicinal.models.bundle import ModelBundle, space_manifest
from vicinal.models.embedder import Embedder, SpaceEmbedder

N_PICTURES, DIM = 5, 8
NO_PICTURE = N_PICTURES
folders = st.sampled_from(["a", "b"])
names = st.sampled_from(["0.png", "1.png", "2.png"])
pictures = st.integers(0, N_PICTURES)
conflicts = st.sampled_from(["error", "skip"])
ways = st.sampled_from(["rename", "copy", "import"])
stages = st.sampled_from(["copy", "embed", "neighbors", "publish"])


class DiedError(Exception):
    """The process died here."""


def encoded(number: int) -> bytes:
    """A picture, not compressed so that all have one size; or a file of that size that is none."""
    coarse = np.random.default_rng(number).integers(0, 256, (5, 5, 3)).astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(coarse).resize((40, 32)).save(stream, "PNG", compress_level=0)
    return b"x" * len(stream.getvalue()) if number == NO_PICTURE else stream.getvalue()


class Library(RuleBasedStateMachine):
    """A gallery, and what must be in it: digest and source of each item by id."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.gallery = Gallery(self.root / "galleries" / "shoes")
        self.expected: dict[str, tuple[bytes, str | None]] = {}
        # Source of what a person removed, by id and content; None where another id may bring it back.
        self.removed: dict[tuple[str, bytes | None], str | None] = {}
        self.n_writes: dict[Path, int] = {}
        self.begin()

    def begin(self) -> None:
        bundle = write_tiny_bundle(self.root / "tiny")
        self.embedder = Embedder(bundle, device="cpu", threads=1, batch_size=4)
        create_gallery(self.gallery, bundle)
        for name in ("a", "b"):
            (self.root / name / "photos").mkdir(parents=True)

    def teardown(self) -> None:
        shutil.rmtree(self.root)

    def path(self, folder: str) -> Path:
        return self.root / folder / "photos"

    @initialize(folder=folders, picture=st.integers(0, N_PICTURES - 1))
    def first_file(self, folder: str, picture: int) -> None:
        self.write(folder, "0.png", picture)

    @rule(folder=folders, name=names, picture=pictures)
    def write(self, folder: str, name: str, picture: int) -> None:
        path = self.path(folder) / name
        path.write_bytes(encoded(picture))
        self.n_writes[path] = self.n_writes.get(path, 0) + 1
        os.utime(path, (self.n_writes[path], self.n_writes[path]))

    @rule(folder=folders, name=names)
    def take_away(self, folder: str, name: str) -> None:
        (self.path(folder) / name).unlink(missing_ok=True)

    def listed(self, folder: str) -> dict[str, bytes | None]:
        """Digest of each file by id, None of one that is no picture."""
        found: dict[str, bytes | None] = {}
        for path in sorted(self.path(folder).iterdir()):
            content = path.read_bytes()
            usable = content != encoded(NO_PICTURE)
            found[f"photos/{path.name}"] = hashlib.sha256(content).digest() if usable else None
        return found

    def left_out(self, folder: str) -> set[str]:
        """Ids of what a person removed and an index run must not bring back."""
        held = {digest for digest, _ in self.expected.values()}
        moving = {
            digest
            for (_, digest), source in self.removed.items()
            if source == str(self.path(folder)) and digest not in held
        }
        return {
            item_id
            for item_id, digest in self.listed(folder).items()
            if self.expected.get(item_id, (None,))[0] != digest
            and ((item_id, digest) in self.removed or digest in moving)
        }

    def taken(self, folder: str, *, own: bool, but: Collection[str] = ()) -> set[str]:
        """Ids that belong to other content; with `own` also where that is of this very folder."""
        return {
            item_id
            for item_id, digest in self.listed(folder).items()
            if item_id not in but
            and item_id in self.expected
            and self.expected[item_id][0] != digest
            and (own or self.expected[item_id][1] != str(self.path(folder)))
        }

    def sync(self, folder: str, **options: Any) -> None:
        path = self.path(folder)
        items = read_source(path, SourceOptions(None))
        index_items(self.gallery, items, self.embedder, source=source_name(path), workers=1, **options)

    @rule(folder=folders, conflict=conflicts, delete=st.booleans(), restore=st.booleans())
    def index(self, folder: str, conflict: str, delete: bool = False, restore: bool = False) -> None:
        left_out = set() if restore else self.left_out(folder)
        taken = self.taken(folder, own=False, but=left_out)
        try:
            self.sync(folder, conflict=conflict, delete=delete, restore=restore)
        except (SourceError, BuildError):
            listed = self.listed(folder)
            gone = {one for one in self.expected if self.expected[one][1] == str(self.path(folder))} - {
                *listed
            }
            # A source of nothing but failures, or a gallery of which nothing would be left.
            assert not any(listed.values()) or (delete and gone == {*self.expected})
        except ItemExistsError:
            assert taken
        else:
            assert not taken or conflict == "skip"
            self.expect_from(folder, taken | left_out, delete=delete)

    def expect_from(self, folder: str, others: set[str], *, delete: bool = False) -> None:
        source, listed = str(self.path(folder)), self.listed(folder)
        now = {
            item_id: (digest, source)
            for item_id, digest in listed.items()
            if digest is not None and item_id not in others
        }
        if delete:
            gone = {one for one, (_, of) in self.expected.items() if of == source} - {*listed}
        else:
            gone = set()
        dropped = {(one, self.expected[one][0]) for one in gone}
        dropped |= {
            (one, self.expected[one][0])
            for one in now
            if one in self.expected and self.expected[one][0] != now[one][0]
        }
        for item_id, digest in list(self.removed):
            if (item_id, digest) in dropped:
                del self.removed[item_id, digest]
            elif digest in {content for _, content in dropped}:
                self.removed[item_id, digest] = None
        self.expected = {one: held for one, held in self.expected.items() if one not in gone} | now

    @rule(name=names)
    def remove(self, name: str) -> None:
        item_id = f"photos/{name}"
        if item_id in self.expected:
            remove_items(GalleryReader(self.gallery), [item_id])
            digest, source = self.expected.pop(item_id)
            self.removed[item_id, digest] = source

    @rule(folder=folders, stage=stages)
    def die(self, folder: str, stage: str) -> None:
        """A sync ends in the middle; it may go on with the next one, or be left."""

        def on_progress(at: str, *_: int) -> None:
            if at == stage:
                raise DiedError

        before = self.gallery.activation
        try:
            self.sync(folder, conflict="skip", on_progress=on_progress)
        except (DiedError, SourceError, BuildError):
            assert self.gallery.activation == before
        else:
            # It had nothing to do in that stage.
            left_out = self.left_out(folder)
            self.expect_from(folder, self.taken(folder, own=False) | left_out)

    @rule(folder=folders, conflict=conflicts)
    def add_folder(self, folder: str, conflict: str) -> None:
        path, taken = self.path(folder), self.taken(folder, own=True)
        try:
            items = read_source(path, SourceOptions(None))
            reader = GalleryReader(self.gallery)
            add_source(reader, items, self.embedder, source=source_name(path), conflict=conflict)
        except (SourceError, BuildError):
            assert not any(self.listed(folder).values())
        except ItemExistsError:
            assert taken
        else:
            assert not taken or conflict == "skip"
            for item_id, digest in self.listed(folder).items():
                if digest is not None and item_id not in self.expected:
                    self.expected[item_id] = (digest, str(path))

    @rule(name=names, picture=st.integers(0, N_PICTURES - 1))
    def upload(self, name: str, picture: int) -> None:
        content, item_id = encoded(picture), f"photos/{name}"
        prepared = prepare_encoded(SourceItem(item_id, Path(name)), content, self.embedder)
        rows = as_rows([prepared], self.embedder.embed([content]))
        add_items(GalleryReader(self.gallery), rows, bundle=self.embedder.bundle.fingerprint)
        self.expected.setdefault(item_id, (hashlib.sha256(content).digest(), None))

    @rule(way=ways)
    def move(self, way: str) -> None:
        """What is searched goes on under another name; the archive never takes the place of anything."""
        root, other = self.gallery.path.parent, {"shoes": "boots", "boots": "shoes"}[self.gallery.name]
        if way == "rename":
            self.gallery = rename_gallery(self.gallery, other)
            return
        if way == "copy":
            moved = copy_gallery(self.gallery, other)
        else:
            archive = io.BytesIO()
            export_gallery(self.gallery, archive)
            for name in (None, self.gallery.name):
                archive.seek(0)
                with pytest.raises(GalleryExistsError):
                    import_gallery(root, archive, name)
            archive.seek(0)
            moved, _ = import_gallery(root, archive, other)
        self.gallery.delete()
        self.gallery = moved

    @rule()
    def compact(self) -> None:
        compact(GalleryReader(self.gallery))

    @invariant()
    def all_is_there(self) -> None:
        revision = self.gallery.activation.revision
        rows = self.gallery.table.columns(revision, ["id", "content_sha256", "source"]).to_pylist()
        found = {row["id"]: (row["content_sha256"], row["source"]) for row in rows}
        assert (found, len(rows)) == (self.expected, len(self.expected))
        searched = {item["id"] for _, item in GalleryReader(self.gallery).view().page(None, 100)}
        assert searched == set(self.expected)


class LosingLibrary(Library):
    """A sync after which the gallery holds its source alone."""

    def sync(self, folder: str, **options: Any) -> None:
        super().sync(folder, **options)
        held = self.gallery.table.columns(self.gallery.activation.revision, ["id"])["id"].to_pylist()
        others = [item_id for item_id in held if item_id not in self.listed(folder)]
        if others:
            remove_items(GalleryReader(self.gallery), others)


class EmbeddingLibrary(Library):
    """The same with files of ready embeddings: a picture is a vector."""

    def begin(self) -> None:
        bundle = ModelBundle(self.gallery.space_path, space_manifest("clip", DIM))
        self.gallery.keep_space(bundle)
        self.embedder = SpaceEmbedder(bundle, self.gallery.name)
        create_gallery(self.gallery, bundle)
        self.vectors: dict[str, dict[str, int]] = {"a": {}, "b": {}}
        for name in ("a", "b"):
            (self.root / name).mkdir(parents=True)

    def path(self, folder: str) -> Path:
        return self.root / folder / "photos.npz"

    @rule(folder=folders, name=names, picture=st.integers(0, N_PICTURES - 1))
    def write(self, folder: str, name: str, picture: int) -> None:
        self.vectors[folder][name] = picture
        self.save(folder)

    @rule(folder=folders, name=names)
    def take_away(self, folder: str, name: str) -> None:
        self.vectors[folder].pop(name, None)
        self.save(folder)

    def save(self, folder: str) -> None:
        rows = self.vectors[folder]
        vectors = np.stack([vector(one) for one in rows.values()]) if rows else np.zeros((0, DIM))
        np.savez(self.path(folder), ids=list(rows), embeddings=vectors)

    def listed(self, folder: str) -> dict[str, bytes | None]:
        return {
            f"photos/{name}": hashlib.sha256(vector(one).tobytes()).digest()
            for name, one in self.vectors[folder].items()
        }

    def source(self, folder: str) -> EmbeddingSource:
        return EmbeddingSource.open(self.path(folder), SourceOptions("photos"))

    def sync(self, folder: str, **options: Any) -> None:
        name = source_name(self.path(folder))
        index_items(self.gallery, self.source(folder), self.embedder, source=name, **options)

    @rule(folder=folders, conflict=conflicts)
    def add_folder(self, folder: str, conflict: str) -> None:
        taken = self.taken(folder, own=True)
        try:
            add_embeddings(
                GalleryReader(self.gallery),
                self.source(folder),
                self.embedder.bundle.manifest,
                name=source_name(self.path(folder)),
                conflict=conflict,
            )
        except SourceError:
            assert not self.listed(folder)
        except ItemExistsError:
            assert taken
        else:
            for item_id, digest in self.listed(folder).items():
                self.expected.setdefault(item_id, (digest, str(self.path(folder))))

    @rule(name=names, picture=st.integers(0, N_PICTURES - 1))
    def upload(self, name: str, picture: int) -> None:
        text, item_id = pa.array([""]), f"photos/{name}"
        ready = ReadyRows(
            pa.array([item_id]), pa.nulls(1, pa.string()), text, pa.array(["{}"]), vector(picture)[None]
        )
        add_items(GalleryReader(self.gallery), ready_rows(ready), bundle=self.embedder.bundle.fingerprint)
        digest = hashlib.sha256(vector(picture).tobytes()).digest()
        self.expected.setdefault(item_id, (digest, None))


def vector(number: int) -> FloatArray:
    """One direction each, of length 1 to the last bit."""
    return np.eye(DIM, dtype=np.float32)[number]


def settings(n_examples: int) -> hypothesis.settings:
    checks = list(hypothesis.HealthCheck)
    return hypothesis.settings(
        max_examples=n_examples,
        stateful_step_count=12,
        suppress_health_check=checks,
        # Twelve steps are read more quickly than they are made fewer.
        phases=[hypothesis.Phase.generate],
        database=None,
    )


@pytest.mark.parametrize("library", [Library, EmbeddingLibrary])
@pytest.mark.parametrize("n_examples", [5, pytest.param(30, marks=pytest.mark.slow)])
def test_nothing_is_lost(library: type[Library], n_examples: int) -> None:
    run_state_machine_as_test(library, settings=settings(n_examples))


class ForgettingLibrary(Library):
    """A gallery that forgets what was removed."""

    def sync(self, folder: str, **options: Any) -> None:
        with state_of(self.gallery.path).changing() as rows:
            rows.remove(removals)
        super().sync(folder, **options)


def test_a_gallery_that_forgets_removals_is_found_out() -> None:
    """Negative control."""
    library = ForgettingLibrary()
    try:
        library.first_file("a", 0)
        library.write("a", "1.png", 1)
        library.add_folder("a", "error")
        library.remove("1.png")
        library.index("a", "error")
        with pytest.raises(AssertionError):
            library.all_is_there()
    finally:
        library.teardown()


def test_a_sync_that_loses_is_found_out() -> None:
    """Negative control, in three steps of the machine, so that it does not rest on luck."""
    library = LosingLibrary()
    try:
        library.first_file("a", 0)
        library.upload("1.png", 1)
        library.index("a", "error")
        with pytest.raises(AssertionError):
            library.all_is_there()
    finally:
        library.teardown()
