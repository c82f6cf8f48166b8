"""Clients: their API keys with the scopes of each, and the rate that they are held to."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from fastapi import Request

from vicinal.indexer.errors import StorageError
from vicinal.service.errors import JobNotFoundError, KeyStoreError, RequestError
from vicinal.service.http.access import call_of
from vicinal.service.jobs.records import Job
from vicinal.service.keys import Grant, Keyring
from vicinal.service.problem_types import PREFIX, told_to_some
from vicinal.service.settings import Settings


def check_exposure(settings: Settings) -> Keyring:
    """Refuse to serve strangers without keys; that there are keys is noted for later starts."""
    keyring = Keyring(settings)
    is_kept = settings.stored_keys and keyring.store.is_on
    if settings.api_keys or is_kept:
        if not settings.api_keys and not keyring.store.path.exists():
            keyring.store.all()
        # A data folder that is read only holds back nothing else either.
        with suppress(StorageError):
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


def client_of(request: Request, keyring: Keyring) -> str:
    """The name of a known API key, which tells nothing of it; else the address."""
    grant = keyring.find(key_in(request))
    if grant is not None:
        return f"key {grant.name}"
    return "address " + (request.client.host if request.client else "unknown")


def key_in(request: Request) -> str:
    """The API key of a request, `Authorization: Bearer KEY` or `X-API-Key: KEY`, or an empty text."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else request.headers.get("x-api-key", "")


def still_holds(request: Request, keyring: Keyring) -> bool:
    """Tell whether what let a call in would let it in now: its key is not revoked, over or another one."""
    if not keyring.is_asked_for:
        return True
    try:
        return keyring.find(key_in(request)) == call_of(request.scope).grant is not None
    except KeyStoreError:
        return False


def may_see(request: Request, root: Path, gallery: str) -> bool:
    """Tell whether a call may learn of a gallery that its address does not name."""
    grant = call_of(request.scope).grant
    return grant is None or grant.covers(root, gallery)


def grant_sees_all(grant: Grant | None, keyring: Keyring) -> bool:
    """Tell whether a key is for all galleries; who has shown none while keys are on is a stranger."""
    return not keyring.is_asked_for if grant is None else grant.galleries is None


def sees_all(request: Request) -> bool:
    """Tell whether a call may see all galleries, and learn of files and processes."""
    return call_of(request.scope).in_full


def seen_by(request: Request, root: Path, job: Job) -> Job:
    """A job as a key may see it, which it does not where it is not for its gallery."""
    if not may_see(request, root, job.gallery):
        raise JobNotFoundError(job.id)
    return shown_to(request, job)


def shown_to(request: Request, job: Job) -> Job:
    """A job, without the process that works on it and paths of the server for a key of some galleries."""
    if sees_all(request):
        return job
    kind = (job.problem_type or "").removeprefix(PREFIX)
    problem = None if job.problem is None else told_to_some(kind, job.problem)
    return job.model_copy(update={"worker": None, "problem": problem})
