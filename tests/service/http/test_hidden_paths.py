"""Paths and processes of the server are for its operator: a key for some galleries reads none of them."""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.service.types import MakeSettings
from vicinal.models.bundle import ModelBundle
from vicinal.service.http.app import create_app
from vicinal.service.http.state import state_of
from vicinal.service.jobs.records import new_job
from vicinal.service.keys import KeyStore
from vicinal.service.settings import SCOPES, Scope, Settings

OPENAPI = Path(__file__).parents[3] / "openapi.json"
Damage = Callable[[Settings], object]


def _garble(pattern: str) -> Damage:
    """Write noise over each file of the data folder that a pattern names."""

    def garble(settings: Settings) -> None:
        found = [path for path in settings.data_dir.parent.rglob(pattern) if path.is_file()]
        assert found
        for path in found:
            _noise(path)

    return garble


def _noise(path: Path) -> None:
    path.write_bytes(b"noise" * 1000)


def _remove(pattern: str) -> Damage:
    def remove(settings: Settings) -> None:
        found = list(settings.data_dir.rglob(pattern))
        assert found
        for path in found:
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return remove


def _folder_at(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir(parents=True)


# Each with what tells that it was met.
DAMAGES: dict[str, tuple[Damage, str]] = {
    "nothing": (lambda _: None, "item-not-found"),
    "rows": (_remove("items.lance"), "gallery-files-damaged"),
    "bundle": (_garble("bundles/first/backbone.onnx"), "bundle-mismatch"),
    "keys": (lambda settings: _noise(settings.data_dir / "server.db"), "keys-damaged"),
    "state": (
        lambda settings: _noise(settings.gallery_path("shoes") / "gallery.db"),
        "gallery-files-damaged",
    ),
    "audit": (lambda settings: _folder_at(settings.data_dir / "audit" / "audit.jsonl"), "storage-failed"),
}
ITEM = "plain/view 0.png"
PARAMETERS = {"id": ITEM, "space": "clip", "dim": 3}
# What is sent to the routes that take a body, by the end of their address; others get none.
BODIES: dict[str, list[dict[str, Any]]] = {
    "/search": [{"item_id": ITEM}, {"item_id": "none"}],
    "/search/batch": [{"queries": [{"item_id": ITEM}]}],
    "/items": [{"items": [{"id": "a", "embedding": [1.0, 0.0]}]}],
    "/items/delete": [{"ids": ["none"]}],
    "/item": [{"label": "x"}],
    "/calibrations": [{"target": "fpir=20%"}, {"target": "fpir=20%", "queries": "../no-such.csv"}],
    "/dry_run": [{"target": "fpir=20%"}],
    "/roll_back": [{}],
    "/check": [{"queries": "no-such.csv"}],
    "/threshold": [{"threshold": 0.5}],
    "/comparisons": [{"target": "fpir=20%"}],
    "/duplicates": [{}],
    "/labelling": [{}],
    "/reindex": [{"source": "no such folder"}, {"source": ".", "bundle": "none"}, {"source": "../../etc"}],
    "/answers": [{"search_id": "x", "absent": True}],
}


@pytest.fixture
def settings(
    calibrated_base: Path, tiny_bundle: ModelBundle, tmp_path: Path, make_settings: MakeSettings
) -> Settings:
    shutil.copytree(calibrated_base, tmp_path / "data")
    shutil.copytree(tiny_bundle.path, tmp_path / "bundles" / "first")
    (tmp_path / "sources").mkdir()
    return make_settings(
        tmp_path / "data",
        run_jobs=False,
        bundle=tmp_path / "bundles" / "first",
        bundles_dir=tmp_path / "bundles",
        sources_dir=tmp_path / "sources",
    )


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_key_for_one_gallery_reads_no_path_of_the_server(
    settings: Settings, tmp_path: Path, write_bundle: Callable[[Path, int], object], damage: str
) -> None:
    _, key = KeyStore(settings.data_dir).create("mine", SCOPES, galleries=["shoes"])
    paths: dict[str, dict[str, Any]] = json.loads(OPENAPI.read_text(encoding="utf-8"))["paths"]
    answers = []
    damaged, kind = DAMAGES[damage]
    if damage == "bundle":
        # The service runs another one, and that of the gallery lies beside it.
        write_bundle(settings.bundles_dir / "second", 7)
        settings = settings.model_copy(update={"bundle": settings.bundles_dir / "second"})
    damaged(settings)
    with TestClient(create_app(settings), raise_server_exceptions=False) as client:
        client.headers["authorization"] = f"Bearer {key}"
        for path, operations in paths.items():
            bodies = next((found for end, found in BODIES.items() if path.endswith(end)), [{}])
            # A parameter that is new is named too.
            given = defaultdict(lambda: "x", gallery="shoes", version="1", number="1")
            named = path.format_map(given)
            for method, operation in operations.items():
                if (method, path) == ("delete", "/v1/galleries/{gallery}"):
                    continue
                takes = {one["name"] for one in operation.get("parameters", [])}
                params = {name: value for name, value in PARAMETERS.items() if name in takes}
                for body in bodies if method in {"post", "patch", "put"} else [None]:
                    answer = client.request(method, named, json=body, params=params)
                    answers.append((method, path, answer.status_code, answer.text))
        # What was begun in the background has ended, and says of what.
        state_of(client.app).galleries.wait()
        for path in ("/v1/jobs", "/v1/galleries/shoes/compaction"):
            answer = client.get(path)
            answers.append(("get", path, answer.status_code, answer.text))
    assert [one for one in answers if str(tmp_path) in one[3]] == []
    assert any(kind in text for _, _, _, text in answers)


def test_a_job_tells_a_key_for_one_gallery_nothing_of_the_server(settings: Settings, tmp_path: Path) -> None:
    """In the list, alone and as an event; who may see all galleries reads what failed and where."""
    keys = KeyStore(settings.data_dir)
    _, mine = keys.create("mine", SCOPES, galleries=["shoes"])
    _, everything = keys.create("all", SCOPES)
    problem = f"'{tmp_path}/data/galleries/shoes/gallery.db' is damaged"
    failed = {"state": "failed", "problem": problem}
    with TestClient(create_app(settings)) as client:
        jobs = state_of(client.app).jobs
        job = jobs.create(new_job("reindex", "shoes", {}))
        kind = "urn:vicinal:problem:gallery-damaged"
        jobs.finish(jobs.claim("host:4711", 60.0), **failed, problem_type=kind)
        for path in ("", f"/{job.id}", f"/{job.id}/events"):
            limited, whole = (
                client.get(f"/v1/jobs{path}", headers={"authorization": f"Bearer {key}"}).text
                for key in (mine, everything)
            )
            assert "gallery damaged: the server's log has the details" in limited
            assert not any(text in limited for text in (str(tmp_path), "4711"))
            assert all(text in whole for text in (str(tmp_path), "4711"))


@pytest.mark.parametrize("galleries", [None, ["shoes"]])
@pytest.mark.parametrize("scopes", [["search"], ["search", "write"], ["admin"], SCOPES])
def test_places_of_items_are_for_who_sees_all_galleries_and_more_than_searches(
    settings: Settings, scopes: Sequence[Scope], galleries: list[str] | None
) -> None:
    _, key = KeyStore(settings.data_dir).create("one", scopes, galleries=galleries)
    with TestClient(create_app(settings), headers={"authorization": f"Bearer {key}"}) as client:
        (item,) = client.get("/v1/galleries/shoes/items?size=1").json()["items"]
        found = client.post("/v1/galleries/shoes/search", json={"item_id": item["id"], "threshold": 0.0})
    expected = "/" if galleries is None and scopes != ["search"] else ""
    assert [one["uri"][:1] for one in (item, found.json()["matches"][0])] == [expected] * 2
