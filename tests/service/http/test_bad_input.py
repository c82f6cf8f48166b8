"""Bad input over HTTP: each has its status and stable type, and the next search is answered as usual."""

from __future__ import annotations

import base64
import io
import json
import re
import struct
import zlib
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from vicinal.models.demo_catalog import make_catalog, render_view

SEARCH = "/v1/galleries/shoes/search"
GOOD = {"item_id": "plain/view 0.png"}
PREFIX = "urn:vicinal:problem:"


def assert_refused(client: TestClient, response: httpx.Response, status: int, kind: str) -> str:
    """Check the problem document and that the server still answers; give the sentence."""
    body = response.json()
    assert (response.status_code, body["status"], body["type"]) == (status, status, PREFIX + kind), body
    assert response.headers["content-type"] == "application/problem+json"
    assert body["title"]
    assert body["detail"]
    assert "\n" not in body["detail"]
    assert "Traceback" not in response.text
    assert client.post(SEARCH, json=GOOD).status_code == 200
    return str(body["detail"])


def upload(client: TestClient, content: bytes, name: str = "query.jpg", **options: str) -> httpx.Response:
    return client.post(SEARCH, files={"image": (name, content, "image/jpeg")}, data=options)


def vast_png(side: int) -> bytes:
    """A square white 1-bit PNG, deflated row by row: small on the wire, vast when decoded."""
    packer = zlib.compressobj(6)
    row = b"\x00" + b"\xff" * (-(-side // 8))
    pixels = b"".join(packer.compress(row) for _ in range(side)) + packer.flush()

    def chunk(kind: bytes, body: bytes) -> bytes:
        checksum = struct.pack(">I", zlib.crc32(kind + body))
        return struct.pack(">I", len(body)) + kind + body + checksum

    header = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    parts = (chunk(b"IHDR", header), chunk(b"IDAT", pixels), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


# Files


def picture(image: Image.Image, kind: str = "PNG") -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind)
    return stream.getvalue()


PHOTO = picture(render_view(make_catalog(0, 1)[0], 0, size=128), "JPEG")
FILES = {
    "empty": (b"", 400, "not-an-image", "empty"),
    "words": (b"just some words", 400, "not-an-image", ""),
    "cut at its beginning": (PHOTO[: len(PHOTO) // 10], 400, "not-an-image", ""),
    "cut at its end": (PHOTO[: len(PHOTO) * 9 // 10], 400, "not-an-image", ""),
    "one pixel": (picture(Image.new("RGB", (1, 1))), 422, "image-too-small", "1 x 1"),
    "white": (picture(Image.new("RGB", (64, 64), "white")), 422, "image-blank", "of one color all over"),
    "clear": (picture(Image.new("RGBA", (64, 64), (200, 30, 30, 0))), 422, "image-blank", "of one color"),
    "16 bits": (picture(Image.new("I;16", (64, 64), 40_000)), 422, "image-blank", "of one color all over"),
    "vast": (vast_png(30_000), 413, "image-too-large", "40,000,000"),
    "many bytes": (b"\xff" * 310_000, 413, "image-too-large", "300,000"),
    "PSD": (b"8BPS" + bytes(400), 415, "unsupported-format", "PSD"),
    "PDF": (b"%PDF-1.7" + bytes(400), 415, "unsupported-format", "PDF"),
    "SVG": (b"<svg " + bytes(400), 415, "unsupported-format", "SVG"),
}


@pytest.mark.parametrize(("content", "status", "kind", "said"), FILES.values(), ids=FILES.keys())
def test_a_file_that_is_no_usable_image_is_refused(
    client: TestClient, content: bytes, status: int, kind: str, said: str
) -> None:
    assert said in assert_refused(client, upload(client, content), status, kind)
    inline = client.post(SEARCH, json={"image_base64": base64.b64encode(content).decode()})
    if status != 413 and content:
        assert said in assert_refused(client, inline, status, kind)


def test_a_picture_of_vast_size_is_refused_for_its_size() -> None:
    """Negative control: it is sound, and small on the wire."""
    with Image.open(io.BytesIO(vast_png(1000))) as image:
        image.load()
        assert (image.size, image.getpixel((999, 999))) == ((1000, 1000), 255)
    assert len(vast_png(30_000)) < 200_000


# Embeddings and fields

BAD_EMBEDDINGS = {
    "nan": "[" + ",".join(["NaN"] * 24) + "]",
    "one nan": "[NaN," + ",".join(["1"] * 23) + "]",
    "infinite": "[" + ",".join(["Infinity"] * 24) + "]",
    "overflowing": "[" + ",".join(["1e999"] * 24) + "]",
    "vast number": "[" + ",".join(["1" + "0" * 400] * 24) + "]",
    "zero": "[" + ",".join(["0"] * 24) + "]",
    "short": "[" + ",".join(["1"] * 23) + "]",
    "long": "[" + ",".join(["1"] * 25) + "]",
    "empty": "[]",
}


@pytest.mark.parametrize("embedding", BAD_EMBEDDINGS.values(), ids=BAD_EMBEDDINGS.keys())
def test_an_embedding_that_points_nowhere_is_refused(client: TestClient, embedding: str) -> None:
    response = client.post(SEARCH, content=f'{{"embedding": {embedding}}}')
    assert_refused(client, response, 422, "invalid-embedding")


INVALID_FIELDS = {
    "no query": {},
    "two kinds": {**GOOD, "embedding": [1.0] * 24},
    "image and item": {**GOOD, "image_base64": "AAAA"},
    "unknown field": {**GOOD, "treshold": 0.5},
    "limit 0": {**GOOD, "limit": 0},
    "negative limit": {**GOOD, "limit": -3},
    "limit in words": {**GOOD, "limit": "all"},
    "limit above the most": {**GOOD, "limit": 1001},
    "vast limit": {**GOOD, "limit": 10**300},
    "threshold 2": {**GOOD, "threshold": 2},
    "negative threshold": {**GOOD, "threshold": -0.001},
    "threshold nan": {**GOOD, "threshold": float("nan")},
    "unknown rerank": {**GOOD, "rerank": "k_means"},
    "bad base64": {"image_base64": "not base64!"},
    "base64 beyond ascii": {"image_base64": "größe"},
    "embedding of words": {"embedding": ["a"] * 24},
    "item of a number": {"item_id": 7},
    "half a surrogate": {"item_id": "\ud800"},
    "unknown field of half a surrogate": {**GOOD, "\ud800": 1},
    "a list": [],
    "null": None,
    "a word": "search",
}


@pytest.mark.parametrize("body", INVALID_FIELDS.values(), ids=INVALID_FIELDS.keys())
def test_fields_that_cannot_be_are_refused(client: TestClient, body: object) -> None:
    response = client.post(SEARCH, content=json.dumps(body))
    assert_refused(client, response, 422, "invalid-request")


MALFORMED = {
    "broken": b'{"item_id": ',
    "empty": b"",
    "nested": b'{"embedding": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "nested objects": b'{"a":' * 50_000,
    "not utf-8": b'{"item_id": "\xff\xfe"}',
    "half a surrogate": b'{"item_id": "\\ud800"}',
    "endless number": b'{"limit": ' + b"9" * 10_000 + b"}",
}


@pytest.mark.parametrize("path", [SEARCH, f"{SEARCH}/batch"])
@pytest.mark.parametrize("content", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_json_is_refused(client: TestClient, content: bytes, path: str) -> None:
    response = client.post(path, content=content, headers={"content-type": "application/json"})
    assert_refused(client, response, 422, "invalid-request")


def test_the_refused_field_is_named_and_its_content_is_not_repeated(client: TestClient) -> None:
    response = client.post(SEARCH, json={**GOOD, "limit": "a secret"})
    assert "limit" in assert_refused(client, response, 422, "invalid-request")
    assert "a secret" not in response.text


# Forms, types and sizes


@pytest.mark.parametrize("kind", ["multipart/form-data", "multipart/form-data; boundary=x"])
def test_a_multipart_body_without_parts_is_refused(client: TestClient, kind: str) -> None:
    response = client.post(SEARCH, content=b"no parts", headers={"content-type": kind})
    assert response.status_code in (400, 422)
    assert_refused(client, response, response.status_code, "invalid-request")


@pytest.mark.parametrize("kind", ["text/plain", "image/jpeg", "application/x-www-form-urlencoded", "x"])
def test_a_body_of_another_type_is_refused(client: TestClient, kind: str) -> None:
    response = client.post(SEARCH, content=b"x", headers={"content-type": kind})
    assert "multipart/form-data" in assert_refused(client, response, 415, "unsupported-format")


@pytest.mark.parametrize("path", [SEARCH, f"{SEARCH}/batch"])
@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_body_that_is_too_large_is_refused(client: TestClient, path: str, is_chunked: bool) -> None:
    """Also when its length was not declared."""
    content = b'{"item_id": "' + b"x" * 600_000 + b'"}'
    response = client.post(
        path, content=iter([content]) if is_chunked else content, headers={"content-type": "application/json"}
    )
    assert "bytes" in assert_refused(client, response, 413, "body-too-large")


@pytest.mark.parametrize(
    "queries",
    [
        [],
        [GOOD] * 5,
        [GOOD, {"embedding": [1.0] * 24}],
        [{"embedding": [1.0] * 24}, {"embedding": [1.0] * 23}],
        [GOOD, {}],
    ],
    ids=["none", "above max_batch", "of two kinds", "of two lengths", "one empty"],
)
def test_a_batch_that_cannot_be_is_refused(client: TestClient, queries: list[object]) -> None:
    response = client.post(f"{SEARCH}/batch", json={"queries": queries})
    assert_refused(client, response, 422, "invalid-request")


def test_an_unknown_gallery_is_not_found(client: TestClient) -> None:
    response = client.post("/v1/galleries/boots/search", json=GOOD)
    assert "'boots'" in assert_refused(client, response, 404, "gallery-not-found")


@pytest.mark.parametrize("item_id", ["gone", "", "\x00", "plain/view 0.png ", "' OR 1=1 --"])
def test_an_unknown_item_is_not_found(client: TestClient, item_id: str) -> None:
    response = client.post(SEARCH, json={"item_id": item_id})
    assert_refused(client, response, 404, "item-not-found")


@pytest.mark.parametrize(
    ("method", "path", "status", "kind"),
    [("GET", "/v2/galleries", 404, "not-found"), ("GET", SEARCH, 405, "method-not-allowed")],
)
def test_routes_that_are_not_there(
    client: TestClient, method: str, path: str, status: int, kind: str
) -> None:
    assert_refused(client, client.request(method, path), status, kind)


# Types of JSON that values have.
KINDS = {bool: {"boolean"}, int: {"integer", "number"}, str: {"string"}}


def kinds_of(schema: dict[str, Any], schemas: dict[str, Any]) -> set[str]:
    """Types of JSON that a field takes."""
    while "$ref" in schema:
        schema = schemas[schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        return set().union(*(kinds_of(one, schemas) for one in schema["anyOf"]))
    return {str(schema.get("type"))}


@pytest.mark.slow
def test_a_field_of_json_takes_its_own_type_and_no_other(client: TestClient) -> None:
    """What the document says is what is taken: a number is no text and no truth value."""
    document = client.get("/openapi.json").json()
    schemas = document["components"]["schemas"]
    others: dict[str, list[object]] = {
        "boolean": [0, "true"],
        "integer": [True, "5"],
        "number": [True, "0.5"],
        "string": [5, True],
    }
    n_tried = 0
    taken = []
    for path, methods in document["paths"].items():
        for method, call in methods.items():
            content = call.get("requestBody", {}).get("content", {})
            reference = content.get("application/json", {}).get("schema", {}).get("$ref", "")
            fields = schemas.get(reference.rpartition("/")[2], {}).get("properties", {})
            address = re.sub("{.*?}", "x", path.replace("{gallery}", "shoes"))
            needed = [one for one in call.get("parameters", ()) if one["in"] == "query" and one["required"]]
            asked = {one["name"]: "x" for one in needed}
            for name, schema in fields.items():
                kinds = kinds_of(schema, schemas)
                for kind in kinds & others.keys():
                    for value in (one for one in others[kind] if not kinds & KINDS[type(one)]):
                        answer = client.request(method, address, params=asked, json={name: value})
                        n_tried += 1
                        refused = answer.json().get("errors", ()) if answer.status_code == 422 else ()
                        if not any(name in one["field"] for one in refused):
                            taken.append((method, path, name, value, answer.text))
    assert taken == []
    # Fields of a dozen calls.
    assert n_tried > 100
