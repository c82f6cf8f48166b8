"""API keys that operators make: who may do what, in which galleries, until when.

A key is `vic_ID_SECRET`. The id is public: it finds the one record that a key is compared with, stands in
logs and lists, and revokes. Of the secret only a salted hash is kept. It is 256 random bits, which nobody can
try out, so the hash is a fast one: a slow one guards what people choose, and would cost every search its
time.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from vicinal.indexer.storage.files import SealedFile, file_lock, storing, write_sealed
from vicinal.indexer.storage.gallery_names import folder_of, require_name
from vicinal.models.configs.sealed_json import BrokenSealError
from vicinal.service.errors import KeyStoreError, RequestError
from vicinal.service.settings import Scope, Settings

__all__ = ["Grant", "KeyRecord", "KeyStore", "Keyring"]

_KEY = re.compile("vic_([a-z0-9]{12})_([A-Za-z0-9_-]{43})")
_ID_BYTES, _SECRET_BYTES, _SALT_BYTES = 6, 32, 16
_LONGEST_NAME = 64
_PATIENCE = 10.0
# Compared with where no record has the id, so that the time tells nothing of that.
_NOBODY = "0" * 64


class KeyRecord(BaseModel):
    """What is kept of a key.

    Attributes:
        id: Its public part.
        name: What it is called in lists and logs.
        scopes: What it may do.
        galleries: Names or aliases of the only galleries that it is for; None for all.
        salt: Hex.
        digest: BLAKE2b of the secret with the salt as key, hex.
        expires_at: When it ends; None for never.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    name: str
    scopes: tuple[Scope, ...]
    galleries: tuple[str, ...] | None = None
    salt: str = Field(repr=False)
    digest: str = Field(repr=False)
    created_at: datetime
    expires_at: datetime | None = None

    @property
    def is_expired(self) -> bool:
        """Whether it ended."""
        return self.expires_at is not None and self.expires_at <= datetime.now(UTC)


class KeyStore:
    """Keys in a sealed file that only its owner reads; any number of processes may read and change it.

    The file stays when the last key is revoked, and as long as it is there a server asks for keys.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = SealedFile(path, _parsed)

    @property
    def is_begun(self) -> bool:
        """Whether a key was ever made."""
        return self.path.exists()

    def all(self) -> dict[str, KeyRecord]:
        """Records by id, oldest first; the file is read again only after it was replaced.

        Raises:
            KeyStoreError: The file is damaged.
        """
        try:
            return self._file.read()
        except FileNotFoundError:
            return {}
        except (OSError, BrokenSealError) as error:
            raise KeyStoreError(
                f"the keys in '{self.path}' are damaged, and none is accepted: restore the file from a "
                "backup, or remove it and make new keys"
            ) from error

    def create(
        self,
        name: str,
        scopes: Sequence[Scope],
        *,
        galleries: Sequence[str] | None = None,
        expires_at: datetime | None = None,
    ) -> tuple[KeyRecord, str]:
        """Make a key.

        Args:
            name: What it is called; of keys that are there one a name.
            scopes: What it may do, at least one of them.
            galleries: Names or aliases of the only galleries that it is for; None for all.
            expires_at: When it ends; None for never.

        Returns:
            Its record, and the key itself, which is kept nowhere.

        Raises:
            RequestError: The name is taken or none, or no scope is given.
            GalleryNameError: No gallery can have one of the names.
            KeyStoreError: The file is damaged.
            StorageError: The disk refuses.
        """
        if not name.isprintable() or not 1 <= len(name) <= _LONGEST_NAME:
            raise RequestError(f"a key needs a name of 1 to {_LONGEST_NAME} characters on one line")
        if not scopes or galleries == []:
            raise RequestError("a key needs at least one scope, and at least one gallery or all")
        for gallery in galleries or ():
            require_name(gallery)
        key_id, secret = secrets.token_hex(_ID_BYTES), secrets.token_urlsafe(_SECRET_BYTES)
        salt = secrets.token_hex(_SALT_BYTES)
        record = KeyRecord(
            id=key_id,
            name=name,
            scopes=tuple(dict.fromkeys(scopes)),
            galleries=None if galleries is None else tuple(dict.fromkeys(galleries)),
            salt=salt,
            digest=_digest(secret, salt),
            created_at=datetime.now(UTC),
            expires_at=expires_at,
        )
        with self._changing() as records:
            if name in {one.name for one in records.values()}:
                raise RequestError(f"there is a key '{name}': revoke it, or choose another name")
            self._write({**records, key_id: record})
        return record, f"vic_{key_id}_{secret}"

    def revoke(self, which: str) -> KeyRecord:
        """Take a key away, from the next request on.

        Args:
            which: Its name or id.

        Raises:
            RequestError: There is none.
            KeyStoreError: The file is damaged.
            StorageError: The disk refuses.
        """
        with self._changing() as records:
            found = next((one for one in records.values() if which in (one.id, one.name)), None)
            if found is None:
                known = ", ".join(one.name for one in records.values()) or "none at all"
                raise RequestError(f"there is no key '{which}', only {known}")
            self._write({key_id: one for key_id, one in records.items() if key_id != found.id})
        return found

    def find(self, key: str) -> KeyRecord | None:
        """The record of a key; None where it is no valid one.

        Raises:
            KeyStoreError: The file is damaged.
        """
        parts = _KEY.fullmatch(key)
        records = self.all()
        if parts is None:
            return None
        record = records.get(parts[1])
        known = _NOBODY if record is None else record.digest
        is_right = hmac.compare_digest(known, _digest(parts[2], "00" if record is None else record.salt))
        return record if is_right and record is not None and not record.is_expired else None

    @contextmanager
    def _changing(self) -> Iterator[dict[str, KeyRecord]]:
        with storing(f"'{self.path}'"):
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        busy = f"'{self.path}' is being changed by a process that hangs"
        with file_lock(self.path.with_suffix(".lock"), busy, patience=_PATIENCE):
            yield self.all()

    def _write(self, records: dict[str, KeyRecord]) -> None:
        listed = [one.model_dump(mode="json") for one in records.values()]
        write_sealed(self.path, json.dumps({"keys": listed}))
        with storing(f"'{self.path}'"):
            self.path.chmod(0o600)


class Grant(BaseModel):
    """What a key may do.

    Attributes:
        name: Of whom logs speak; it tells nothing of the key.
        galleries: Names or aliases of the only galleries that it is for; None for all.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    scopes: tuple[Scope, ...]
    galleries: tuple[str, ...] | None = None

    def covers(self, root: Path, gallery: str) -> bool:
        """Whether it is for a gallery.

        Args:
            root: Folder of the galleries.
            gallery: Name or alias; an alias stands for what it stands for now.
        """
        if self.galleries is None:
            return True
        return _stands_for(root, gallery) in {_stands_for(root, one) for one in self.galleries}


class Keyring:
    """All keys that a server knows: those of its settings and those of its store.

    Args:
        settings: Whose keys.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.store = KeyStore(settings.keys_path)

    @property
    def is_asked_for(self) -> bool:
        """Whether calls need a key."""
        return bool(self._settings.api_keys) or (self._settings.stored_keys and self.store.is_begun)

    def find(self, key: str) -> Grant | None:
        """What a key may do; None where it is no valid one.

        Raises:
            KeyStoreError: The store is damaged.
        """
        granted = None
        # Every key is compared, so that the time taken does not tell how much of one was right.
        for known, scopes in self._settings.api_keys.items():
            if hmac.compare_digest(known.encode(), key.encode()):
                granted = Grant(
                    name=f"settings {hashlib.sha256(key.encode()).hexdigest()[:16]}", scopes=scopes
                )
        if granted is not None or not key or not self._settings.stored_keys:
            return granted
        record = self.store.find(key)
        if record is None:
            return None
        return Grant(name=f"{record.name} {record.id}", scopes=record.scopes, galleries=record.galleries)


def _parsed(content: bytes) -> dict[str, KeyRecord]:
    records = [KeyRecord.model_validate(one) for one in json.loads(content)["keys"]]
    return {one.id: one for one in records}


def _digest(secret: str, salt: str) -> str:
    return hashlib.blake2b(secret.encode(), key=bytes.fromhex(salt), digest_size=32).hexdigest()


def _stands_for(root: Path, gallery: str) -> str:
    return folder_of(root, gallery).name
