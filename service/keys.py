"""API keys that operators make: who may do what, in which galleries, until when.

A key is `vic_ID_SECRET`. Its public id finds its record. Of the secret, 256 random bits, a salted hash is
kept: a fast one, as nobody can try them out and every search pays for it.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import secrets
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, Field

from vicinal.calibration.advice import advise
from vicinal.calibration.frozen import Frozen
from vicinal.indexer.errors import IndexerError, StorageError
from vicinal.indexer.state import DamagedRowError, Rows, server_state
from vicinal.indexer.state.schema import facts, keys
from vicinal.indexer.state.state import Cached
from vicinal.indexer.storage.gallery_names import folder_of, require_name
from vicinal.service.errors import KeyStoreError, RequestError
from vicinal.service.settings import Scope, Settings

logger = logging.getLogger(__name__)
_KEY = re.compile("vic_([a-z0-9]{12})_([A-Za-z0-9_-]{43})")
_ID_BYTES, _SECRET_BYTES, _SALT_BYTES = 6, 32, 16
_LONGEST_NAME = 64
_AGAIN = advise(
    "bring api_keys into the settings, make keys by {create_key()}, or ask for none any more by {keys_off()}"
)
# Compared with where no record has the id, so that the time tells nothing of that.
_NOBODY = "0" * 64


class KeyRecord(Frozen):
    """Record of a key; `galleries` None is for all; `digest` is BLAKE2b of the secret, the salt as key."""

    id: str
    name: str
    scopes: tuple[Scope, ...]
    galleries: tuple[str, ...] | None = None
    folders: tuple[str, ...] = ()
    salt: str = Field(repr=False)
    digest: str = Field(repr=False)
    created_at: datetime
    expires_at: datetime | None = None

    @property
    def is_expired(self) -> bool:
        """Tell whether it ended."""
        return self.expires_at is not None and self.expires_at <= datetime.now(UTC)


class KeyStore:
    """Keys of a data folder; once there was one, a server asks until `turn_off`."""

    def __init__(self, data_dir: Path) -> None:
        self._state = server_state(data_dir)
        self._cached = Cached(self._state, _read)
        self._was_on = False

    @property
    def is_on(self) -> bool:
        """Tell whether keys are asked for: one was made, and nobody has turned them off since."""
        with suppress(KeyStoreError):
            return bool(self._kept().on)
        return True

    def all(self) -> dict[str, KeyRecord]:
        """Records by id, oldest first, without damaged ones; read again only after a change."""
        return self._kept().records

    @property
    def problem(self) -> str | None:
        """Sentence on keys that are not accepted, as they are damaged; None where all are."""
        try:
            damaged = self._kept().damaged
        except KeyStoreError as error:
            return str(error)
        return f"API keys are damaged, and no keys any more: {', '.join(damaged)}" if damaged else None

    def _kept(self) -> _Kept:
        try:
            kept = self._cached.get()
        except IndexerError as error:
            raise KeyStoreError(f"the stored keys cannot be read, and none is accepted: {error}") from error
        if kept.on is None and self._was_on:
            raise KeyStoreError("keys were on, and are gone, so that none is accepted: ", _AGAIN)
        self._was_on = bool(kept.on)
        return kept

    def remember(self) -> None:
        """Note that keys are on."""
        if not self._kept().on:
            with self._state.changing() as rows:
                _turn(rows, on=True)

    def turn_off(self) -> int:
        """Ask for no key from now on, until another is made; how many are no keys any more."""
        with self._state.changing() as rows:
            _turn(rows, on=False)
            return rows.remove(keys)

    def create(
        self,
        name: str,
        scopes: Sequence[Scope],
        *,
        galleries: Sequence[str] | None = None,
        folders: Sequence[str] = (),
        expires_at: datetime | None = None,
    ) -> tuple[KeyRecord, str]:
        """Make a key."""
        if not name.isprintable() or not 1 <= len(name) <= _LONGEST_NAME:
            raise RequestError(f"a key needs a name of 1 to {_LONGEST_NAME} characters on one line")
        if not scopes or galleries == []:
            raise RequestError("a key needs at least one scope, and at least one gallery or all")
        for gallery in galleries or ():
            require_name(gallery)
        for folder in folders:
            if not folder or Path(folder).is_absolute() or ".." in Path(folder).parts:
                raise RequestError(f"'{folder}' is no folder below sources_dir: name it as seen from there")
        key_id, secret = secrets.token_hex(_ID_BYTES), secrets.token_urlsafe(_SECRET_BYTES)
        salt = secrets.token_hex(_SALT_BYTES)
        record = KeyRecord(
            id=key_id,
            name=name,
            scopes=tuple(dict.fromkeys(scopes)),
            galleries=None if galleries is None else tuple(dict.fromkeys(galleries)),
            folders=tuple(dict.fromkeys(folders)),
            salt=salt,
            digest=_digest(secret, salt),
            created_at=datetime.now(UTC),
            expires_at=expires_at,
        )
        with self._state.changing() as rows:
            if name in {one.name for one in _read(rows).records.values()}:
                raise RequestError(f"there is a key '{name}': revoke it, or choose another name")
            _turn(rows, on=True)
            rows.add(keys, {"id": key_id, "content": record.model_dump_json()})
        return record, f"vic_{key_id}_{secret}"

    def revoke(self, which: str) -> KeyRecord:
        """Take a key away, from the next request on."""
        with self._state.changing() as rows:
            records = _read(rows).records
            found = next((one for one in records.values() if which in (one.id, one.name)), None)
            if found is None:
                known = ", ".join(one.name for one in records.values()) or "none at all"
                raise RequestError(f"there is no key '{which}', only {known}")
            rows.remove(keys, keys.c.id == found.id)
        return found

    def find(self, key: str) -> KeyRecord | None:
        """The record of a key; None where it is no valid one."""
        parts = _KEY.fullmatch(key)
        records = self.all()
        if parts is None:
            return None
        record = records.get(parts[1])
        known = _NOBODY if record is None else record.digest
        is_right = hmac.compare_digest(known, _digest(parts[2], "00" if record is None else record.salt))
        return record if is_right and record is not None and not record.is_expired else None


class Grant(BaseModel, frozen=True):
    """Rights of a key: its only galleries, and folders below `sources_dir`; None for all."""

    name: str
    scopes: tuple[Scope, ...]
    galleries: tuple[str, ...] | None = None
    folders: tuple[str, ...] | None = None

    def may(self, scope: Scope) -> bool:
        """Tell whether it has a scope; who runs a gallery may also search it, and not write to it."""
        return scope in self.scopes or (scope == "search" and "admin" in self.scopes)

    @property
    def is_trusted(self) -> bool:
        """Tell whether what it says of searches counts for others: it may do more than search."""
        return self.may("write") or self.may("admin")

    def covers(self, root: Path, gallery: str) -> bool:
        """Tell whether it is for a gallery."""
        if self.galleries is None:
            return True
        return _stands_for(root, gallery) in {_stands_for(root, one) for one in self.galleries}


class Keyring:
    """All keys that a server knows: of its settings, of its store, and one that it lends itself."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.store = KeyStore(settings.data_dir)
        self._offered: dict[bytes, Grant] = {}
        self._lent: dict[bytes, Grant] = {}

    @property
    def is_asked_for(self) -> bool:
        """Tell whether calls need a key; those of a server that strangers reach do in any case."""
        settings = self._settings
        return bool(
            settings.is_exposed
            or settings.api_keys
            or self._offered
            or self._lent
            or (settings.stored_keys and self.store.is_on)
        )

    @property
    def problem(self) -> str | None:
        """Reason why stored keys are not accepted; None where all are."""
        return self.store.problem if self._settings.stored_keys else None

    def offer(self, grant: Grant) -> str:
        """A token that a page of this process gets a key for, once; from then on calls need a key."""
        token = secrets.token_urlsafe(_SECRET_BYTES)
        self._offered[_fingerprint(token)] = grant
        return token

    def redeem(self, token: str) -> str | None:
        """The key for a token, which is of no use afterwards; None for one that is none or was used."""
        grant = self._offered.get(_fingerprint(token))
        if grant is None:
            return None
        key = secrets.token_urlsafe(_SECRET_BYTES)
        # In this order: there is no moment without any.
        self._lent[_fingerprint(key)] = grant
        return key if self._offered.pop(_fingerprint(token), None) is not None else None

    def find(self, key: str) -> Grant | None:
        """Rights of a key; None where it is no valid one."""
        granted = None
        # Every key is compared, so that the time taken does not tell how much of one was right.
        for known, scopes in self._settings.api_keys.items():
            if hmac.compare_digest(known.encode(), key.encode()):
                granted = Grant(
                    name=f"settings {hashlib.sha256(key.encode()).hexdigest()[:16]}", scopes=scopes
                )
        granted = granted or self._lent.get(_fingerprint(key))
        if granted is not None or not key or not self._settings.stored_keys:
            return granted
        record = self.store.find(key)
        if record is None:
            return None
        return Grant(
            name=f"{record.name} {record.id}",
            scopes=record.scopes,
            galleries=record.galleries,
            folders=None if record.galleries is None and not record.folders else record.folders,
        )


def check_exposure(settings: Settings) -> Keyring:
    """Refuse to serve strangers without keys; that there are keys is noted for later starts."""
    keyring = Keyring(settings)
    if settings.api_keys or (settings.stored_keys and keyring.store.is_on):
        if not settings.api_keys and not keyring.store.all():
            raise KeyStoreError("keys are on, and there is none, so that none is accepted: ", _AGAIN)
        # A data folder that is read only holds back nothing else either.
        with suppress(StorageError, KeyStoreError):
            keyring.store.remember()
        return keyring
    if "*" in settings.cors_origins:
        raise RequestError("without API keys cors_origins = '*' lets every site change everything: name them")
    if settings.is_exposed:
        raise RequestError(
            f"without API keys the server listens on loopback only, not on {settings.host}: "
            "make one by `vicinal keys create NAME --scope search`, or set "
            'VICINAL_API_KEYS=\'{"KEY": ["search"]}\''
        )
    return keyring


def key_id(key: str) -> str | None:
    """The public part of what looks like a key that was made here."""
    parts = _KEY.fullmatch(key)
    return None if parts is None else parts[1]


class _Kept(NamedTuple):
    records: dict[str, KeyRecord]
    damaged: tuple[str, ...]
    # None: it was never said.
    on: bool | None


def _read(rows: Rows) -> _Kept:
    damaged = list[str]()

    def tell(error: DamagedRowError) -> None:
        logger.warning("%s: it is no key", error)
        damaged.append(error.row["id"])

    found = [KeyRecord.model_validate_json(row.content) for row in rows.all(keys, on_damage=tell)]
    # What is not as it was written says nothing, and may have said that keys are on.
    said = rows.values(facts.c.value, facts.c.name == "keys")
    whole = rows.all(facts, facts.c.name == "keys", on_damage=lambda _: None)
    on = None if not said else not whole or whole[0].value == "on"
    found.sort(key=lambda one: (one.created_at, one.id))
    return _Kept({one.id: one for one in found}, tuple(damaged), on)


def _turn(rows: Rows, *, on: bool) -> None:
    rows.put(facts, {"name": "keys", "value": "on" if on else "off"})


def _fingerprint(secret: str) -> bytes:
    return hashlib.blake2b(secret.encode(), digest_size=32).digest()


def _digest(secret: str, salt: str) -> str:
    return hashlib.blake2b(secret.encode(), key=bytes.fromhex(salt), digest_size=32).hexdigest()


def _stands_for(root: Path, gallery: str) -> str:
    return folder_of(root, gallery).name
