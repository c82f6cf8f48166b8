"""`vicinal calibration check`: its sentence, its exit status, and what it needs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.service.types import Calibrate, Fail, Run, View
from vicinal.indexer.gallery import Gallery
from vicinal.service.cli import app


@pytest.fixture
def record_id(gallery: Gallery, calibrate: Calibrate) -> str:
    return calibrate(gallery)


@pytest.fixture
def photos(catalog: Path, view: View, tmp_path: Path) -> Path:
    """New views of every label of the gallery, and of two that it lacks."""
    folder = tmp_path / "new photos"
    names = [*(path.name for path in catalog.iterdir()), "absent", "gone"]
    for label in names:
        (folder / label).mkdir(parents=True)
    for path in catalog.iterdir():
        shutil.copy(path / "view 1.png", folder / path.name / "view.png")
    for number, label in ((30, "absent"), (31, "gone")):
        for look in range(2):
            view(number, look).save(folder / label / f"view {look}.png")
    return folder


@pytest.fixture
def mislabelled(catalog: Path, tmp_path: Path) -> Path:
    """Photos of the gallery under names that it does not have: each gets an answer that it should not."""
    folder = tmp_path / "mislabelled"
    for path in catalog.iterdir():
        shutil.copytree(path, folder / f"not {path.name}")
    return folder


def outcome(*arguments: object) -> Result:
    given = [str(one) for one in ("calibration", "check", "-g", "shoes", *arguments)]
    return CliRunner().invoke(app, given, catch_exceptions=False)


@pytest.mark.slow
def test_the_first_line_says_whether_the_promise_holds(run: Run, record_id: str, photos: Path) -> None:
    first = run("calibration", "check", "-g", "shoes", "--queries", photos).stdout.splitlines()[0]
    assert "of 10 photos of things you have (10 labels), 10 were found; promised were" in first
    assert "of 4 photos of things you do not have (2 labels), 0 got an answer" in first


@pytest.mark.slow
def test_a_broken_promise_says_what_to_do_and_exits_with_1(
    cli_environment: None, record_id: str, mislabelled: Path
) -> None:
    result = outcome("--queries", mislabelled)
    first = result.stdout.splitlines()[0]
    assert (result.exit_code, first.startswith("What was promised does NOT hold: ")) == (1, True)
    assert first.endswith(f"vicinal calibrate --queries {mislabelled} -g shoes")


@pytest.mark.slow
def test_json_holds_everything_and_details_only_what_stands_behind(
    run: Run, record_id: str, photos: Path
) -> None:
    arguments = ("calibration", "check", "-g", "shoes", "--queries", photos)
    found: dict[str, Any] = json.loads(run(*arguments, "--json").stdout)
    assert (found["calibration"], set(found["rates"])) == (record_id, {"fnir", "fpir"})
    plain, details = run(*arguments).stdout, run(*arguments, "--details").stdout
    assert ("probability" in plain, "probability" in details) == (False, True)
    assert found["sentence"] in plain
    shown = run("calibration", "show", record_id, "-g", "shoes").stdout
    assert found["sentence"] in shown


@pytest.mark.slow
def test_too_few_photos_cannot_tell_and_exit_with_0(
    cli_environment: None, record_id: str, photos: Path
) -> None:
    """Two photos of one thing that the gallery does not have."""
    for path in photos.iterdir():
        if path.name not in ("absent", "plain"):
            shutil.rmtree(path)
    result = outcome("--queries", photos)
    first = result.stdout.splitlines()[0]
    assert (result.exit_code, first.startswith("Whether what was promised holds cannot be told")) == (0, True)
    assert "labels to tell" in first


@pytest.mark.slow
def test_a_broken_promise_is_json_alone_with_the_same_exit_status(
    cli_environment: None, record_id: str, mislabelled: Path
) -> None:
    """Whoever reads the answer by a program finds the photos that were left out on the other channel."""
    (mislabelled / "not plain" / "torn.png").write_bytes(b"no picture")
    result = outcome("--queries", mislabelled, "--json")
    found = json.loads(result.stdout)
    assert (result.exit_code, found["verdict"], found["n_queries"]) == (1, "broken", 60)
    assert "left out" in result.stderr
    assert "torn.png" in result.stderr


@pytest.mark.slow
def test_a_check_changes_nothing_that_searches_use(
    cli_environment: None, record_id: str, gallery: Gallery, mislabelled: Path
) -> None:
    """Even a broken promise leaves the threshold in force."""
    folder = gallery.calibrations_path
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    assert outcome("--queries", mislabelled).exit_code == 1
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


@pytest.mark.slow
def test_live_changes_are_left_out_and_it_says_so(run: Run, record_id: str, photos: Path) -> None:
    """The built version is searched, in which the removed item still is."""
    arguments = ("calibration", "check", "-g", "shoes", "--queries", photos)
    before = json.loads(run(*arguments, "--json").stdout)
    run("gallery", "remove", "shoes", "plain/view 0.png")
    after = json.loads(run(*arguments, "--json").stdout)
    assert [before["warnings"], after["rates"]] == [[], before["rates"]]
    (warning,) = after["warnings"]
    assert warning.startswith("1 live changes were left out")
    assert "vicinal gallery compact shoes" in warning
    assert f"  note: {warning}" in run(*arguments).stdout.splitlines()


@pytest.mark.slow
def test_a_gallery_that_has_changed_much_is_tried_with_a_warning(
    run: Run, record_id: str, photos: Path, catalog: Path
) -> None:
    gone = [f"{path.parent.name}/{path.name}" for path in sorted(catalog.glob("*/view [0-2].png"))]
    run("gallery", "remove", "shoes", *gone)
    found = json.loads(run("calibration", "check", "-g", "shoes", "--queries", photos, "--json").stdout)
    assert any("of the items have changed since" in one for one in found["warnings"])


@pytest.mark.slow
def test_photos_that_are_not_there_are_an_error(fail: Fail, record_id: str, tmp_path: Path) -> None:
    assert "nowhere" in fail("calibration", "check", "-g", "shoes", "--queries", tmp_path / "nowhere")


def test_an_unknown_calibration_is_an_error_before_photos_are_read(
    fail: Fail, record_id: str, tmp_path: Path
) -> None:
    queries = ("--queries", tmp_path / "nowhere")
    line = fail("calibration", "check", "-g", "shoes", *queries, "--calibration", "unknown")
    assert ("unknown" in line, "nowhere" in line) == (True, False)


@pytest.mark.slow
def test_a_threshold_by_hand_can_be_in_force_while_an_earlier_promise_is_tried(
    run: Run, record_id: str, photos: Path
) -> None:
    run("calibration", "set", "0.4", "-g", "shoes")
    arguments = ("--queries", photos, "--calibration", record_id, "--json")
    found = json.loads(run("calibration", "check", "-g", "shoes", *arguments).stdout)
    assert (found["calibration"], set(found["rates"])) == (record_id, {"fnir", "fpir"})
    assert any("is not in force" in one for one in found["warnings"])


def test_nothing_in_force_is_no_promise(fail: Fail, data_dir: Path, photos: Path) -> None:
    line = fail("calibration", "check", "-g", "shoes", "--queries", photos)
    assert ("no calibration in force" in line, "vicinal calibrate -g shoes" in line) == (True, True)


def test_the_calibration_of_another_pipeline_is_named(
    fail: Fail, record_id: str, photos: Path, gallery: Gallery
) -> None:
    line = fail("calibration", "check", "-g", "shoes", "--queries", photos, "--rerank", "contextual")
    assert ("for 'rerank=contextual" in line, "there is one for 'rerank=off'" in line) == (True, True)


def test_a_threshold_set_by_hand_promises_nothing(run: Run, fail: Fail, data_dir: Path, photos: Path) -> None:
    run("calibration", "set", "0.4", "-g", "shoes")
    assert "was set by hand" in fail("calibration", "check", "-g", "shoes", "--queries", photos)


def test_photos_without_labels_are_refused(fail: Fail, record_id: str, catalog: Path) -> None:
    line = fail("calibration", "check", "-g", "shoes", "--queries", catalog / "plain")
    assert ("6 of 6 queries" in line, "a folder a label" in line) == (True, True)


@pytest.mark.slow
def test_another_calibration_can_be_tried_and_is_told_apart(
    run: Run, record_id: str, gallery: Gallery, calibrate: Calibrate, photos: Path
) -> None:
    calibrate(gallery)
    arguments = ("calibration", "check", "-g", "shoes", "--queries", photos, "--calibration", record_id)
    found = json.loads(run(*arguments, "--json").stdout)
    assert found["calibration"] == record_id
    assert any("is not in force" in one for one in found["warnings"])


def test_the_exit_status_is_in_the_help(cli_environment: None) -> None:
    text = " ".join(CliRunner().invoke(app, ["calibration", "check", "--help"]).stdout.split())
    assert "1 if it is broken" in text
