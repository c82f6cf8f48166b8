"""Uploads: content that is brought to a home, once for all tries of a change."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sqlalchemy import select

from vicinal.indexer.disk import sha256_of_file, storing
from vicinal.indexer.errors import HomeError, OvertakenError
from vicinal.indexer.state import Rows
from vicinal.indexer.state.schema import files
from vicinal.indexer.storage.home.ledger import Ledger
from vicinal.indexer.storage.home.stores import HomeStore

_UPLOADS, _TOGETHER = 8, 1000
# What was brought up is named within that time: what nobody names is removed after a day.
_UPLOAD_SECONDS = 3600.0
# Object and bytes of a file.
Kept = tuple[str, int]


class Upload:
    """Content that is brought up for one change, bytes or a file by place."""

    def __init__(self, store: HomeStore, ledger: Ledger, contents: Mapping[str, bytes | Path]) -> None:
        self.sources: dict[str, Path | bytes] = {}
        self._store = store
        self._files: dict[str, tuple[str, int]] = {}
        for place, content in contents.items():
            if isinstance(content, bytes):
                sha256, size = hashlib.sha256(content).hexdigest(), len(content)
            else:
                with storing(f"'{content}'"):
                    sha256, size = sha256_of_file(content), content.stat().st_size
            self.sources[sha256], self._files[place] = content, (sha256, size)
        # What the home has under a name that is in use is not brought again.
        known = {sha256: ledger.with_content(sha256) for sha256 in self.sources}
        self._reused = {sha256: rows[0].object for sha256, rows in known.items() if rows}
        self._brought: dict[str, str] = {}
        self._began = time.monotonic()

    def bring(self) -> dict[str, Kept]:
        """Bring up what is not there yet; objects by place."""
        missing = [one for one in self.sources if one not in self._reused and one not in self._brought]
        if len(missing) > 1:
            with ThreadPoolExecutor(min(_UPLOADS, len(missing))) as pool:
                self._brought |= dict(zip(missing, pool.map(self._bring, missing), strict=True))
        elif missing:
            self._brought[missing[0]] = self._bring(missing[0])
        names = self._reused | self._brought
        return {place: (names[sha256], size) for place, (sha256, size) in self._files.items()}

    def is_there(self, rows: Rows) -> bool:
        """Tell, in the transaction that names the objects, whether none of them can go before it is over;
        where it is False, `bring` brings again what may.
        """
        if time.monotonic() - self._began > _UPLOAD_SECONDS:
            raise OvertakenError("bringing files to the home took too long: try again")
        wanted, found = sorted(self._reused.values()), set()
        for start in range(0, len(wanted), _TOGETHER):
            # Whoever removes the last file of this content waits until it has another.
            asked = select(files.c.object).where(files.c.object.in_(wanted[start : start + _TOGETHER]))
            found |= set(rows.connection.scalars(asked.with_for_update(read=True)))
        self._reused = {sha256: name for sha256, name in self._reused.items() if name in found}
        return len(self._reused) == len(wanted)

    def _bring(self, sha256: str) -> str:
        # A name of its own: nobody comes to name an object that is being removed.
        name = f"{sha256}-{secrets.token_hex(3)}"
        source = self.sources[sha256]
        try:
            self._store.put(f"objects/{name}", source)
        except (HomeError, OSError) as error:
            if isinstance(source, Path) and not source.exists():
                # Who lost the lease follows the others.
                raise OvertakenError(f"'{source}' went while it was brought up: try again") from error
            raise
        return name
