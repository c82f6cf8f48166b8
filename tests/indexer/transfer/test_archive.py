"""Exported galleries: what comes back is what was there, and what was cut or changed does not."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.indexer.transfer.test_moving import changed, contents, left_over
from vicinal.indexer import Gallery
from vicinal.indexer.errors import (
    GalleryError,
    GalleryExistsError,
    GalleryNameError,
    ItemRefusedError,
    StorageError,
)
from vicinal.indexer.jobs.changes import Patch, patch_items
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.storage.files import identity_of
from vicinal.indexer.storage.gallery_names import set_alias
from vicinal.indexer.transfer.archive import export_gallery, import_gallery

__all__ = ["changed"]

Members = list[tuple[tarfile.TarInfo, bytes]]


@pytest.fixture
def archive(live_gallery: Gallery) -> bytes:
    return exported(live_gallery)


def exported(gallery: Gallery) -> bytes:
    stream = io.BytesIO()
    export_gallery(gallery, stream)
    return stream.getvalue()


def imported(root: Path, archive: bytes, name: str | None = None) -> Gallery:
    return import_gallery(root, io.BytesIO(archive), name)[0]


def members(archive: bytes) -> Members:
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        return [(member, opened.extractfile(member).read()) for member in opened]


def packed(parts: Members) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for member, content in parts:
            if member.isreg():
                member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def test_an_imported_gallery_is_the_exported_one(changed: Gallery, tmp_path: Path) -> None:
    root, before, identity = tmp_path / "other machine", contents(changed), identity_of(changed.path)
    gallery = imported(root, exported(changed))
    assert (gallery.name, contents(gallery)) == ("shoes", before)
    assert identity_of(gallery.path) == identity
    assert contents(changed) == before
    for version in gallery.versions():
        gallery.snapshot(version).check()
    gallery.pointer.activate(gallery.versions()[0], as_built=True)
    assert len(GalleryReader(gallery).view()) == 40
    assert left_over(gallery) == left_over(changed) == []


@pytest.mark.parametrize("taken", ["gallery", "alias"])
def test_a_gallery_that_is_there_is_never_replaced(live_gallery: Gallery, archive: bytes, taken: str) -> None:
    root, before = live_gallery.path.parent, contents(live_gallery)
    set_alias(root, "shop", "shoes")
    with pytest.raises(GalleryExistsError):
        imported(root, archive, "shoes" if taken == "gallery" else "shop")
    with pytest.raises(GalleryNameError):
        imported(root, archive, "../boots")
    assert contents(live_gallery) == before
    assert contents(imported(root, archive, "boots")) == before


@pytest.mark.parametrize("share", [0.0, 0.1, 0.99])
def test_a_cut_archive_leaves_nothing(archive: bytes, tmp_path: Path, share: float) -> None:
    end = archive.index(b"checksums.json") * share
    with pytest.raises(GalleryError, match=r"is no exported gallery|was cut") as refused:
        imported(tmp_path / "other", archive[: int(end)])
    assert "\n" not in str(refused.value)
    assert not list((tmp_path / "other").glob("*"))


def changes() -> Iterator[tuple[str, Callable[[Members], Any], str]]:
    def flip(parts: Members) -> None:
        place = next(i for i, (one, _) in enumerate(parts) if one.name.endswith("embeddings.npy"))
        content = bytearray(parts[place][1])
        content[-1] ^= 1
        parts[place] = parts[place][0], bytes(content)

    def named(name: str, kind: bytes = tarfile.REGTYPE) -> Callable[[Members], None]:
        def add(parts: Members) -> None:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "/etc/passwd"
            parts.insert(1, (member, b"x" if kind == tarfile.REGTYPE else b""))

        return add

    yield "a byte", flip, "is damaged: 'versions/1/embeddings.npy' differ"
    yield "a file less", lambda parts: parts.pop(2), "is damaged"
    yield "a file more", named("files/more"), "is damaged: 'more' differ"
    yield "above", named("files/../../evil"), "holds 'files/../../evil'"
    yield "absolute", named("/etc/evil"), "holds '"
    yield "odd", named("files/a\nb"), "holds '"
    yield "link", named("files/link", tarfile.SYMTYPE), "holds 'files/link'"
    yield "hard link", named("files/link", tarfile.LNKTYPE), "holds 'files/link'"
    yield "device", named("files/device", tarfile.CHRTYPE), "holds 'files/device'"
    yield "folder", named("files", tarfile.DIRTYPE), "holds 'files'"
    yield "no head", lambda parts: parts.pop(0), "^this is no exported gallery$"


@pytest.mark.parametrize(("change", "reason"), [pytest.param(*rest, id=name) for name, *rest in changes()])
def test_a_changed_archive_is_refused(
    archive: bytes, tmp_path: Path, change: Callable[[Members], Any], reason: str
) -> None:
    parts = members(archive)
    change(parts)
    with pytest.raises(GalleryError, match=reason):
        imported(tmp_path / "other", packed(parts))
    assert not list((tmp_path / "other").glob("*"))
    assert {path.name for path in tmp_path.iterdir()} <= {"galleries", "other"}


def test_a_disk_that_is_full_is_said(
    live_gallery: Gallery, archive: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "mkdir", full)
    with pytest.raises(StorageError, match="No space left on device"):
        imported(live_gallery.path.parent, archive, "boots")


def test_an_item_that_no_answer_could_carry_is_not_imported(
    live_gallery: Gallery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = GalleryReader(live_gallery)
    item_id = reader.view().page(None, 1)[0][1]["id"]
    with monkeypatch.context() as without:
        without.setattr("vicinal.indexer.jobs.changes.checked_metadata", lambda value, _: json.dumps(value))
        patch_items(reader, {item_id: Patch(keeps_label=True, metadata={"text": "x" * 100_000})})
    with pytest.raises(ItemRefusedError, match="at most 65,536"):
        imported(tmp_path / "other", exported(live_gallery))
    assert not [*(tmp_path / "other").glob("*/gallery.db")]
