"""Uploads: content that is brought to a home, once for all tries of a change."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from vicinal.indexer.errors import HomeError, OvertakenError
from vicinal.indexer.storage.disk import sha256_of_file, storing
from vicinal.indexer.storage.home.ledger import Ledger
from vicinal.indexer.storage.home.log import Kept, new_object
from vicinal.indexer.storage.home.stores import HomeStore

_UPLOADS = 8
# What was brought up is named within that time, or brought up again.
_UPLOAD_SECONDS = 3600.0


class Upload:
    """Content that is brought up for one change, once for all its tries."""

    def __init__(self, store: HomeStore, contents: Mapping[str, bytes | Path | str]) -> None:
        self.sources: dict[str, Path | bytes] = {}
        self._store = store
        self._links = {place: one for place, one in contents.items() if isinstance(one, str)}
        self._files: dict[str, tuple[str, int]] = {}
        for place, content in contents.items():
            if isinstance(content, str):
                continue
            if isinstance(content, bytes):
                sha256, size = hashlib.sha256(content).hexdigest(), len(content)
            else:
                with storing(f"'{content}'"):
                    sha256, size = sha256_of_file(content), content.stat().st_size
            self.sources[sha256], self._files[place] = content, (sha256, size)
        self._names: dict[str, tuple[str, float]] = {}

    def brought(self, ledger: Ledger) -> dict[str, Kept]:
        """Objects by path; what the home has under a name that is in use is not brought again."""
        names: dict[str, str] = {}
        for sha256 in dict.fromkeys(sha256 for sha256, _ in self._files.values()):
            in_use = next((row.object for row in ledger.with_content(sha256) if row.object), None)
            name, at = self._names.get(sha256, ("", 0.0))
            if name and time.monotonic() - at < _UPLOAD_SECONDS:
                names[sha256] = name
            elif in_use is not None:
                names[sha256] = in_use
        missing = [sha256 for sha256 in self.sources if sha256 not in names]
        if len(missing) > 1:
            with ThreadPoolExecutor(min(_UPLOADS, len(missing))) as pool:
                names |= dict(zip(missing, pool.map(self._bring, missing), strict=True))
        elif missing:
            names[missing[0]] = self._bring(missing[0])
        kept: dict[str, Kept] = {
            place: (names[sha256], size) for place, (sha256, size) in self._files.items()
        }
        return {**kept, **{place: (link, 0) for place, link in self._links.items()}}

    def _bring(self, sha256: str) -> str:
        name = new_object(sha256)
        source = self.sources[sha256]
        try:
            self._store.put(f"objects/{name}", source)
        except (HomeError, OSError) as error:
            if isinstance(source, Path) and not source.exists():
                # Who lost the lease follows the log like everybody.
                raise OvertakenError(f"'{source}' went while it was brought up: try again") from error
            raise
        self._names[sha256] = (name, time.monotonic())
        return name
