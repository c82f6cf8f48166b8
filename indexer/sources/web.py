"""Files on the web: read with limits on size, time and tries; for strangers from public addresses only."""

from __future__ import annotations

import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import httpcore
import httpx

from vicinal.indexer.errors import DownloadError
from vicinal.models.decoding import DecodeLimits
from vicinal.models.errors import ImageTooLargeError, NotAnImageError

_PORTS = frozenset({80, 443})
_MOST_REDIRECTS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_TRANSIENT_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
_TRANSIENT_ERRORS = (httpcore.TimeoutException, httpcore.NetworkError, httpcore.RemoteProtocolError)
# No longer than that for one answer of a server that has stopped talking.
_LONGEST_SILENCE = 10.0
_HEADERS = [(b"User-Agent", b"vicinal"), (b"Accept", b"image/*"), (b"Accept-Encoding", b"identity")]
# Public by their numbers, and yet what machines of two clouds ask for their secrets; and what is translated.
_NOT_PUBLIC = tuple(map(ipaddress.ip_network, ("168.63.129.16/32", "192.0.0.0/24", "64:ff9b:1::/48")))
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


@dataclass(frozen=True)
class WebAccess:
    """Limits of what may be read of the web, and at what cost."""

    # Refuse buckets, addresses that are not public, and ports other than 80 and 443: for addresses that
    # others name
    public_only: bool = True
    seconds: float = 60.0  # Longest time for one file, all tries together
    tries: int = 3  # Most tries when a server fails or does not answer
    # Where data sets of the hub of Hugging Face are kept; in the cache of its own programs when None
    hub: Path | None = None


# For addresses that strangers name, and for those that whoever runs the program names.
PUBLIC = WebAccess()
ANYWHERE = WebAccess(public_only=False)


class WebClient:
    """Reads files by http and https; safe for several threads."""

    def __init__(self, access: WebAccess | None = None) -> None:
        self.access = access or WebAccess()
        self._pool = httpcore.ConnectionPool(
            ssl_context=ssl.create_default_context(),
            network_backend=_Backend(public_only=self.access.public_only),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.close()

    def read(self, address: str, limits: DecodeLimits) -> bytes:
        """Read one file; no more of it than the limits allow lies in memory."""
        deadline = _Deadline(self.access.seconds)
        for again in range(self.access.tries):
            try:
                return self._get(_parsed(address), limits, deadline)
            except _TRANSIENT_ERRORS as error:
                reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            except _TransientStatusError as error:
                reason = str(error)
            if not deadline.left:
                break
            time.sleep(min(0.5 * 2**again, deadline.left))
        raise DownloadError(f"'{address}' cannot be read: {reason}")

    def _get(self, url: httpx.URL, limits: DecodeLimits, deadline: _Deadline) -> bytes:
        for _ in range(_MOST_REDIRECTS + 1):
            self._check(url)
            target = httpcore.URL(
                scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
            )
            headers = [(b"Host", url.netloc), *_HEADERS]
            timeouts = {"connect": deadline, "read": deadline, "write": deadline, "pool": deadline.wait}
            try:
                with self._pool.stream(
                    "GET", target, headers=headers, extensions={"timeout": timeouts}
                ) as response:
                    if response.status not in _REDIRECTS:
                        return _body(response, url, limits)
                    url = _parsed(_header(response, b"location"), url)
            except (httpcore.LocalProtocolError, httpcore.UnsupportedProtocol) as error:
                raise DownloadError(f"'{url}' cannot be read: {error}") from error
        raise DownloadError(f"'{url}' is redirected more than {_MOST_REDIRECTS} times")

    def _check(self, url: httpx.URL) -> None:
        if url.scheme not in ("http", "https") or not url.raw_host:
            raise DownloadError(f"'{url}' is no address of http or https")
        port = url.port or {"http": 80, "https": 443}[url.scheme]
        if self.access.public_only and port not in _PORTS:
            raise DownloadError(f"port {port} of '{url}' must not be read, only 80 and 443")


def is_public(address: str) -> bool:
    """Tell whether a numeric address, maybe with a zone, is one of the public internet."""
    found = ipaddress.ip_address(address.split("%")[0])
    inner: ipaddress.IPv4Address | None = None
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour or (found.teredo or (None, None))[1]
        if found in _NAT64:
            inner = ipaddress.IPv4Address(found.packed[-4:])
        if found.is_site_local:
            return False
    if inner is not None:
        return is_public(str(inner))
    is_special = found.is_multicast or found.is_reserved or any(found in one for one in _NOT_PUBLIC)
    return found.is_global and not is_special


class _Deadline:
    """A point in time at which a file must be there, whatever its server sends until then."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds until then, not below 0."""
        return max(0.0, self._end - time.monotonic())

    @property
    def wait(self) -> float:
        """Longest wait for the next bytes of a server."""
        if not self.left:
            raise httpcore.ReadTimeout("it takes too long")
        return min(_LONGEST_SILENCE, self.left)


# httpcore hands what is given as a time to its backend, as it is: it knows no time for all of an answer.
_Time = Any


class _Stream(httpcore.NetworkStream):
    """A connection each of whose reads and writes ends with the deadline of the request that it is for."""

    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: _Time = None) -> bytes:
        return self._stream.read(max_bytes, timeout.wait)

    def write(self, buffer: bytes, timeout: _Time = None) -> None:
        self._stream.write(buffer, timeout.wait)

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: _Time = None
    ) -> httpcore.NetworkStream:
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, timeout.wait))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _Backend(httpcore.SyncBackend):
    """Connects to the addresses of a name that were checked, so that it cannot mean others a moment later."""

    def __init__(self, *, public_only: bool) -> None:
        self._public_only = public_only

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: _Time = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        """Connect to the first address of a host that answers."""
        addresses = _addresses(host, port, timeout)
        if self._public_only and not all(map(is_public, addresses)):
            raise DownloadError(f"'{host}' is not on the public internet, so that it must not be read")
        for left, address in enumerate(addresses, start=1 - len(addresses)):
            try:
                stream = super().connect_tcp(address, port, timeout.wait, local_address, socket_options)
                return _Stream(stream)
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                if not left:
                    raise
        raise httpcore.ConnectError(f"'{host}' has no address")

    def connect_unix_socket(self, path: str, *_: object, **__: object) -> httpcore.NetworkStream:
        """Refuse sockets of this machine."""
        raise DownloadError(f"'{path}' must not be read")


def _addresses(host: str, port: int, deadline: _Deadline) -> list[str]:
    """All addresses of a name; who answers for names takes his time, too."""
    found: list[str] = []
    problems: list[Exception] = []

    def ask() -> None:
        try:
            listed = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            found.extend(dict.fromkeys(str(one[4][0]) for one in listed))
        except (OSError, ValueError) as error:
            problems.append(error)

    # The system's call knows no time. A thread that still waits keeps nobody from ending.
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(deadline.left)
    if problems and not isinstance(problems[0], OSError):
        # A name that cannot be one, such as with a part of more than 63 characters.
        raise DownloadError(f"'{host}' is no name of a server: {problems[0]}")
    if problems:
        raise httpcore.ConnectError(f"'{host}' has no address: {problems[0]}") from problems[0]
    if not found:
        raise httpcore.ConnectTimeout(f"who knows the address of '{host}' takes too long")
    return found


class _TransientStatusError(Exception):
    pass


def _parsed(address: str, base: httpx.URL | None = None) -> httpx.URL:
    try:
        return httpx.URL(address) if base is None else base.join(address)
    except (httpx.InvalidURL, ValueError) as error:
        raise DownloadError(f"'{address}' is no address: {error}") from error


def _header(response: httpcore.Response, name: bytes) -> str:
    found = [value for key, value in response.headers if key.lower() == name]
    return found[0].decode("latin-1") if found else ""


def _body(response: httpcore.Response, url: httpx.URL, limits: DecodeLimits) -> bytes:
    if response.status in _TRANSIENT_STATUSES:
        raise _TransientStatusError(f"status {response.status}")
    if response.status != 200:
        raise DownloadError(f"'{url}' cannot be read: status {response.status}")
    said = _header(response, b"content-length")
    require_within(int(said) if said.isdecimal() else 0, limits)
    parts, n_bytes = [], 0
    for part in response.iter_stream():
        parts.append(part)
        n_bytes += len(part)
        require_within(n_bytes, limits)
    if not n_bytes:
        raise NotAnImageError("the file is empty")
    return b"".join(parts)


def require_within(n_bytes: int, limits: DecodeLimits) -> None:
    """Refuse a file that is too large, whatever more of it would come."""
    if n_bytes > limits.max_bytes:
        raise ImageTooLargeError(f"more than {limits.max_bytes:,} bytes, the most that are accepted")
