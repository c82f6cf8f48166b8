"""Guard: what a request says of the page that made it, before its body is read, and what an answer allows."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vicinal.service.http.audit import AuditLog, note
from vicinal.service.http.metrics import Metrics
from vicinal.service.http.problems import problem
from vicinal.service.keys import Keyring
from vicinal.service.settings import Settings, is_loopback

# What the pages of configured origins may send, and what they may read beside the body.
REQUEST_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
REQUEST_HEADERS = ("Authorization", "Content-Type", "Last-Event-ID", "X-API-Key")
EXPOSED_HEADERS = ("Location", "Retry-After")

# What is no page loads nothing. No answer is shown inside of another site.
NOTHING = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
HEADERS = {
    "Content-Security-Policy": NOTHING,
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_READING = frozenset({"GET", "HEAD", "OPTIONS"})
# Headers that several parts of the service read. Of two, each would take the one that it finds first.
_ONCE = (
    "authorization",
    "content-length",
    "content-type",
    "origin",
    "sec-fetch-site",
    "transfer-encoding",
    "x-api-key",
)
_ANY = "*"


class Origins:
    """ASGI middleware that refuses other names of the server (421), and changes from other sites (403).

    A page can point its own name at this machine and then reads every answer. Without API keys only loopback,
    the address that was connected to and `allowed_hosts` pass; with keys any name, unless some are set.
    Searches of another origin (`Sec-Fetch-Site`, `Origin`) are refused too, since each costs an embedding.
    """

    def __init__(
        self, app: ASGIApp, settings: Settings, metrics: Metrics, strangers: AuditLog, keyring: Keyring
    ) -> None:
        self.app = app
        self._hosts = {settings.host, *settings.allowed_hosts}
        self._takes_any_with_keys = not settings.allowed_hosts
        self._keyring = keyring
        self._origins = frozenset(settings.cors_origins)
        self._metrics = metrics
        self._strangers = strangers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        if refusal is not None and refusal.status_code == 403:
            await note(self._strangers, "a page of another origin", None, scope, 403)
        await (self.app if refusal is None else refusal)(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        # A browser always sends one.
        for host in hosts:
            if len(hosts) > 1 or not self._is_served(_name_of(host), scope):
                return self._refused(
                    421, "misdirected", f"this server is not asked for as '{host}': see allowed_hosts"
                )
        twice = next((name for name in _ONCE if len(headers.getlist(name)) > 1), None)
        if twice is not None:
            return self._refused(400, "invalid-request", f"the request has two headers '{twice}': send one")
        if scope["method"] in _READING or not self._is_from_elsewhere(headers):
            return None
        return self._refused(403, "cross-site", "a page of another origin may not do this: see cors_origins")

    def _is_served(self, name: str | None, scope: Scope) -> bool:
        if name is None:
            return False
        connected_to = (scope.get("server") or ("",))[0]
        if is_loopback(name) or name == connected_to or _is_among(name, self._hosts):
            return True
        # Without keys nobody but this machine is served, whoever the name belongs to.
        return self._takes_any_with_keys and self._keyring.is_asked_for

    def _is_from_elsewhere(self, headers: Headers) -> bool:
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if self._origins & {origin, _ANY}:
            return False
        if origin == "null" or site is not None:
            return origin == "null" or site not in ("same-origin", "none")
        # The scheme is not compared: a proxy may have taken TLS off.
        return origin is not None and _host_of(origin) != headers.get("host", "").lower()

    def _refused(self, status: int, kind: str, detail: str) -> Response:
        self._metrics.record_problem(kind)
        return problem(status, kind, detail)


class AnswerHeaders:
    """ASGI application that adds to answers what browsers may do with them, and answers HEAD as GET."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        is_head = scope["type"] == "http" and scope["method"] == "HEAD"

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                await send(message)
                if is_head:
                    await send({"type": "http.response.body", "body": b"", "more_body": False})
            elif not is_head:
                await send(message)

        if is_head:
            scope["method"] = "GET"
        await self.app(scope, receive, send_with_headers)


def _host_of(origin: str) -> str | None:
    """Name and port in an `Origin` header; None where it is no address."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def _name_of(host: str) -> str | None:
    """The name in a `Host` header, without port; None where it has none."""
    try:
        name = urlsplit(f"//{host}").hostname
    except ValueError:
        return None
    return name.removesuffix(".") if name and not set(host) & set("/?#@\\ ") else None


def _is_among(name: str, hosts: Collection[str]) -> bool:
    if _ANY in hosts or name in hosts:
        return True
    return any(host.startswith("*.") and name.endswith(host[1:]) for host in hosts)
