"""Hub of Hugging Face: what a repository there holds, and its files, by the library `huggingface_hub`.

The library follows `HF_ENDPOINT`, `HF_TOKEN` and `HF_HOME`, keeps what it fetched by content, and goes on
with a download that broke off.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from vicinal.models.errors import HubError, MissingPackageError

HUB_SCHEME = "hf:"
REPOSITORY = r"(?P<name>\w[\w.-]*/\w[\w.-]*)(?:@(?P<revision>refs/(?:convert|pr)/[\w.-]+|[\w.-]+))?"
# For an answer of the hub; without a network that is known within a moment.
_SECONDS = 10.0
_TOKEN = "give your token by HF_TOKEN or `hf auth login`"
_NOUNS = {"dataset": "data set", "model": "model"}


@dataclass(frozen=True)
class HubFile:
    """A file of a repository: its bytes, and its SHA-256 where the hub knows it."""

    n_bytes: int
    sha256: str | None = None


@dataclass(frozen=True)
class HubListing:
    """State of a repository."""

    name: str  # Owner and name as they are now, whatever the repository was called before
    commit: str
    files: Mapping[str, HubFile]  # By path
    card: Mapping[str, Any]  # What the head of its README says: `license`, `base_model`


@dataclass(frozen=True)
class HubRepository:
    """A repository of the hub; `anonymous` is without the token of whoever runs the program."""

    kind: Literal["dataset", "model"]
    name: str  # Owner and name, with a slash
    revision: str | None = None  # Branch, tag or commit; the main branch when None
    path: str = ""  # The part that is meant, for people
    anonymous: bool = False

    def __str__(self) -> str:
        revision = f"@{self.revision}" if self.revision else ""
        return f"{HUB_SCHEME}{self.name}{revision}" + (f"/{self.path}" if self.path else "")

    def look(self) -> HubListing:
        """Ask the hub what it holds."""
        api = _library(self._noun).HfApi(**self._where)
        ask = api.dataset_info if self.kind == "dataset" else api.model_info
        with self._asking():
            found = ask(self.name, revision=self.revision, files_metadata=True, timeout=_SECONDS)
        files = {
            one.rfilename: HubFile(one.size or 0, one.lfs.sha256 if one.lfs else None)
            for one in found.siblings or ()
        }
        card = {} if found.card_data is None else found.card_data.to_dict()
        return HubListing(found.id, str(found.sha), files, card)

    def fetch(
        self, listing: HubListing, names: Collection[str], cache: Path | None = None, *, hint: str = ""
    ) -> dict[str, Path]:
        """Files by their paths; downloads what is not in a cache yet, the library's own when None.

        Raises:
            HubError: Something cannot be had, or does not fit on the disk (`hint` says what else would help).
        """
        hub = _library(self._noun)
        place = {"repo_type": self.kind, "revision": listing.commit, "cache_dir": cache}
        with self._asking():
            left = [one for one in names if not hub.try_to_load_from_cache(listing.name, one, **place)]
        self._check_room(
            sum(listing.files[one].n_bytes for one in left), cache or Path(hub.constants.HF_HUB_CACHE), hint
        )
        with self._asking():
            return {
                one: Path(
                    hub.hf_hub_download(listing.name, one, etag_timeout=_SECONDS, **place, **self._where)
                )
                for one in names
            }

    @property
    def _noun(self) -> str:
        return _NOUNS[self.kind]

    @property
    def _where(self) -> dict[str, Any]:
        token = False if self.anonymous else None
        return {"endpoint": os.environ.get("HF_ENDPOINT") or None, "token": token}

    def _check_room(self, n_bytes: int, cache: Path, hint: str) -> None:
        there = next(one for one in (cache, *cache.absolute().parents) if one.exists())
        free = shutil.disk_usage(there).free
        if n_bytes > free:
            raise HubError(
                f"'{self}' has {n_bytes / 1e9:,.1f} GB to download, and {free / 1e9:,.1f} GB are free in "
                f"'{cache}': {hint}make room"
            )

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Say in one line what the hub answers."""
        try:
            yield
        except Exception as error:  # Its versions use several libraries, each with errors of its own.
            raise HubError(self._answer(error)) from error

    def _answer(self, error: Exception) -> str:
        from huggingface_hub import errors

        noun = self._noun
        if isinstance(error, errors.GatedRepoError):
            return f"{noun} '{self}' is gated: ask for it on its page of the hub, and {_TOKEN}"
        if isinstance(error, errors.RevisionNotFoundError):
            return f"{noun} '{self.name}' has no revision '{self.revision}'"
        if isinstance(error, errors.RepositoryNotFoundError):
            return f"the hub has no {noun} '{self}', or it is private: {_TOKEN}"
        if isinstance(error, errors.HfHubHTTPError):
            status = error.response.status_code
            if status == 404:
                return f"the hub has no {noun} '{self}'"
            hint = f": {_TOKEN}" if status in (401, 403) else ""
            return f"the hub answers {status} for {noun} '{self}'{hint}"
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
        return f"{noun} '{self}' cannot be read from the hub: {type(error).__name__}: {reason[:200]}"


def _library(noun: str) -> Any:
    """The library."""
    try:
        import huggingface_hub
        import huggingface_hub.constants  # which it does not import by itself
    except ImportError as error:
        raise MissingPackageError("huggingface_hub", "hub", f"a {noun} of the hub") from error
    return huggingface_hub
