"""Search over HTTP: every way to ask gets the same answer."""

from __future__ import annotations

import base64
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from tests.service.types import Encode, View
from vicinal.models.embedder import Embedder

SEARCH = "/v1/galleries/shoes/search"
ITEM = "größe 42/view 3.png"


@pytest.fixture(scope="module")
def png(view: View, encode: Encode) -> bytes:
    """A new view of the third label, in the gallery as `größe 42`."""
    return encode(view(2, 9))


def without_time(answer: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in answer.items() if key != "milliseconds"}


def without_drift(answer: dict[str, Any]) -> dict[str, Any]:
    """Drift is of the searches that a process has served, and other tests search here too."""
    threshold = {key: value for key, value in answer["threshold"].items() if key not in ("drift", "note")}
    return {**answer, "threshold": threshold}


def search(client: TestClient | httpx.Client, **body: object) -> dict[str, object]:
    response = client.post(SEARCH, json=body)
    assert response.status_code == 200, response.text
    return without_time(response.json())


def upload(client: TestClient | httpx.Client, png: bytes, **options: str) -> dict[str, object]:
    response = client.post(SEARCH, files={"image": ("a.png", png, "image/png")}, data=options)
    assert response.status_code == 200, response.text
    return without_time(response.json())


def test_a_view_of_a_label_is_matched(client: TestClient, png: bytes) -> None:
    answer = upload(client, png)
    assert answer["no_match"] is False
    assert {match["label"] for match in answer["matches"]} == {"größe 42"}
    assert answer["threshold"]["state"] == "current"


def test_groups_are_the_same_by_form_json_and_batch(client: TestClient, png: bytes) -> None:
    """There is no threshold for groups in this gallery: one is given."""
    options = {"group_by": "label", "threshold": 0.5, "limit": 2, "include_candidates": True}
    form = upload(client, png, **{name: str(value) for name, value in options.items()})
    image = base64.b64encode(png).decode()
    assert without_drift(search(client, image_base64=image, **options)) == without_drift(form)
    body = {"queries": [{"image_base64": image}] * 2, **options}
    batch = client.post(f"{SEARCH}/batch", json=body).json()["answers"]
    assert [without_drift(without_time(one)) for one in batch] == [without_drift(form)] * 2
    (best, *_) = form["groups"]
    assert (best["group"], best["n_items"], best["rank"]) == ("größe 42", 6, 1)
    assert form["matches"] == [item for group in form["groups"] for item in group["items"]]
    assert len(form["candidate_groups"]) == 2


def test_a_key_that_no_item_has_is_refused(client: TestClient, png: bytes) -> None:
    response = client.post(SEARCH, files={"image": ("a.png", png, "image/png")}, data={"group_by": "sku"})
    assert response.status_code == 422
    assert response.json()["detail"] == (
        "no item has a value of the metadata key 'sku' to group by; there are: label"
    )


def test_multipart_base64_data_url_and_embedding_get_one_answer(
    client: TestClient, png: bytes, embedder: Embedder
) -> None:
    encoded = base64.b64encode(png).decode()
    expected = upload(client, png, include_candidates="true")
    assert search(client, image_base64=encoded, include_candidates=True) == expected
    data_url = f"data:image/png;base64,{encoded}"
    assert search(client, image_base64=data_url, include_candidates=True) == expected
    embedding = embedder.embed([png])[0].tolist()
    assert search(client, embedding=embedding, include_candidates=True) == expected


def test_a_real_server_answers_as_the_application_does(
    client: TestClient, server_url: str, png: bytes
) -> None:
    with httpx.Client(base_url=server_url) as remote:
        assert without_drift(upload(remote, png)) == without_drift(upload(client, png))
        assert without_drift(search(remote, item_id=ITEM)) == without_drift(search(client, item_id=ITEM))


def test_a_batch_equals_its_queries_alone(client: TestClient, view: View, encode: Encode) -> None:
    queries = [{"image_base64": base64.b64encode(encode(view(label, 9))).decode()} for label in (0, 5, 60, 2)]
    options = {"include_candidates": True, "limit": 7, "threshold": 0.6}
    response = client.post(f"{SEARCH}/batch", json={"queries": queries, **options})
    answers = [without_time(answer) for answer in response.json()["answers"]]
    assert answers == [search(client, **query, **options) for query in queries]


def test_an_answer_names_its_gallery_version_and_bundle(client: TestClient, embedder: Embedder) -> None:
    answer = search(client, item_id=ITEM)
    assert answer["gallery"] == "shoes"
    assert answer["version"] == client.get("/v1/galleries/shoes").json()["version"]
    assert answer["bundle"] == embedder.bundle.fingerprint


def test_an_upload_that_is_spooled_to_disk_is_answered(calibrated_client: TestClient, encode: Encode) -> None:
    """Uploads above 1 MB are kept in a file meanwhile."""
    noise = np.random.default_rng(0).integers(0, 256, (800, 800, 3), dtype=np.uint8)
    content = encode(Image.fromarray(noise))
    assert len(content) > 2**20
    assert upload(calibrated_client, content)["no_match"] is True
