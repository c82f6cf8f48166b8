"""The page of a gallery: every line is there when it is true, and not when it is not."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.service.types import Calibrate, MakeSettings, Run
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.changes import Patch, patch_items, remove_items
from vicinal.indexer.reader import GalleryReader
from vicinal.models.bundle import ModelBundle
from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.measuring.records.store import CalibrationStore
from vicinal.service.reports.gallery import gallery_lines


@pytest.fixture
def lines(data_dir: Path, gallery: Gallery, make_settings: MakeSettings) -> Callable[..., list[str]]:
    def read(**changes: object) -> list[str]:
        return list(gallery_lines(gallery, ServedBundles(make_settings(data_dir, **changes))))

    return read


def only(lines: list[str], beginning: str) -> str:
    (line,) = (one for one in lines if one.startswith(beginning))
    return line


def test_it_says_what_is_there_and_how_it_is_searched(
    lines: Callable[..., list[str]], gallery: Gallery, tiny_bundle: ModelBundle
) -> None:
    said = lines()
    assert said[0] == f"Gallery shoes: 60 photos with 10 labels, version {gallery.active_version}"
    assert said[1] == "Searches: nearest neighbors, one threshold"
    model = only(said, "Model ")
    assert model.startswith(f"Model {tiny_bundle.name} ({tiny_bundle.fingerprint}), index Flat, ")
    assert model.endswith(" on the disk in 1 version")


def test_it_says_what_the_gallery_holds_now(lines: Callable[..., list[str]], gallery: Gallery) -> None:
    reader = GalleryReader(gallery)
    items = [one for _, one in reader.view().page(None, 1000)]
    first, *others = (one["id"] for one in items if one["label"] == items[0]["label"])
    patch_items(reader, {first: Patch(None), items[-1]["id"]: Patch("new")})
    remove_items(reader, others)
    said = lines()
    held = f"{60 - len(others)} photos with 10 labels"
    assert said[0] == f"Gallery shoes: {held}, version {gallery.active_version}"
    assert {"note: 1 label with one item: 'new'", "note: 1 item without a label"} <= {*said}
    reader.gallery.reports.save(gallery.active_version or 0, {"hygiene": {"n_exact_duplicates": 3}})
    assert lines() == said


def test_without_a_calibration_it_says_how_to_make_one(lines: Callable[..., list[str]]) -> None:
    said = lines()
    assert "has no calibration" in only(said, "No threshold: ")
    assert "To measure one: vicinal calibrate -g shoes" in said
    assert not any("Of 100 matches" in line for line in said)


def test_with_one_it_says_what_it_promises(
    lines: Callable[..., list[str]], gallery: Gallery, calibrate: Calibrate
) -> None:
    made = calibrate(gallery)
    said = lines()
    assert re.fullmatch(rf"Threshold 0\.\d{{4}}: .+ %, calibration {made}", only(said, "Threshold "))
    assert "; of 100 photos of things you have, " in only(said, "  Of 100 matches that are shown, ")
    assert not any("To measure one" in line for line in said)


def test_a_calibration_that_decides_nothing_is_not_promised(
    lines: Callable[..., list[str]], gallery: Gallery, calibrate: Calibrate
) -> None:
    """It was made with a bundle that the gallery is not searched with any more."""
    store = CalibrationStore(gallery.path)
    made = store.get(calibrate(gallery))
    store.add(made.model_copy(update={"id": "other", "bundle": "other"}))
    said = lines()
    assert "was made with bundle other" in only(said, "No threshold: ")
    assert "To measure one: vicinal calibrate -g shoes" in said
    assert not any("Of 100 matches" in line for line in said)


def test_a_gallery_whose_bundle_is_elsewhere_is_still_described(
    lines: Callable[..., list[str]], write_bundle: Callable[..., ModelBundle], tmp_path: Path
) -> None:
    said = lines(bundle=write_bundle(tmp_path / "other", seed=1).path)
    assert said[0].startswith("Gallery shoes: 60 photos")
    assert "bundle" in only(said, "It cannot be searched here: ")
    assert not any(line.startswith(("Searches", "Threshold")) for line in said)


def test_the_command_prints_json_on_request(run: Run, data_dir: Path) -> None:
    assert json.loads(run("gallery", "show", "shoes", "--json").stdout)["n_items"] == 60
