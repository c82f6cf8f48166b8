"""Whether a threshold holds is one state, and everything that speaks of the threshold says it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from fastapi.testclient import TestClient

from tests.service.types import Calibrate, MakeSettings, Run
from vicinal import open_gallery
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.changes import remove_items
from vicinal.indexer.reader import GalleryReader
from vicinal.service.http.app import create_app
from vicinal.service.http.state import state_of
from vicinal.service.measuring.records.promise import CheckedRate, PromiseCheck
from vicinal.service.measuring.records.store import CalibrationStore
from vicinal_client import Client

ADMIN = "/v1/admin/galleries/shoes"
SEARCH = "/v1/galleries/shoes/search"
ITEM = {"item_id": "plain/view 0.png"}
SENTENCE = "What was promised does NOT hold: of 40 photos of things you lack, 31 got an answer."


@pytest.fixture
def server(data_dir: Path, make_settings: MakeSettings) -> TestClient:
    return TestClient(create_app(make_settings(data_dir)))


def keep_check(gallery: Gallery, record_id: str, verdict: str) -> None:
    """What a check leaves, by whichever process it was made."""
    rate = CheckedRate(
        n_trials=40,
        n_events=31,
        n_labels=9,
        rate=0.78,
        low=0.5,
        high=0.9,
        confidence=0.975,
        promised_rate=0.05,
        promised_low=0.01,
        promised_high=0.09,
        p_not_worse=0.001,
        verdict=verdict,
        more_labels=None,
    )
    store = CalibrationStore(gallery.path)
    record = store.get(record_id)
    store.keep_check(
        PromiseCheck(
            calibration=record_id,
            target="FPIR 5 %",
            pipeline=record.pipeline.key,
            threshold=record.threshold,
            version=1,
            checked_at=datetime(2026, 11, 25, tzinfo=UTC),
            verdict=verdict,
            sentence=SENTENCE if verdict == "broken" else "What was promised holds so far.",
            error_rate=0.05,
            rates={"fpir": rate},
            n_queries=40,
            n_labels=9,
        )
    )


def broken(gallery: Gallery, calibrate: Calibrate) -> None:
    keep_check(gallery, calibrate(gallery), "broken")


def held(gallery: Gallery, calibrate: Calibrate) -> None:
    keep_check(gallery, calibrate(gallery), "held")


def stale(gallery: Gallery, calibrate: Calibrate) -> None:
    calibrate(gallery)
    gone = [f"{label}/view {look}.png" for label in ("a+b", "x_y", "z-z") for look in range(6)]
    remove_items(GalleryReader(gallery), gone)


def broken_and_changed(gallery: Gallery, calibrate: Calibrate) -> None:
    stale(gallery, calibrate)
    (record_id,) = CalibrationStore(gallery.path).in_force()
    keep_check(gallery, record_id, "broken")


def by_hand(gallery: Gallery, calibrate: Calibrate) -> None:
    store = CalibrationStore(gallery.path)
    measured = store.get(calibrate(gallery))
    changed = {"id": "hand", "source": "by_hand", "target": None, "rates": None, "evidence": None}
    store.add(measured.model_copy(update=changed))


def without(gallery: Gallery, calibrate: Calibrate) -> None:
    pass


def states(server: TestClient, client: Client, run: Run, data_dir: Path) -> dict[str, str | None]:
    """The state by the name of what says it; where there is no calibration, not all speak."""
    answer = server.post(SEARCH, json=ITEM).json()["threshold"]
    record_id = answer["calibration"]
    local = open_gallery("shoes", data_dir=data_dir, bundle=state_of(server.app).settings.bundle)
    batch = server.post(f"{SEARCH}/batch", json={"queries": [ITEM]}).json()["answers"]
    metrics = [
        line.split('state="')[1].split('"')[0]
        for line in server.get("/metrics").text.splitlines()
        if line.startswith("vicinal_gallery_calibration{") and line.endswith(" 1.0")
    ]
    found = {
        "search": answer["state"],
        "batch": batch[0]["threshold"]["state"],
        "readyz": server.get("/readyz").json()["galleries"][0]["calibration"],
        "metrics": metrics[0],
        "gallery": server.get("/v1/galleries/shoes").json()["threshold"]["state"],
        "galleries": server.get("/v1/galleries").json()["galleries"][0]["threshold"]["state"],
        "pipeline": server.get(f"{ADMIN}/pipeline").json()["state"],
        "client's search": client.search("shoes", item_id=ITEM["item_id"]).threshold.state,
        "client's gallery": client.get_gallery("shoes").threshold.state,
        "program": local.threshold.state,
        "gallery show": json.loads(run("gallery", "show", "shoes", "--json").stdout)["threshold"]["state"],
        "use": json.loads(run("use", "-g", "shoes", "--json").stdout)["state"],
        "vicinal search": json.loads(
            run("search", "-g", "shoes", "--item", ITEM["item_id"], "--json").stdout
        )["threshold"]["state"],
    }
    if record_id is not None:
        one = f"{ADMIN}/calibrations/{record_id}"
        (summary,) = [one for one in client.list_calibrations("shoes").calibrations if one.is_active]
        found |= {
            "calibration": server.get(one).json()["state"],
            "report": server.get(f"{one}/report").json()["state"],
            "client's calibration": client.get_calibration("shoes", record_id).state,
            "history": summary.state,
        }
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("prepare", "expected"),
    [
        (broken, "broken"),
        (broken_and_changed, "broken"),
        (stale, "stale"),
        (held, "current"),
        (by_hand, "by_hand"),
        (without, "none"),
    ],
)
def test_everything_says_the_same_state(
    server: TestClient,
    run: Run,
    data_dir: Path,
    gallery: Gallery,
    calibrate: Calibrate,
    prepare: Callable[[Gallery, Calibrate], None],
    expected: str,
) -> None:
    def answer(asked: httpx.Request) -> httpx.Response:
        told = server.request(asked.method, str(asked.url), content=asked.read(), headers=dict(asked.headers))
        return httpx.Response(told.status_code, json=told.json())

    prepare(gallery, calibrate)
    with Client("http://server", transport=httpx.MockTransport(answer)) as client:
        found = states(server, client, run, data_dir)
    assert {name: state for name, state in found.items() if state != expected} == {}
