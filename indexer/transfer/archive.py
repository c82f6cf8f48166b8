"""Archive: a gallery as one tar file for another machine, written and read front to back, also by a pipe.

gallery.json      what it holds, and which version of this format it is
files/...         the gallery's folder with all versions and calibrations, without locks and staged rows
checksums.json    size and SHA-256 of every file; an archive without it was cut
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import tarfile
import time
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO, Literal

import pyarrow as pa
from pydantic import BaseModel, TypeAdapter, ValidationError

from vicinal.indexer.engines import Engine
from vicinal.indexer.engines.tables import forget_owner
from vicinal.indexer.errors import GalleryError, named_ids
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.item_rules import checked_id, checked_label, checked_metadata, checked_uri
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.storage.files import make_folder, scratch, storing
from vicinal.indexer.storage.gallery_names import require_free
from vicinal.indexer.transfer.moving import own_tables, pinned, settle

_HEAD, _FILES, _SUMS = "gallery.json", "files", "checksums.json"
_NAME = re.compile(r"[\w.@+=-]{1,255}")
_LARGEST_JSON = 256 * 2**20
_BLOCK = 2**20
_Checksums = TypeAdapter(dict[str, tuple[int, str]])


class ArchiveHead(BaseModel, frozen=True):
    """First file of an exported gallery, with the bundle's fingerprint and the number of searched items."""

    format: Literal["vicinal gallery"] = "vicinal gallery"
    format_version: Literal[1] = 1
    name: str
    version: int
    n_items: int
    bundle: str
    bundle_name: str
    exported_at: datetime


def export_gallery(gallery: Gallery, stream: BinaryIO, *, with_searches: bool = False) -> ArchiveHead:
    """Write a gallery as it is now into one file; it is searched and changed meanwhile."""
    sums: dict[str, tuple[int, str]] = {}
    with (
        pinned(gallery, with_searches=with_searches) as source,
        tarfile.open(fileobj=stream, mode="w|", bufsize=_BLOCK) as archive,
    ):
        view = GalleryReader(Gallery(source)).view()
        manifest = view.snapshot.manifest
        head = ArchiveHead(
            name=gallery.name,
            version=manifest.version,
            n_items=len(view),
            bundle=manifest.bundle,
            bundle_name=manifest.bundle_name,
            exported_at=datetime.now(UTC),
        )
        _add(archive, _HEAD, head.model_dump_json(indent=2).encode())
        for path in sorted(one for one in source.rglob("*") if one.is_file()):
            name = path.relative_to(source).as_posix()
            with path.open("rb") as file:
                member = archive.gettarinfo(arcname=f"{_FILES}/{name}", fileobj=file)
                member.uid = member.gid = 0
                member.uname = member.gname = ""
                hashed = _Hashed(file)
                archive.addfile(member, hashed)
            sums[name] = (member.size, hashed.digest)
        _add(archive, _SUMS, json.dumps(sums, indent=0).encode())
    return head


def import_gallery(
    root: Path, stream: BinaryIO, name: str | None = None, *, engine: Engine | None = None
) -> tuple[Gallery, ArchiveHead]:
    """Make a gallery of an exported one, under its name or another; it appears whole or not at all."""
    try:
        with tarfile.open(fileobj=stream, mode="r|", bufsize=_BLOCK) as archive:
            head = _read_head(archive)
            chosen = head.name if name is None else name
            require_free(root, chosen)
            with scratch(root) as staging:
                folder = staging / chosen
                _unpack(archive, folder)
                # Whoever made the archive does not say whose tables are this gallery's.
                forget_owner(folder)
                gallery = Gallery(folder, engine=engine)
                _check(gallery)
                with own_tables(gallery), storing(f"gallery '{chosen}'"):
                    settle(folder, root / chosen)
    except (tarfile.TarError, EOFError) as error:
        raise GalleryError(f"this is no exported gallery, or it was cut ({error})") from error
    return Gallery(root / chosen, engine=engine), head


class _Hashed(io.RawIOBase):
    """A file that is being read, with the SHA-256 of what was read of it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._sum = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        piece = self._file.read(size)
        self._sum.update(piece)
        return piece

    @property
    def digest(self) -> str:
        return self._sum.hexdigest()


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mtime = len(content), int(time.time())
    archive.addfile(member, io.BytesIO(content))


def _read_head(archive: tarfile.TarFile) -> ArchiveHead:
    member = archive.next()
    if member is None or member.name != _HEAD:
        raise GalleryError("this is no exported gallery")
    try:
        return ArchiveHead.model_validate_json(_content(archive, member))
    except ValidationError as error:
        raise GalleryError("this gallery was exported by another release, or is damaged") from error


def _unpack(archive: tarfile.TarFile, folder: Path) -> None:
    """Write the files below a folder, and compare them with their checksums."""
    found: dict[str, tuple[int, str]] = {}
    while (member := archive.next()) is not None:
        if member.name == _SUMS:
            try:
                declared = _Checksums.validate_json(_content(archive, member))
            except ValidationError as error:
                raise GalleryError("this exported gallery is damaged: its checksums are none") from error
            _compare(found, declared)
            return
        name = _name_of(member)
        found[name] = (member.size, _unpacked(archive, member, folder / name))
    raise GalleryError("this exported gallery was cut: its checksums are missing")


def _unpacked(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> str:
    """SHA-256 of a file that was written."""
    source = _opened(archive, member)
    digest = hashlib.sha256()
    with storing(f"'{path}'"):
        make_folder(path.parent)
        with path.open("xb") as target:
            while piece := source.read(_BLOCK):
                digest.update(piece)
                target.write(piece)
    return digest.hexdigest()


def _name_of(member: tarfile.TarInfo) -> str:
    """Path of a file below the gallery's folder, which it must not leave."""
    first, *parts = PurePosixPath(member.name).parts
    is_file = member.type == tarfile.REGTYPE and member.sparse is None
    is_plain = all(_NAME.fullmatch(part) and part not in (".", "..") for part in parts)
    if first != _FILES or not parts or not is_file or not is_plain:
        raise GalleryError(f"this is no exported gallery: it holds '{member.name}'")
    return "/".join(parts)


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    if member.size > _LARGEST_JSON:
        raise GalleryError(f"this is no exported gallery: its {member.name} is too large")
    return _opened(archive, member).read()


def _opened(archive: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    opened = archive.extractfile(member)
    if opened is None:
        raise GalleryError(f"this is no exported gallery: '{member.name}' is no file")
    return opened


def _compare(found: dict[str, tuple[int, str]], declared: dict[str, tuple[int, str]]) -> None:
    wrong = sorted(name for name in found.keys() | declared.keys() if found.get(name) != declared.get(name))
    if wrong:
        raise GalleryError(
            f"this exported gallery is damaged: {named_ids(wrong)} differ from what was exported"
        )


def _check(gallery: Gallery) -> None:
    """Refuse what cannot be searched."""
    try:
        active = gallery.activation
    except GalleryError:
        # Its advice is about a folder that is gone in a moment.
        active = None
    if active is None:
        raise GalleryError("this archive holds no gallery")
    gallery.table.check(active.revision)
    GalleryReader(gallery).view()
    names = ["id", "label", "uri", "metadata"]
    for batch in gallery.table.batches(active.revision, names):
        columns = (batch.column(name).cast(pa.string()).to_pylist() for name in names)
        for item_id, label, uri, text in zip(*columns, strict=True):
            checked_label(label, checked_id(item_id))
            checked_uri(uri, item_id)
            checked_metadata(json.loads(text or "{}"), item_id)
