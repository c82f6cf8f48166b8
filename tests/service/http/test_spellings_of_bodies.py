"""Bodies as other programs write them are read, or refused in a sentence that says what was found."""

from __future__ import annotations

import base64
import gzip
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.service.types import Encode, MakeSettings, View
from vicinal.service.http.app import create_app

SHOES = "/v1/galleries/shoes"
SEARCH = f"{SHOES}/search"
BOUNDARY = {"content-type": "multipart/form-data; boundary=b"}


@pytest.fixture(scope="module")
def png(view: View, encode: Encode) -> bytes:
    return encode(view(0, 9))


def form(disposition: bytes, content: bytes) -> bytes:
    return b"--b\r\nContent-Disposition: form-data; " + disposition + b"\r\n\r\n" + content + b"\r\n--b--\r\n"


def lines(text: str) -> str:
    return "\r\n".join(text[i : i + 76] for i in range(0, len(text), 76))


def address(text: str) -> str:
    return text.replace("+", "-").replace("/", "_").rstrip("=")


@pytest.mark.parametrize(
    "spelled",
    [
        lines,
        address,
        lambda text: text.rstrip("="),
        lambda text: f"data:image/png;base64,{text}",
        lambda text: f"DATA:image/png;charset=utf-8;BASE64,{lines(text)}",
    ],
)
def test_base64_is_read_as_it_is_written(
    calibrated_client: TestClient, png: bytes, spelled: Callable[[str], str]
) -> None:
    expected = calibrated_client.post(SEARCH, files={"image": png})
    text = spelled(base64.b64encode(png).decode())
    answer = calibrated_client.post(SEARCH, json={"image_base64": text})
    assert answer.json()["matches"] == expected.json()["matches"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("data:image/svg+xml,<svg/>", "a data: address that is not base64"),
        ("data:text/plain;charset=utf-8,AAAA", "a data: address that is not base64"),
        ("https://shop.example/1.jpg", "it is not base64"),
        ("A", "it is not base64"),
        ("AA==AA==", "it is not base64"),
    ],
)
def test_what_is_no_base64_is_named(calibrated_client: TestClient, text: str, said: str) -> None:
    answer = calibrated_client.post(SEARCH, json={"image_base64": text})
    assert (answer.status_code, said in answer.text) == (422, True)


@pytest.mark.parametrize(
    "disposition",
    [
        b'name="image"',
        b"name=image",
        b'name="image"; filename=""',
        b"name=\"image\"; filename*=UTF-8''caf%C3%A9.png",
        b'name="image"; filename*0="a"; filename*1="b.png"',
    ],
)
def test_an_image_is_a_file_whatever_its_part_calls_it(
    calibrated_client: TestClient, png: bytes, disposition: bytes
) -> None:
    answer = calibrated_client.post(SEARCH, content=form(disposition, png), headers=BOUNDARY)
    assert answer.json()["matches"] == calibrated_client.post(SEARCH, files={"image": png}).json()["matches"]


@pytest.mark.parametrize(
    ("disposition", "name"),
    [
        (b"name=\"image\"; filename*=UTF-8''caf%C3%A9.png", "café.png"),
        (b'name="image"; filename="caf_.png"; filename*=UTF-8\'\'caf%C3%A9.png', "café.png"),
        (b'name="image"; filename*=iso-8859-1\'fr\'caf%E9.png; filename="x.png"', "café.png"),
        (b"name=\"image\"; filename*=UTF-8''%E2%82%AC%20rates.png", "€ rates.png"),
        ('name="image"; filename="café.png"'.encode(), "café.png"),
    ],
)
def test_an_upload_is_called_by_its_coded_name(
    data_dir: Path, make_settings: MakeSettings, png: bytes, disposition: bytes, name: str
) -> None:
    client = TestClient(create_app(make_settings(data_dir)))
    answer = client.post(f"{SHOES}/items", content=form(disposition, png), headers=BOUNDARY)
    (added,) = answer.json()["added"]
    assert client.get(f"{SHOES}/items/{added['id']}").json()["uri"] == name


@pytest.mark.parametrize(
    "disposition", [b"filename*=UTF-8''a.png", b"name*=UTF-8''image; filename=a.png", b""]
)
def test_a_part_without_a_name_is_refused(
    calibrated_client: TestClient, png: bytes, disposition: bytes
) -> None:
    answer = calibrated_client.post(SEARCH, content=form(disposition, png), headers=BOUNDARY)
    assert (answer.status_code, '"name" must be provided' in answer.json()["detail"]) == (400, True)


@pytest.mark.parametrize(
    ("coding", "compress"),
    [("gzip", gzip.compress), ("GZIP", gzip.compress), ("deflate", zlib.compress), ("br", bytes)],
)
def test_a_compressed_body_is_named_and_not_inflated(
    calibrated_client: TestClient, coding: str, compress: Callable[[bytes], bytes]
) -> None:
    bomb = compress(b'{"item_id": "' + b"a" * 10_000_000 + b'"}')[:300_000]
    headers = {"content-type": "application/json", "content-encoding": coding}
    answer = calibrated_client.post(SEARCH, content=bomb, headers=headers)
    assert (answer.status_code, answer.json()["type"]) == (415, "urn:vicinal:problem:unsupported-format")
    assert f"Content-Encoding '{coding.lower()}': send it as it is" in answer.json()["detail"]


def test_a_body_that_is_gzip_without_a_word_is_named(calibrated_client: TestClient) -> None:
    headers = {"content-type": "application/json"}
    answer = calibrated_client.post(SEARCH, content=gzip.compress(b"{}"), headers=headers)
    assert (answer.status_code, "compressed by gzip" in answer.json()["detail"]) == (422, True)


def test_a_body_that_is_not_compressed_may_say_so(calibrated_client: TestClient) -> None:
    """Negative control."""
    body, headers = {"item_id": "plain/view 0.png"}, {"content-encoding": "identity"}
    assert calibrated_client.post(SEARCH, json=body, headers=headers).is_success


@pytest.mark.parametrize("kept", [0, 5, 40, 80, -3000, -8, -6])
def test_a_form_that_breaks_off_is_said_to(calibrated_client: TestClient, png: bytes, kept: int) -> None:
    whole = form(b'name="image"; filename="a.png"', png + bytes(4000))
    answer = calibrated_client.post(SEARCH, content=whole[:kept], headers=BOUNDARY)
    assert (answer.status_code, "breaks off" in answer.text) == (400, True), answer.text
