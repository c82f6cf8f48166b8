"""State of the galleries among the metrics: looked up, never opened for them, one by one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

from tests.damaged_rows import damage_pointer
from tests.service.types import Calibrate, MakeSettings
from vicinal.indexer.gallery import Gallery
from vicinal.service.http.app import create_app
from vicinal.service.http.state import state_of

Series = dict[tuple[str, ...], float]


@pytest.fixture
def client(data_dir: Path, make_settings: MakeSettings) -> TestClient:
    return TestClient(create_app(make_settings(data_dir)), raise_server_exceptions=False)


def series_of(client: TestClient, name: str) -> Series:
    """Values of a metric by those of its labels."""
    families = text_string_to_metric_families(client.get("/metrics").text)
    (found,) = (one for one in families if one.name == name)
    return {tuple(one.labels.values()): one.value for one in found.samples}


def present(series: Series) -> set[tuple[str, ...]]:
    """Labels of what is 1; everything else is 0."""
    assert set(series.values()) <= {0.0, 1.0}
    return {labels for labels, value in series.items() if value == 1.0}


def open_all(client: TestClient) -> None:
    """Look at all galleries, as a running server does."""
    state_of(client.app).galleries.states()  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_calibration_is_told_in_the_words_of_readiness(
    client: TestClient, gallery: Gallery, calibrate: Calibrate
) -> None:
    told = []
    for _ in range(2):
        (readiness,) = client.get("/readyz").json()["galleries"]
        told.append((readiness["calibration"], present(series_of(client, "vicinal_gallery_calibration"))))
        calibrate(gallery)
    assert told == [("none", {("shoes", "none")}), ("current", {("shoes", "current")})]


@pytest.mark.slow
def test_what_cannot_be_read_leaves_the_others_standing(
    client: TestClient, gallery: Gallery, calibrate: Calibrate
) -> None:
    calibrate(gallery)
    shutil.copytree(gallery.path, gallery.path.with_name("boots"))
    open_all(client)
    damage_pointer(gallery.path)
    names = ("items", "index_age_seconds", "integrity", "calibration")
    told = {name: {labels[0] for labels in series_of(client, f"vicinal_gallery_{name}")} for name in names}
    both, boots = {"boots", "shoes"}, {"boots"}
    assert list(told.values()) == [boots, boots, both, boots]
