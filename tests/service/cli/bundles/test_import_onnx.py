"""`vicinal import`: a ready file becomes a bundle that can be searched with, or one line why not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.service.types import Fail, Run
from vicinal.models.bundle import ModelBundle
from vicinal.models.probe import read_probe


@pytest.fixture
def model(tiny_bundle: ModelBundle) -> Path:
    return tiny_bundle.backbone_path


@pytest.mark.slow
def test_an_imported_bundle_is_measured_and_searched_with(
    run: Run, model: Path, tmp_path: Path, catalog: Path
) -> None:
    made = tmp_path / "a bundle"
    result = run("import", model, "-o", made, "--fit", "squash", "--mean", "0.5", "--std", "0.5,0.5,0.5")
    assert "images/s" in result.stdout
    assert f"Next: vicinal index photos/ --gallery shop --bundle '{made}'" in result.stdout
    assert ModelBundle.open(made).manifest.preprocessing.mean == (0.5, 0.5, 0.5)
    assert read_probe(ModelBundle.open(made)) is not None
    assert "Made from `backbone.onnx`" in (made / "MODEL_CARD.md").read_text(encoding="utf-8")
    run("index", catalog, "--gallery", "own", "--bundle", made)


@pytest.mark.slow
def test_a_script_gets_json(run: Run, model: Path, tmp_path: Path) -> None:
    printed = run("import", model, "-o", tmp_path / "made", "--name", "mine", "--licence", "MIT", "--json")
    document = json.loads(printed.stdout)
    assert (document["name"], document["licence"]) == ("mine", "MIT")
    assert document["fingerprint"] == ModelBundle.open(tmp_path / "made").fingerprint


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--mean", "a,b,c"], "--mean 'a,b,c' holds no numbers: write them as 0.5,0.5,0.5"),
        (["--std", "1,1"], "--std takes three numbers or one for all colors, got 2"),
        (["--std", "1,0,1"], "--std '1,0,1' has to be above 0"),
        (["--input-size", "64"], "32 x 32 pixels, expected 64 x 64, as --input-size says"),
        (["--notice", "gone"], "there is no file 'gone' for --notice"),
    ],
)
def test_wrong_options_are_one_line(
    fail: Fail, model: Path, tmp_path: Path, options: list[str], message: str
) -> None:
    assert message in fail("import", model, "-o", tmp_path / "made", *options)
    assert not (tmp_path / "made").exists()
