"""Whole requests, head and body, as `benchmarks.load.client` sends them."""

from __future__ import annotations

__all__ = ["LIVEZ", "image_requests", "search_request"]

LIVEZ = b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


def image_requests(gallery: str, images: list[bytes]) -> list[bytes]:
    """A search for each image, as a form."""
    head = b'--x\r\nContent-Disposition: form-data; name="image"; filename="a"\r\n\r\n'
    kind = "multipart/form-data; boundary=x"
    return [search_request(gallery, head + one + b"\r\n--x--\r\n", kind) for one in images]


def search_request(gallery: str, body: bytes, kind: str) -> bytes:
    """A search with a body of one media type."""
    head = f"POST /v1/galleries/{gallery}/search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
