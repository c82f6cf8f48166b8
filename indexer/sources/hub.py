"""Data sets of the hub of Hugging Face: their Parquet files, by its library `huggingface_hub`.

hf:owner/name                           all of them
hf:owner/name/data                      those in a folder; or one file, or a pattern such as data/train-*
hf:owner/name@revision/data             a branch, a tag or a commit, refs/convert/parquet too
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from vicinal.indexer.errors import SourceError
from vicinal.indexer.sources.parquet_datasets import PARQUET
from vicinal.indexer.sources.remote import HUB_SCHEME
from vicinal.indexer.sources.web import WebAccess
from vicinal.models.errors import MissingPackageError

_NAMED = re.compile(
    r"hf:(?P<name>\w[\w.-]*/\w[\w.-]*)(?:@(?P<revision>refs/(?:convert|pr)/[\w.-]+|[\w.-]+))?(?:/(?P<path>.*))?",
    re.ASCII,
)
# For an answer of the hub; without a network that is known within a moment.
_SECONDS = 10.0
_HOW = "hf:owner/name, hf:owner/name@revision or hf:owner/name/folder"
_TOKEN = "give your token by HF_TOKEN or `hf auth login`"


@dataclass(frozen=True)
class HubDataset:
    """A data set of the hub, or a part of it."""

    name: str  # Owner and name, with a slash
    revision: str | None = None  # Branch, tag or commit; the main branch when None
    path: str = ""  # Folder, file or pattern inside; all of it when empty

    def __str__(self) -> str:
        revision = f"@{self.revision}" if self.revision else ""
        return f"{HUB_SCHEME}{self.name}{revision}" + (f"/{self.path}" if self.path else "")

    @classmethod
    def at(cls, address: str) -> HubDataset:
        """A data set by its address."""
        found = _NAMED.fullmatch(address.rstrip("/"))
        if found is None:
            raise SourceError(f"'{address}' names no data set of the hub: give {_HOW}")
        return cls(found["name"], found["revision"], found["path"] or "")

    def fetch(self, access: WebAccess) -> dict[str, Path]:
        """Its Parquet files by their names without `.parquet`, in order; downloads what is not here yet."""
        hub = _library()
        # What only whoever runs the program may read is nothing for those who call it.
        token = False if access.public_only else None
        where = {"endpoint": os.environ.get("HF_ENDPOINT") or None, "token": token}
        with self._asking():
            found = hub.HfApi(**where).dataset_info(
                self.name, revision=self.revision, files_metadata=True, timeout=_SECONDS
            )
        sizes = {one.rfilename: one.size or 0 for one in found.siblings or ()}
        names = self._chosen(sizes)
        place = {"repo_type": "dataset", "revision": found.sha, "cache_dir": access.hub}
        with self._asking():
            left = [one for one in names if not hub.try_to_load_from_cache(self.name, one, **place)]
        self._check_room(sum(sizes[one] for one in left), access.hub or Path(hub.constants.HF_HUB_CACHE))
        with self._asking():
            return {
                one.removesuffix(PARQUET): Path(
                    hub.hf_hub_download(self.name, one, etag_timeout=_SECONDS, **place, **where)
                )
                for one in names
            }

    def _chosen(self, sizes: Mapping[str, int]) -> list[str]:
        inside = f"{self.path}/" if self.path else ""
        chosen = [
            one
            for one in sorted(sizes)
            if one.endswith(PARQUET)
            and (one.startswith(inside) or one == self.path or fnmatchcase(one, self.path))
        ]
        if not chosen:
            there = ", ".join(sorted(sizes)[:5]) or "nothing"
            raise SourceError(
                f"'{self}' has no Parquet files, only {there}{', …' if len(sizes) > 5 else ''}; the hub may "
                f"have converted it: try '{HUB_SCHEME}{self.name}@refs/convert/parquet'"
            )
        return chosen

    def _check_room(self, n_bytes: int, cache: Path) -> None:
        there = next(one for one in (cache, *cache.absolute().parents) if one.exists())
        free = shutil.disk_usage(there).free
        if n_bytes > free:
            raise SourceError(
                f"'{self}' has {n_bytes / 1e9:,.1f} GB to download, and {free / 1e9:,.1f} GB are free in "
                f"'{cache}': name a part of it, as '{HUB_SCHEME}{self.name}/data/train-00000*', or make room"
            )

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Say in one line what the hub answers."""
        try:
            yield
        except Exception as error:  # Its versions use several libraries, each with errors of its own.
            raise SourceError(self._answer(error)) from error

    def _answer(self, error: Exception) -> str:
        from huggingface_hub import errors

        if isinstance(error, errors.GatedRepoError):
            return f"data set '{self}' is gated: ask for it on its page of the hub, and {_TOKEN}"
        if isinstance(error, errors.RevisionNotFoundError):
            return f"data set '{self.name}' has no revision '{self.revision}'"
        if isinstance(error, errors.RepositoryNotFoundError):
            return f"the hub has no data set '{self}', or it is private: {_TOKEN}"
        if isinstance(error, errors.HfHubHTTPError):
            status = error.response.status_code
            if status == 404:
                return f"the hub has no data set '{self}'"
            hint = f": {_TOKEN}" if status in (401, 403) else ""
            return f"the hub answers {status} for data set '{self}'{hint}"
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
        return f"data set '{self}' cannot be read from the hub: {type(error).__name__}: {reason[:200]}"


def _library() -> Any:
    """The library."""
    try:
        import huggingface_hub
        import huggingface_hub.constants  # which it does not import by itself
    except ImportError as error:
        raise MissingPackageError("huggingface_hub", "hub", "a data set of the hub") from error
    return huggingface_hub
