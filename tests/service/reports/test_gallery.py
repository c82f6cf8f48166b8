"""The page of a gallery: every line is there when it is true, and not when it is not."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.service.kept_searches import keep_searches
from tests.service.types import Calibrate, MakeSettings, Run, View
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.hygiene import Hygiene
from vicinal.models.bundle import ModelBundle
from vicinal.service.answering.store import SearchStore
from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.measuring.records.store import CalibrationStore
from vicinal.service.reports.gallery import gallery_lines
from vicinal.service.words import hygiene_lines, mebibytes


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


def test_kept_searches_are_counted(lines: Callable[..., list[str]], matcher: Matcher, view: View) -> None:
    assert not [one for one in lines() if one.startswith("Kept")]
    keep_searches(matcher, view, n=2)
    store = SearchStore(matcher.gallery.path)
    assert only(lines(), "Kept") == f"Kept for review: 2 searches, {mebibytes(store.n_bytes)} of these"
    store.path.write_bytes(b"no such file" * 1000)
    assert only(lines(), "Kept").startswith("Kept for review: a file that cannot be read, ")


def test_the_size_is_that_of_the_folder(lines: Callable[..., list[str]], gallery: Gallery) -> None:
    before = only(lines(), "Model ")
    (gallery.path / "more").write_bytes(bytes(5 * 2**20))
    sizes = [float(re.findall(r"([\d.]+) MiB", text)[0]) for text in (before, only(lines(), "Model "))]
    assert sizes[1] - sizes[0] == pytest.approx(5.0, abs=0.11)


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


def test_a_threshold_of_another_pipeline_is_not_promised(
    lines: Callable[..., list[str]], gallery: Gallery, calibrate: Calibrate
) -> None:
    """Negative control: the calibration is there, but not for these searches."""
    calibrate(gallery)
    said = lines(pipeline={"rerank": {"method": "contextual"}})
    assert said[1] == "Searches: nearest neighbors, re-ranked by shared neighbors, one threshold"
    assert not any("Of 100 matches" in line for line in said)


def test_a_calibration_that_decides_nothing_is_not_promised(
    lines: Callable[..., list[str]], gallery: Gallery, calibrate: Calibrate
) -> None:
    """It was made with a bundle that the gallery is not searched with any more."""
    store = CalibrationStore(gallery.calibrations_path)
    made = store.get(calibrate(gallery))
    store.add(
        made.model_copy(
            update={"id": "other", "bundle": "other", "scores_sha256": None, "curves_sha256": None}
        )
    )
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


def test_it_notes_what_was_found_when_the_version_was_made(
    lines: Callable[..., list[str]], gallery: Gallery
) -> None:
    version = gallery.active_version or 0
    report = gallery.reports.of(version)
    assert not any(line.startswith("note: ") for line in lines())
    report["hygiene"].update(n_near_duplicates=2, near_duplicates=[["a", "b"], ["c", "d"]], n_unlabelled=3)
    gallery.reports.save(version, {**report, "failures": [{"id": "x", "path": "x", "reason": "broken"}]})
    assert [line for line in lines() if line.startswith("note: ")] == [
        "note: 1 photo could not be read, see --json",
        "note: 2 pairs of near duplicates, such as 'a' and 'b'",
        "note: 3 items without a label",
    ]


def test_a_version_without_a_report_has_no_notes(lines: Callable[..., list[str]], gallery: Gallery) -> None:
    gallery.reports.save(gallery.active_version or 0, {"kind": "compaction"})
    assert not any(line.startswith("note: ") for line in lines())


def test_a_clean_gallery_has_no_hygiene_lines() -> None:
    assert list(hygiene_lines(Hygiene())) == []
    found = Hygiene(n_single_image_labels=1200, single_image_labels=["cap"])
    assert list(hygiene_lines(found)) == ["1,200 labels with one item, such as 'cap'"]


@pytest.mark.parametrize(
    ("n_bytes", "text"), [(0, "0.0 MiB"), (2**20, "1.0 MiB"), (3 * 2**30, "3,072.0 MiB")]
)
def test_sizes_are_told_in_mebibytes(n_bytes: int, text: str) -> None:
    assert mebibytes(n_bytes) == text


def test_the_command_prints_the_page_and_after_changes_how_to_compact(
    run: Run, data_dir: Path, tmp_path: Path, view: View
) -> None:
    view(60, 1).save(tmp_path / "new.png")
    run("gallery", "add", "shoes", tmp_path / "new.png", "--label", "hat")
    said = run("gallery", "show", "shoes").stdout.splitlines()
    assert said[0].startswith("Gallery shoes: 61 photos with 11 labels, version ")
    assert re.search(r"1\.64 % of the photos have changed .*: vicinal gallery compact shoes$", said[-1])
    assert len(said) < 12


def test_the_command_prints_json_on_request(run: Run, data_dir: Path) -> None:
    assert json.loads(run("gallery", "show", "shoes", "--json").stdout)["n_items"] == 60
