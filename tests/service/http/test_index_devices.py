"""A server with indexes or network on a GPU answers as one on the processor does, and outlives the GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.service.types import MakeSettings
from tests.stand_in_gpus import SmallGpu, stand_in_gpus
from vicinal.indexer.errors import IndexDeviceError
from vicinal.models import embedder
from vicinal.models.runtime import open_session
from vicinal.service.http.app import create_app

SEARCH = "/v1/galleries/shoes/search"
ITEMS = [f"{kind}/view {view}.png" for kind in ("plain", "striped") for view in range(3)]


def served(data_dir: Path, make_settings: MakeSettings, index_device: str, **changes: object) -> TestClient:
    settings = make_settings(data_dir, index_device=index_device, query_cache_entries=0, **changes)
    return TestClient(create_app(settings))


def matches(client: TestClient, **options: Any) -> list[Any]:
    found = []
    for item in ITEMS:
        answer = client.post(SEARCH, json={"item_id": item, "limit": 7, **options})
        assert answer.status_code in (200, 404), answer.text
        found.append([(one["id"], one["score"]) for one in answer.json().get("matches", [])])
    return found


@pytest.mark.slow
def test_readyz_names_the_device_and_why_one_is_not_used(
    calibrated_dir: Path, make_settings: MakeSettings
) -> None:
    with stand_in_gpus([2**30]):
        ready = served(calibrated_dir, make_settings, "auto").get("/readyz").json()
        assert (ready["devices"]["search"], ready["degraded"], ready["ready"]) == ("cuda:0", [], True)
    with stand_in_gpus([0]):
        ready = served(calibrated_dir, make_settings, "auto").get("/readyz").json()
        assert (ready["devices"]["search"], ready["ready"]) == ("cpu", True)
        assert [one.partition(" GiB")[0] for one in ready["degraded"]] == ["the index needs 0.0"]
    ready = served(calibrated_dir, make_settings, "auto").get("/readyz").json()
    assert (ready["devices"]["search"], ready["degraded"]) == ("cpu", [])


@pytest.mark.slow
def test_a_gpu_that_fails_costs_one_answer(calibrated_dir: Path, make_settings: MakeSettings) -> None:
    expected = matches(served(calibrated_dir, make_settings, "cpu"))

    def broken() -> None:
        raise RuntimeError("CUDA error 719 unspecified launch failure")

    with stand_in_gpus([2**30]) as gpus:
        client = served(calibrated_dir, make_settings, "cuda")
        assert matches(client) == expected
        gpus.fails = broken
        answer = client.post(SEARCH, json={"item_id": ITEMS[0]})
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
        assert answer.json()["type"].endswith(":device-failed")
        assert matches(client) == expected
        ready = client.get("/readyz").json()
    assert (ready["ready"], ready["devices"]["search"]) == (True, "cpu")
    assert ready["degraded"] == ["cuda:0 failed: CUDA error 719 unspecified launch failure"]


def test_a_gpu_of_the_network_that_fails_costs_one_answer(
    calibrated_dir: Path, make_settings: MakeSettings, catalog: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus = []

    def on_gpu(*arguments: Any, device: str, threads: int) -> Any:
        session = open_session(*arguments, device="cpu", threads=threads)
        if device == "cpu":
            return session
        gpus.append(SmallGpu(session, holds=32))
        return gpus[-1]

    monkeypatch.setattr(embedder, "open_session", on_gpu)
    client = served(calibrated_dir, make_settings, "cpu", device="cuda")
    assert gpus[0].sizes == [1, 1, 2, 4, 8, 16, 32]
    image = {"image": (catalog / ITEMS[0]).read_bytes()}
    expected = client.post(SEARCH, files=image).json()["matches"]
    assert expected
    ready = client.get("/readyz").json()
    assert (ready["provider"], ready["degraded"]) == ("CUDAExecutionProvider", [])
    assert ready["devices"]["embed"] == "CUDAExecutionProvider on cuda:0"
    (gpu,) = gpus
    gpu.session = None
    answer = client.post(SEARCH, files=image)
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    assert answer.json()["type"].endswith(":device-failed")
    assert client.post(SEARCH, files=image).json()["matches"] == expected
    ready = client.get("/readyz").json()
    assert (ready["ready"], ready["provider"]) == (True, "CPUExecutionProvider")
    assert ready["devices"]["embed"] == "CPUExecutionProvider"
    assert ready["degraded"] == ["the GPU of the network failed: CUDA error 719: unspecified launch failure"]


def test_a_server_that_asks_for_a_gpu_does_not_start_without_one(
    calibrated_dir: Path, make_settings: MakeSettings
) -> None:
    with pytest.raises(IndexDeviceError, match="'cuda' was asked for, and this Faiss is built without GPUs"):
        served(calibrated_dir, make_settings, "cuda")
