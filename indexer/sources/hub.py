"""Data sets of the hub of Hugging Face: their Parquet files; see `models.hub`.

hf:owner/name                           all of them
hf:owner/name/data                      those in a folder; or one file, or a pattern such as data/train-*
hf:owner/name@revision/data             a branch, a tag or a commit, refs/convert/parquet too
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from vicinal.indexer.errors import SourceError
from vicinal.indexer.sources.parquet_datasets import PARQUET
from vicinal.indexer.sources.remote import SourceAccess
from vicinal.models.errors import HubError
from vicinal.models.hub import HUB_SCHEME, REPOSITORY, HubRepository

_NAMED = re.compile(rf"{HUB_SCHEME}{REPOSITORY}(?:/(?P<path>.*))?", re.ASCII)
_HOW = "hf:owner/name, hf:owner/name@revision or hf:owner/name/folder"


@dataclass(frozen=True)
class HubDataset:
    """A data set of the hub, or a part of it."""

    name: str  # Owner and name, with a slash
    revision: str | None = None  # Branch, tag or commit; the main branch when None
    path: str = ""  # Folder, file or pattern inside; all of it when empty

    def __str__(self) -> str:
        return str(self._repository(anonymous=True))

    @classmethod
    def at(cls, address: str) -> HubDataset:
        """A data set by its address."""
        found = _NAMED.fullmatch(address.rstrip("/"))
        if found is None:
            raise SourceError(f"'{address}' names no data set of the hub: give {_HOW}")
        return cls(found["name"], found["revision"], found["path"] or "")

    def fetch(self, access: SourceAccess) -> dict[str, Path]:
        """Its Parquet files by their names without `.parquet`, in order; downloads what is not here yet."""
        # What only whoever runs the program may read is nothing for those who call it.
        repository = self._repository(anonymous=access.public_only)
        part = f"name a part of it, as '{HUB_SCHEME}{self.name}/data/train-00000*', or "
        try:
            listing = repository.look()
            found = repository.fetch(listing, self._chosen(listing.files), access.hub, hint=part)
        except HubError as error:
            raise SourceError(str(error)) from error
        return {name.removesuffix(PARQUET): path for name, path in found.items()}

    def _repository(self, *, anonymous: bool) -> HubRepository:
        return HubRepository("dataset", self.name, self.revision, self.path, anonymous)

    def _chosen(self, names: Collection[str]) -> list[str]:
        inside = f"{self.path}/" if self.path else ""
        chosen = [
            one
            for one in sorted(names)
            if one.endswith(PARQUET)
            and (one.startswith(inside) or one == self.path or fnmatchcase(one, self.path))
        ]
        if not chosen:
            there = ", ".join(sorted(names)[:5]) or "nothing"
            raise SourceError(
                f"'{self}' has no Parquet files, only {there}{', …' if len(names) > 5 else ''}; the hub may "
                f"have converted it: try '{HUB_SCHEME}{self.name}@refs/convert/parquet'"
            )
        return chosen
