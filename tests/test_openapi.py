"""The committed API document is the one that is served."""

from __future__ import annotations

import json
from pathlib import Path

from vicinal.models.bundle import ModelBundle
from vicinal.service.http.app import create_app
from vicinal.service.settings import Settings

COMMITTED = Path(__file__).resolve().parents[1] / "openapi.json"


def test_openapi_json_equals_what_is_served(tiny_bundle: ModelBundle, tmp_path: Path) -> None:
    """When it does not: `make openapi`."""
    served = create_app(Settings(bundle=tiny_bundle.path, data_dir=tmp_path)).openapi()
    assert json.loads(COMMITTED.read_text(encoding="utf-8")) == json.loads(json.dumps(served))


def test_every_route_has_a_summary(tiny_bundle: ModelBundle, tmp_path: Path) -> None:
    paths = create_app(Settings(bundle=tiny_bundle.path, data_dir=tmp_path)).openapi()["paths"]
    calls = [call for path in paths.values() for call in path.values()]
    assert all(call["description"] for call in calls)
