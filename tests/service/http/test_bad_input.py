"""Bad input over HTTP: each has its status and stable type, and the next search is answered as usual."""

from __future__ import annotations

import base64
import io
import json
import re
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from tests.service.types import Encode, MakeSettings, View
from vicinal.models.bundle import ModelBundle
from vicinal.models.demo_catalog import make_catalog, render_view
from vicinal.service.http.serving.server import serving

SEARCH = "/v1/galleries/shoes/search"
GOOD = {"item_id": "plain/view 0.png"}
PREFIX = "urn:vicinal:problem:"


@pytest.fixture(scope="module")
def remote(server_url: str) -> Iterator[httpx.Client]:
    """Client of a real server with small limits."""
    with httpx.Client(base_url=server_url, timeout=30.0) as client:
        yield client


@pytest.fixture(scope="module")
def photo(view: View) -> Image.Image:
    """A larger picture of a gallery label, of even sides."""
    return view(2, 9).resize((96, 80), Image.Resampling.BICUBIC)


def assert_refused(remote: httpx.Client, response: httpx.Response, status: int, kind: str) -> str:
    """Check the problem document and that the server still answers; give the sentence."""
    body = response.json()
    assert (response.status_code, body["status"], body["type"]) == (status, status, PREFIX + kind), body
    assert response.headers["content-type"] == "application/problem+json"
    assert body["title"]
    assert body["detail"]
    assert "\n" not in body["detail"]
    assert "Traceback" not in response.text
    assert remote.post(SEARCH, json=GOOD).status_code == 200
    return str(body["detail"])


def upload(remote: httpx.Client, content: bytes, name: str = "query.jpg", **options: str) -> httpx.Response:
    return remote.post(SEARCH, files={"image": (name, content, "image/jpeg")}, data=options)


def ids_of(response: httpx.Response) -> list[str]:
    assert response.status_code == 200, response.text
    body = response.json()
    return [one["id"] for one in [*body["matches"], *body["candidates"]]]


def scores_of(response: httpx.Response) -> dict[str, float]:
    body = response.json()
    return {one["id"]: one["score"] for one in [*body["matches"], *body["candidates"]]}


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


def test_an_empty_file_is_no_image(remote: httpx.Client) -> None:
    assert "empty" in assert_refused(remote, upload(remote, b""), 400, "not-an-image")


def test_a_text_file_with_the_name_of_a_jpeg_is_no_image(remote: httpx.Client) -> None:
    assert_refused(remote, upload(remote, b"just some words"), 400, "not-an-image")


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_truncated_jpeg_is_no_image(remote: httpx.Client, encode: Encode, share: float) -> None:
    content = encode(render_view(make_catalog(0, 1)[0], 0, size=128), "JPEG")
    response = upload(remote, content[: int(share * len(content))])
    assert_refused(remote, response, 400, "not-an-image")


def test_a_picture_of_one_pixel_is_too_small(remote: httpx.Client, encode: Encode) -> None:
    detail = assert_refused(remote, upload(remote, encode(Image.new("RGB", (1, 1)))), 422, "image-too-small")
    assert "1 x 1" in detail


@pytest.mark.parametrize(
    "picture",
    [
        Image.new("RGB", (64, 64), "white"),
        Image.new("L", (64, 64), 0),
        Image.new("RGBA", (64, 64), (200, 30, 30, 0)),
        Image.new("I;16", (64, 64), 40_000),
    ],
)
def test_a_blank_picture_is_refused_and_the_answer_says_why(
    remote: httpx.Client, encode: Encode, picture: Image.Image
) -> None:
    detail = assert_refused(remote, upload(remote, encode(picture)), 422, "image-blank")
    assert "of one color all over" in detail


@pytest.mark.slow
def test_a_small_file_of_vast_size_is_refused_before_it_is_decoded(remote: httpx.Client) -> None:
    content = vast_png(30_000)
    assert len(content) < 200_000
    detail = assert_refused(remote, upload(remote, content, "bomb.png"), 413, "image-too-large")
    assert "40,000,000" in detail


@pytest.mark.parametrize(("head", "name"), [(b"8BPS", "PSD"), (b"%PDF-1.7", "PDF"), (b"<svg ", "SVG")])
def test_a_format_that_is_not_accepted_is_named(remote: httpx.Client, head: bytes, name: str) -> None:
    detail = assert_refused(remote, upload(remote, head + b"\0" * 400), 415, "unsupported-format")
    assert detail.startswith(name)


def test_more_bytes_than_an_image_may_have_are_refused(remote: httpx.Client) -> None:
    detail = assert_refused(remote, upload(remote, b"\xff" * 310_000), 413, "image-too-large")
    assert "300,000" in detail


# Unusual pictures that are answered


def test_a_cmyk_jpeg_is_answered(remote: httpx.Client, encode: Encode, photo: Image.Image) -> None:
    assert ids_of(upload(remote, encode(photo.convert("CMYK"), "JPEG")))[0].startswith("größe 42")


def test_a_png_of_16_bits_is_answered(remote: httpx.Client, encode: Encode, photo: Image.Image) -> None:
    """It scores as the same picture in 8 bits."""
    gray = np.asarray(photo.convert("L"))
    deep = Image.fromarray(gray.astype(np.uint16) * 257)
    options = {"include_candidates": "true"}
    expected = scores_of(upload(remote, encode(photo.convert("L")), **options))
    assert scores_of(upload(remote, encode(deep), **options)) == expected


def test_the_first_frame_of_an_animation_is_searched(
    remote: httpx.Client, encode: Encode, photo: Image.Image, view: View
) -> None:
    other = view(8, 9).resize(photo.size)
    animated = encode(photo, "GIF", save_all=True, append_images=[other, other])
    assert ids_of(upload(remote, animated))[0].startswith("größe 42")


@pytest.mark.parametrize("orientation", range(2, 9))
def test_a_photo_that_the_camera_turned_scores_as_the_upright_one(
    remote: httpx.Client, encode: Encode, photo: Image.Image, orientation: int
) -> None:
    """PNG, so that turning loses nothing."""
    undo = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}
    exif = Image.Exif()
    exif[0x0112] = orientation
    turned = photo.transpose(Image.Transpose(undo[orientation]))
    options = {"include_candidates": "true", "limit": "60"}
    expected = scores_of(upload(remote, encode(photo), **options))
    assert scores_of(upload(remote, encode(turned, exif=exif.tobytes()), **options)) == expected


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
def test_an_embedding_that_points_nowhere_is_refused(remote: httpx.Client, embedding: str) -> None:
    response = remote.post(SEARCH, content=f'{{"embedding": {embedding}}}')
    assert_refused(remote, response, 422, "invalid-embedding")


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


@pytest.mark.slow
@pytest.mark.parametrize("body", INVALID_FIELDS.values(), ids=INVALID_FIELDS.keys())
def test_fields_that_cannot_be_are_refused(remote: httpx.Client, body: object) -> None:
    response = remote.post(SEARCH, content=json.dumps(body))
    assert_refused(remote, response, 422, "invalid-request")


MALFORMED = {
    "broken": b'{"item_id": ',
    "empty": b"",
    "nested": b'{"embedding": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "nested objects": b'{"a":' * 50_000,
    "not utf-8": b'{"item_id": "\xff\xfe"}',
    "half a surrogate": b'{"item_id": "\\ud800"}',
    "endless number": b'{"limit": ' + b"9" * 10_000 + b"}",
}


@pytest.mark.parametrize("content", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_json_is_refused(remote: httpx.Client, content: bytes) -> None:
    response = remote.post(SEARCH, content=content, headers={"content-type": "application/json"})
    assert_refused(remote, response, 422, "invalid-request")


@pytest.mark.parametrize("content", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_batch_is_refused(remote: httpx.Client, content: bytes) -> None:
    response = remote.post(f"{SEARCH}/batch", content=content, headers={"content-type": "application/json"})
    assert_refused(remote, response, response.status_code, "invalid-request")
    assert response.status_code in (400, 422)


def test_the_refused_field_is_named_and_its_content_is_not_repeated(remote: httpx.Client) -> None:
    response = remote.post(SEARCH, json={**GOOD, "limit": "a secret"})
    assert "limit" in assert_refused(remote, response, 422, "invalid-request")
    assert "a secret" not in response.text


def test_an_image_within_base64_is_checked_as_a_file_is(remote: httpx.Client) -> None:
    response = remote.post(SEARCH, json={"image_base64": base64.b64encode(b"words").decode()})
    assert_refused(remote, response, 400, "not-an-image")


# Forms, types and sizes


def test_a_form_without_an_image_is_refused(remote: httpx.Client) -> None:
    response = remote.post(SEARCH, files={"picture": ("a.jpg", b"x", "image/jpeg")})
    assert "no file 'image'" in assert_refused(remote, response, 422, "invalid-request")


def test_a_form_whose_image_is_a_text_field_is_refused(remote: httpx.Client) -> None:
    response = remote.post(SEARCH, files={"image": (None, "words")})
    assert_refused(remote, response, 400, "not-an-image")


@pytest.mark.parametrize("option", [{"limit": "0"}, {"threshold": "2"}, {"treshold": "1"}, {"limit": "many"}])
def test_a_form_with_a_wrong_option_is_refused(
    remote: httpx.Client, encode: Encode, photo: Image.Image, option: dict[str, str]
) -> None:
    assert_refused(remote, upload(remote, encode(photo), **option), 422, "invalid-request")


def test_a_form_with_two_images_is_refused(remote: httpx.Client, encode: Encode, photo: Image.Image) -> None:
    one = ("image", ("a.png", encode(photo), "image/png"))
    assert_refused(remote, remote.post(SEARCH, files=[one, one]), 400, "invalid-request")


@pytest.mark.parametrize("kind", ["multipart/form-data", "multipart/form-data; boundary=x"])
def test_a_multipart_body_without_parts_is_refused(remote: httpx.Client, kind: str) -> None:
    response = remote.post(SEARCH, content=b"no parts", headers={"content-type": kind})
    assert response.status_code in (400, 422)
    assert_refused(remote, response, response.status_code, "invalid-request")


@pytest.mark.parametrize("kind", ["text/plain", "image/jpeg", "application/x-www-form-urlencoded", "x"])
def test_a_body_of_another_type_is_refused(remote: httpx.Client, kind: str) -> None:
    response = remote.post(SEARCH, content=b"x", headers={"content-type": kind})
    assert "multipart/form-data" in assert_refused(remote, response, 415, "unsupported-format")


@pytest.mark.parametrize("path", [SEARCH, f"{SEARCH}/batch"])
@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_body_that_is_too_large_is_refused(remote: httpx.Client, path: str, is_chunked: bool) -> None:
    """Also when its length was not declared."""
    content = b'{"item_id": "' + b"x" * 600_000 + b'"}'
    response = remote.post(
        path, content=iter([content]) if is_chunked else content, headers={"content-type": "application/json"}
    )
    assert "bytes" in assert_refused(remote, response, 413, "body-too-large")


def test_a_form_that_is_too_large_is_refused(remote: httpx.Client) -> None:
    assert_refused(remote, upload(remote, b"x" * 600_000), 413, "body-too-large")


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
def test_a_batch_that_cannot_be_is_refused(remote: httpx.Client, queries: list[object]) -> None:
    response = remote.post(f"{SEARCH}/batch", json={"queries": queries})
    assert_refused(remote, response, 422, "invalid-request")


def test_one_bad_query_refuses_its_batch(remote: httpx.Client) -> None:
    response = remote.post(f"{SEARCH}/batch", json={"queries": [GOOD, {"item_id": "gone"}]})
    assert_refused(remote, response, 404, "item-not-found")


# Names


def test_an_unknown_gallery_is_not_found(remote: httpx.Client) -> None:
    response = remote.post("/v1/galleries/boots/search", json=GOOD)
    assert "'boots'" in assert_refused(remote, response, 404, "gallery-not-found")


@pytest.mark.parametrize("item_id", ["gone", "", "\x00", "plain/view 0.png ", "' OR 1=1 --"])
def test_an_unknown_item_is_not_found(remote: httpx.Client, item_id: str) -> None:
    response = remote.post(SEARCH, json={"item_id": item_id})
    assert_refused(remote, response, 404, "item-not-found")


@pytest.mark.parametrize(
    ("method", "path", "status", "kind"),
    [("GET", "/v2/galleries", 404, "not-found"), ("GET", SEARCH, 405, "method-not-allowed")],
)
def test_routes_that_are_not_there(
    remote: httpx.Client, method: str, path: str, status: int, kind: str
) -> None:
    assert_refused(remote, remote.request(method, path), status, kind)


@pytest.mark.slow
def test_a_gallery_of_another_bundle_is_a_conflict(
    data_dir: Path,
    make_settings: MakeSettings,
    tmp_path: Path,
    tiny_bundle: ModelBundle,
    write_bundle: Callable[..., ModelBundle],
) -> None:
    other = write_bundle(tmp_path / "other", seed=1)
    with serving(make_settings(data_dir, bundle=other.path)) as url:
        response = httpx.post(url + SEARCH, json=GOOD)
    body = response.json()
    assert (response.status_code, body["type"]) == (409, PREFIX + "bundle-mismatch")
    assert tiny_bundle.fingerprint in body["detail"]
    assert other.fingerprint in body["detail"]


def test_the_check_of_the_photo_would_notice_one_that_is_not_turned_back(
    remote: httpx.Client, encode: Encode, photo: Image.Image
) -> None:
    """Negative control: without the EXIF tag a turned photo scores otherwise."""
    turned = photo.transpose(Image.Transpose.ROTATE_180)
    assert scores_of(upload(remote, encode(turned), include_candidates="true")) != scores_of(
        upload(remote, encode(photo), include_candidates="true")
    )


def test_pillow_agrees_that_the_vast_picture_is_one() -> None:
    """Negative control: it is refused for its size, not because it is broken."""
    with Image.open(io.BytesIO(vast_png(1000))) as image:
        image.load()
        assert (image.size, image.getpixel((999, 999))) == ((1000, 1000), 255)


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
def test_a_field_of_json_takes_its_own_type_and_no_other(remote: httpx.Client) -> None:
    """What the document says is what is taken: a number is no text and no truth value."""
    document = remote.get("/openapi.json").json()
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
                        answer = remote.request(method, address, params=asked, json={name: value})
                        n_tried += 1
                        refused = answer.json().get("errors", ()) if answer.status_code == 422 else ()
                        if not any(name in one["field"] for one in refused):
                            taken.append((method, path, name, value, answer.text))
    assert taken == []
    # Fields of a dozen calls.
    assert n_tried > 100


def test_texts_of_a_form_are_read_as_what_they_stand_for(remote: httpx.Client, photo: Image.Image) -> None:
    content = io.BytesIO()
    photo.save(content, "JPEG")
    options = {"limit": "1", "threshold": "0.5", "include_candidates": "true", "explain": "false"}
    answer = upload(remote, content.getvalue(), **options).json()
    assert (answer["threshold"]["value"], answer["threshold"]["source"]) == (0.5, "request")
    assert len(answer["matches"]) + len(answer["candidates"]) >= 1
    for name, value in (("limit", "many"), ("threshold", "high"), ("explain", "perhaps")):
        refused = upload(remote, content.getvalue(), **{name: value})
        assert name in assert_refused(remote, refused, 422, "invalid-request")
