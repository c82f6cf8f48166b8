"""Clients: their API keys with the scopes of each, and the rate that they are held to."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Callable

from fastapi import HTTPException, Request
from fastapi.concurrency import run_in_threadpool

from vicinal.service.errors import RequestError
from vicinal.service.http.state import State, StateDependency
from vicinal.service.settings import Scope, Settings

__all__ = ["check_exposure", "limit_rate", "require_scope"]

_LIMITED_PATHS = "/v1/"


def require_scope(scope: Scope) -> Callable[[Request, State], None]:
    """A dependency that lets a request through when its key has a scope; without keys, always.

    The key comes as `Authorization: Bearer KEY` or `X-API-Key: KEY`.
    """

    def check(request: Request, state: StateDependency) -> None:
        if not state.settings.api_keys:
            return
        granted = _scopes_of(_key_in(request), state.settings)
        if granted is None:
            raise HTTPException(
                401, "send a valid API key as a bearer token", headers={"WWW-Authenticate": "Bearer"}
            )
        if scope not in granted:
            raise HTTPException(403, f"this API key lacks the scope '{scope}'")

    return check


async def limit_rate(request: Request, state: StateDependency) -> None:
    """A dependency that holds every client to the rate limit, if there is one."""
    if state.rate_limit is not None and request.url.path.startswith(_LIMITED_PATHS):
        await run_in_threadpool(state.rate_limit.check, _client_of(request, state.settings))


def check_exposure(settings: Settings) -> None:
    """Refuse to listen beyond this machine without API keys.

    Raises:
        RequestError: The host is not a loopback address and there are no keys.
    """
    if settings.api_keys or settings.host == "localhost":
        return
    try:
        is_loopback = ipaddress.ip_address(settings.host).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        raise RequestError(
            f"without API keys the server listens on loopback only, not on {settings.host}: "
            'set VICINAL_API_KEYS=\'{"KEY": ["search"]}\''
        )


def _client_of(request: Request, settings: Settings) -> str:
    """The known API key, hashed, since Redis need not know it; else the address."""
    key = _key_in(request)
    if key in settings.api_keys:
        return "key " + hashlib.sha256(key.encode()).hexdigest()[:16]
    return "address " + (request.client.host if request.client else "unknown")


def _key_in(request: Request) -> str:
    """The API key that a request comes with, or an empty text."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else request.headers.get("x-api-key", "")


def _scopes_of(key: str, settings: Settings) -> tuple[Scope, ...] | None:
    granted = None
    # Every key is compared, so that the time taken does not tell how much of one was right.
    for known, scopes in settings.api_keys.items():
        if hmac.compare_digest(known.encode(), key.encode()):
            granted = scopes
    return granted
