"""Files that outlive a crash: replaced in one step, on the disk before anyone is told; seals; locks.

A version's manifest, and the name of a revision, is a small JSON file with a seal of its own, see
`models.configs.sealed_json`. Nobody gets the content of one whose seal is broken, and whoever reads it says
how to come by another.

All other files get a `FileSeal`, which whoever opens them compares before Faiss, Arrow, Lance or numpy see a
byte: those trust the sizes and offsets that they read, and a damaged one ends the process. Two ways:

    whole     every byte; due for what a native parser follows from place to place, the vector index and
              `items.arrow`, however large they are: 260 MB and 0.2 s for a million items
    sampled   the size and 64 places, the first and the last among them; a file of up to 4 MB in full

Arrays are sampled when they are opened: only their header says where anything lies, and numpy maps as much or
refuses. Positions among them are compared with the length of what they point into. The item table's files are
sampled too: Lance answers damage between the blocks of a large one with an error or another value. Whoever
searches reads all of these in full in the background, at every start and from time to time, and notes what
came of it beside them.
"""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path
from typing import Generic, Self, TypeVar

from vicinal.calibration.frozen import Frozen
from vicinal.indexer.disk import hold_file as hold_file
from vicinal.indexer.disk import make_folder as make_folder
from vicinal.indexer.disk import making_in as making_in
from vicinal.indexer.disk import remove_half_made as remove_half_made
from vicinal.indexer.disk import replace_file
from vicinal.indexer.disk import scratch as scratch
from vicinal.indexer.disk import storing as storing
from vicinal.indexer.disk import sync_path as sync_path
from vicinal.indexer.errors import DamagedGalleryError, GalleryError, HomeError, StorageError
from vicinal.indexer.state import Rows, state_of
from vicinal.indexer.state.schema import documents
from vicinal.indexer.storage.home.mirror import Mirror
from vicinal.models.configs.sealed_json import BrokenSealError, sealed, unsealed

logger = logging.getLogger(__name__)
# A file that was written so recently could be written again without another time of change.
_SETTLED_NANOSECONDS = 2 * 10**9
# A file up to this size is always read in full: a few milliseconds.
_SMALL_BYTES = 4 * 2**20
_BLOCK_BYTES, _N_BLOCKS = 4096, 64
# What one checksum of a file covers, and how long it is.
_SEALED_BYTES, _DIGITS = 2**20, 16
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# Files that are known to fit.
_MOST_FITTED = 4096

Parsed = TypeVar("Parsed")
OnRead = Callable[[int], None]


def size_of(paths: Iterable[Path]) -> int:
    """Bytes of files; one that goes meanwhile has none."""
    size = 0
    for path in paths:
        with suppress(FileNotFoundError):
            size += path.stat().st_size if path.is_file() else 0
    return size


@contextmanager
def appearing(path: Path) -> Iterator[Path]:
    """A folder to write into that appears at a path whole or not at all, in place of what is there."""
    make_folder(path.parent)
    with scratch(path.parent) as aside, storing(f"version '{path}'"):
        (aside / "new").mkdir(mode=0o700)
        yield aside / "new"
        mirror = Mirror.keeping(path)
        if mirror is not None:
            mirror.put_folder(aside / "new", path)
            return
        if path.exists():
            path.rename(aside / "old")
        (aside / "new").rename(path)
        sync_path(path.parent)


def write_atomically(path: Path, content: str | bytes, *, durable: bool = True) -> None:
    """Replace a small file; any crash leaves the old or the new one, one of the machine only if `durable`.
    In a mirror the home has it first.
    """
    mirror = Mirror.keeping(path)
    if mirror is None:
        replace_file(path, content, durable=durable)
    else:
        mirror.put(path, content.encode() if isinstance(content, str) else content)


@contextmanager
def publishing(folder: Path, gone: Iterable[Path] = ()) -> Iterator[Rows]:
    """Rows of a gallery for a change of what is searched. In a mirror the home has all that was changed in
    the table first, and loses folders that the caller then removes in the same transaction.
    """
    mirror = Mirror.keeping(folder / "items.lance")
    with state_of(folder).changing() if mirror is None else mirror.publishing(folder, gone) as rows:
        yield rows


def fetched_again(path: Path) -> bool:
    """Bring back from its home what is damaged of a file, or below a folder; tell whether anything was."""
    mirror = Mirror.keeping(path)
    try:
        is_mended = mirror is not None and mirror.mend(mirror.place_of(path))
    except HomeError as error:
        logger.warning("'%s' is not brought back from its home: %s", path, error)
        return False
    if is_mended:
        logger.warning("'%s' was damaged: it is brought back from its home", path)
    return is_mended


def uncounted(_n_bytes: int) -> None:
    """Ignore what was read."""


def file_identity(path: Path) -> tuple[int, ...]:
    """Identity of a file and its time of writing, which no other of the same name shares; () for none."""
    try:
        return _identity(path)
    except OSError:
        return ()


def _identity(path: Path) -> tuple[int, ...]:
    found = path.stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _is_settled(identity: tuple[int, ...]) -> bool:
    return time.time_ns() - identity[3] >= _SETTLED_NANOSECONDS


class CachedFile(Generic[Parsed]):
    """A file that is asked for often: read again only after it was replaced, parsed only where it differs."""

    def __init__(self, path: Path, parse: Callable[[bytes], Parsed]) -> None:
        self.path = path
        self._parse = parse
        self._known: tuple[tuple[int, ...] | None, bytes, Parsed] | None = None

    def read(self) -> Parsed:
        """The value of the file as it is now."""
        identity, known = _identity(self.path), self._known
        if known is not None and known[0] == identity:
            return known[2]
        stored = self.path.read_bytes()
        value = known[2] if known is not None and known[1] == stored else self._parse(stored)
        self._known = (identity if _is_settled(identity) else None), stored, value
        return value


def read_sealed(path: Path) -> bytes:
    """The JSON object in a sealed file."""
    return unsealed(path.read_bytes())


def read_sealed_or_refuse(path: Path, remedy: str) -> bytes:
    """Read a sealed file, and refuse a damaged one with what would help."""
    try:
        return read_sealed(path)
    except FileNotFoundError:
        raise
    except (OSError, BrokenSealError) as error:
        raise GalleryError(f"'{path}' is damaged: {remedy}") from error


def write_sealed(path: Path, text: str, *, durable: bool = True) -> None:
    """Replace a small file by a JSON object with its seal; see `write_atomically`."""
    write_atomically(path, sealed(text), durable=durable)


def broken_tags(folder: Path) -> Iterator[Path]:
    """Names of revisions of a gallery's table that are not what was written, sorted: the only sealed files of
    a gallery outside its versions.
    """
    for path in sorted(folder.glob("*/_refs/tags/*.json")):
        # One may be replaced or removed meanwhile.
        with suppress(FileNotFoundError):
            try:
                read_sealed(path)
            except BrokenSealError:
                yield path


def identity_of(folder: Path) -> str:
    """Identity of the gallery in a folder, given when first asked for; renamed and copied ones keep it."""
    return known_word(folder, "identity") or given_word(folder, "identity")


def known_word(folder: Path, kind: str) -> str | None:
    """A word that a gallery was given; None before that."""
    with state_of(folder).reading() as rows:
        return _word_in(rows, kind)


def given_word(folder: Path, kind: str) -> str:
    """A word of a gallery's own, drawn unless it has one."""
    with state_of(folder).changing() as rows:
        drawn = {"kind": kind, "id": "", "at": time.time(), "content": json.dumps(secrets.token_hex(8))}
        rows.put(documents, drawn, keep=True)
        return str(_word_in(rows, kind))


def _word_in(rows: Rows, kind: str) -> str | None:
    found = rows.first(documents, documents.c.kind == kind, documents.c.id == "")
    return None if found is None else str(json.loads(found.content))


def digest_of(content: bytes) -> str:
    """A short checksum: the first 16 hexadecimal digits of the SHA-256."""
    return hashlib.sha256(content).hexdigest()[:_DIGITS]


class FileSeal(Frozen):
    """Look that a file must have: bytes, the first 16 hexadecimal digits of the SHA-256 of each MiB, and the
    SHA-256 of its samples; of all of it when it is small.
    """

    n_bytes: int
    blocks: str
    sample: str

    @classmethod
    def of(cls, path: Path) -> Self:
        """Seal of a finished file."""
        n_bytes = path.stat().st_size
        return cls(n_bytes=n_bytes, blocks="".join(_blocks_of(path)), sample=_sample_of(path, n_bytes))

    def fits(self, path: Path, *, whole: bool, on_read: OnRead = uncounted) -> bool:
        """Tell whether a file is what it was, by every byte or only samples of a large one."""
        try:
            if path.stat().st_size != self.n_bytes:
                return False
            return self._is_whole(path, on_read) if whole else _sample_of(path, self.n_bytes) == self.sample
        except OSError:
            # Gone, or on a part of the disk that cannot be read any more.
            return False

    def fits_still(self, path: Path) -> bool:
        """Tell whether samples of a file fit; they are not read again while the file stays as it is."""
        identity = file_identity(path)
        is_known = bool(identity) and _is_settled(identity)
        return _fitted(path, self, identity) if is_known else self.fits(path, whole=False)

    def _is_whole(self, path: Path, on_read: OnRead) -> bool:
        n_left = self.n_bytes
        starts = range(0, len(self.blocks), _DIGITS)
        # Up to the first block that differs; a file that grew meanwhile has one more.
        for start, found in zip_longest(starts, _blocks_of(path)):
            if start is None or found != self.blocks[start : start + _DIGITS]:
                return False
            on_read(min(n_left, _SEALED_BYTES))
            n_left -= _SEALED_BYTES
        return True


@lru_cache(maxsize=_MOST_FITTED)
def _fitted(path: Path, seal: FileSeal, _identity: tuple[int, ...]) -> bool:
    return seal.fits(path, whole=False)


def _sample_of(path: Path, n_bytes: int) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        if n_bytes <= _SMALL_BYTES:
            return hashlib.file_digest(stream, "sha256").hexdigest()
        for i in range(_N_BLOCKS):
            # The first block starts the file and the last one ends it.
            stream.seek(i * (n_bytes - _BLOCK_BYTES) // (_N_BLOCKS - 1))
            digest.update(stream.read(_BLOCK_BYTES))
    return digest.hexdigest()


def _blocks_of(path: Path) -> Iterator[str]:
    """Checksum of each MiB of a file."""
    with path.open("rb", buffering=0) as stream:
        while block := stream.read(_SEALED_BYTES):
            yield digest_of(block)


class _Checked(Frozen):
    boot: str
    began: int


class Damage(Frozen):
    """Damage that a check found."""

    problem: str
    file: Path
    identity: tuple[int, ...]

    @classmethod
    def of(cls, error: DamagedGalleryError, problem: str | None = None) -> Self:
        """Damage that an error tells of, in its words or in others."""
        return cls(problem=problem or str(error), file=error.file, identity=file_identity(error.file))

    @property
    def error(self) -> DamagedGalleryError:
        """The error for whoever wants to search."""
        return DamagedGalleryError(self.problem, self.file)

    @property
    def may_be_mended(self) -> bool:
        """Tell whether another file lies there by now, or the same one was written again."""
        return file_identity(self.file) != self.identity


class CheckNotes:
    """Notes beside the files of a version, of checks that compared every byte.

    checked.json   when the last one began, on which start of which machine
    damaged.json   what was found, until the files are whole again or are made again with their folder

    All processes of a machine share what is mapped, and so a check that began after they opened the files.
    Nobody searches a version that one of them found damaged, also not after a restart.
    """

    NAMES = ("checked.json", "damaged.json")

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._checked, self._damaged = (folder / name for name in self.NAMES)

    def note_whole(self, began: int) -> None:
        """Remember a check that found nothing."""
        self.forget()
        # On a read-only disk there is no note, and every process checks for itself.
        with suppress(StorageError):
            if (boot := _boot_id()) is not None:
                checked = _Checked(boot=boot, began=began).model_dump_json()
                write_sealed(self._checked, checked, durable=False)

    def forget(self) -> None:
        """Give up what was found: it is to be looked for again."""
        with suppress(OSError):
            self._damaged.unlink(missing_ok=True)

    def is_checked_since(self, moment: int) -> bool:
        """Tell whether a clean check began after a moment of this machine, `time.monotonic_ns`."""
        try:
            found = _Checked.model_validate_json(read_sealed(self._checked))
        except (OSError, ValueError):
            return False
        return found.boot == _boot_id() and moment <= found.began <= time.monotonic_ns()

    def note_damage(self, damage: Damage) -> None:
        """Remember what was found."""
        with suppress(StorageError):
            write_sealed(self._damaged, damage.model_dump_json())

    def damage(self) -> Damage | None:
        """Damage that was found; None where none was. Cheap enough for every search."""
        path = self._damaged
        if not path.exists():
            return None
        try:
            return Damage.model_validate_json(read_sealed(path))
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            return Damage(problem=f"'{path}' is damaged", file=path, identity=())


def _boot_id() -> str | None:
    try:
        return _BOOT_ID.read_text(encoding="utf-8").strip()
    except OSError:
        # Where the system does not tell, every process checks for itself.
        return None
