"""Tables of one gallery: their names, which are its own, and which nothing needs any more.

A name is vicinal_<owner>_<version>_<space>_<time>_<random>. The owner is a word that stays with a renamed
gallery and that neither copies nor archives have: these take the tables that their files name for those of
another gallery, and make their own.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from vicinal.indexer.disk import hold_file, paths_below
from vicinal.indexer.engines.engine import ENGINE, Engine, require_kept
from vicinal.indexer.engines.source import EngineSource, read_engine_file
from vicinal.indexer.errors import (
    EngineAwayError,
    EngineError,
    EngineTableError,
    GalleryBusyError,
    GalleryError,
)
from vicinal.indexer.graph.vector_index import Candidates, check_factory
from vicinal.indexer.state import state_of
from vicinal.indexer.state.schema import documents
from vicinal.indexer.storage.files import FileSeal, given_word, known_word

logger = logging.getLogger(__name__)

# Kind of the document that says whose the tables are.
OWNER = "engine"
# What a build on another machine has left is no longer that of one that goes on.
_LEFTOVER_SECONDS = 24 * 3600.0


def check_index(kind: str, dim: int, engine: Engine) -> None:
    """Refuse an index that cannot be built before anything is embedded for it; asks the engine, if any."""
    require_kept(kind)
    if kind != ENGINE:
        check_factory(kind, dim)
        return
    with engine.asking() as asked:
        if dim > asked.longest:
            raise EngineError(
                f"index '{kind}' takes embeddings of at most {asked.longest:,} numbers, not {dim:,}"
            )
        asked.describe()


@dataclass(frozen=True)
class GalleryTables:
    """Tables of the gallery in a folder, in the engine of this process."""

    folder: Path
    engine: Engine = field(default_factory=Engine)

    @property
    def prefix(self) -> str:
        """Beginning of the names of the gallery's own tables; it gets one when it is first asked for."""
        return f"vicinal_{self._owner or given_word(self.folder, OWNER)}_"

    @contextmanager
    def naming(self, version: int, space: str) -> Iterator[str]:
        """Name of a new table, to be held until a version names it; what dead builds have left goes first."""
        self._drop_left()
        name = f"{self.prefix}{version}_{space}_{int(time.time()):x}_{secrets.token_hex(3)}"
        lock = self._lock_of(name)
        try:
            with hold_file(lock, f"table {name} is being made by another process"):
                yield name
        finally:
            lock.unlink(missing_ok=True)

    def open(self, path: Path, candidates: Candidates, seal: FileSeal) -> EngineSource:
        """Open the file that stands for an index."""
        source = EngineSource.open(path, candidates, seal, self.engine)
        # A copy has none before it makes a table.
        source.is_foreign = not (self._owner and source.file.name.startswith(self.prefix))
        return source

    def drop(self, names: Iterable[str]) -> None:
        """Remove those of some tables that are its own; see `Engine.drop`."""
        prefix = self.prefix
        for name in names:
            if name.startswith(prefix):
                self.engine.drop(name)

    def drop_all(self) -> None:
        """Remove all of its tables; refused while its versions need the engine, which does not answer."""
        if self._owner is None:
            return
        is_needed = bool(self._named())
        if not is_needed and self.engine.address is None:
            return
        try:
            with self.engine.asking() as engine:
                for name in engine.names(self.prefix):
                    engine.drop(name)
        except EngineError as error:
            if is_needed and isinstance(error, EngineAwayError):
                raise
            # An engine that is gone for good keeps no gallery.
            logger.warning("tables %s* stay, if there are any: %s", self.prefix, error)

    def is_whole(self, source: EngineSource) -> bool:
        """Tell whether the table of a source is the gallery's own, and has its rows."""
        if source.is_foreign:
            return False
        try:
            with self.engine.asking() as engine:
                return engine.describe(source.file.name).n_rows == source.file.n_items
        except EngineTableError:
            return False

    def of_version(self, folder: Path) -> set[str]:
        """Names of the tables that the files in a folder of a version, or of several, name."""
        found = set()
        for path in paths_below(folder, "*.index"):
            # Where it fails it is an index of Faiss, or a damaged file.
            with suppress(GalleryError):
                found.add(read_engine_file(path).name)
        return found

    @property
    def _owner(self) -> str | None:
        return known_word(self.folder, OWNER)

    def _drop_left(self) -> None:
        with self.engine.asking() as engine:
            left = [one for one in engine.names(self.prefix) if self._is_left(one)]
        # Later than that: whoever has finished by then was not busy any more.
        named = self._named()
        self.drop([one for one in left if one not in named])

    def _is_left(self, name: str) -> bool:
        """Tell whether no build holds the name of a table; of one on another machine that is guessed."""
        lock = self._lock_of(name)
        if not lock.is_file():
            return _age(name) > _LEFTOVER_SECONDS
        try:
            with hold_file(lock, f"table {name} is being made"):
                lock.unlink(missing_ok=True)
        except GalleryBusyError:
            return False
        return True

    def _lock_of(self, name: str) -> Path:
        return self.folder / f"{name}.lock"

    def _named(self) -> set[str]:
        return self.of_version(self.folder / "versions")


def forget_owner(folder: Path) -> None:
    """Let the gallery in a folder, a copy, have no tables of its own yet."""
    with state_of(folder).changing() as rows:
        rows.remove(documents, documents.c.kind == OWNER)


def _age(name: str) -> float:
    """Seconds since a table was given its name."""
    try:
        return time.time() - int(name.split("_")[-2], 16)
    except (IndexError, ValueError):
        return 0.0
