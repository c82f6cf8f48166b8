"""Clients: their API keys with the scopes of each, and the rate that they are held to."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress

from fastapi import Request

from vicinal.service.errors import RequestError
from vicinal.service.settings import Scope, Settings

__all__ = ["check_exposure", "client_of", "granted_scopes"]


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


def client_of(request: Request, settings: Settings) -> str:
    """The known API key, hashed, since Redis need not know it; else the address."""
    key = _key_in(request)
    if key in settings.api_keys:
        return "key " + hashlib.sha256(key.encode()).hexdigest()[:16]
    return "address " + (request.client.host if request.client else "unknown")


def _key_in(request: Request) -> str:
    """The API key that a request comes with, or an empty text."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else request.headers.get("x-api-key", "")


def granted_scopes(request: Request, settings: Settings) -> tuple[Scope, ...] | None:
    """What the API key of a request may do; None where it has no valid one.

    The key comes as `Authorization: Bearer KEY` or `X-API-Key: KEY`.
    """
    key, granted = _key_in(request), None
    # Every key is compared, so that the time taken does not tell how much of one was right.
    for known, scopes in settings.api_keys.items():
        if hmac.compare_digest(known.encode(), key.encode()):
            granted = scopes
    return granted
