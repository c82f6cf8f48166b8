"""Run of a fitting with a tiny network: what comes out, and that a killed run goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("timm")
pytest.importorskip("pytorch_metric_learning")

from tests.training.conftest import write_class_folders  # noqa: E402
from vicinal.indexer.sources import read_source  # noqa: E402
from vicinal.models.bundle import ModelBundle  # noqa: E402
from vicinal.models.progress import OnProgress, no_progress  # noqa: E402
from vicinal.service.fitting.labelled_images import hold_out, read_labelled_images  # noqa: E402
from vicinal.training.fitting import run  # noqa: E402
from vicinal.training.fitting.plan import FitSpeed  # noqa: E402
from vicinal.training.fitting.report import PhotosUsed  # noqa: E402
from vicinal.training.fitting.run import Fitting  # noqa: E402

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
RECIPE = """
name = "tiny"
patience = 3
interpolate = true
[backbone]
name = "plain_conv_net"
arguments = { channels = [4, 8] }
dim = 8
frozen_stages = 1
[loss]
name = "contrastive"
[preprocessing]
input_size = 16
fit = "squash"
[sampler]
batch_size = 16
"""
KILLED = """
import os, signal, sys
from pathlib import Path
from vicinal.models.bundle import ModelBundle
from tests.training.fitting.test_run import fitting, make_quick
photos, output, before, stage, number, *resumes = sys.argv[1:]
def die(at, done, _total, _note=""):
    if (at, done) == (stage, int(number)):
        os.kill(os.getpid(), signal.SIGKILL)
make_quick(setattr)
fitting(Path(photos), Path(output), ModelBundle.open(before), die).run(*resumes)
"""


def make_quick(replace: object) -> None:
    """Fix what depends on the machine's speed."""
    assert callable(replace)
    speed = FitSpeed(view=0.01, step=0.01, photo=0.01, batch_size=16, threads=1)
    replace(run, "look_at_speed", lambda _: speed)
    replace(run, "give_form", lambda bundle, *_: bundle)


def fitting(photos: Path, output: Path, before: ModelBundle, report: OnProgress = no_progress) -> Fitting:
    path = photos.parent / "recipe.toml"
    path.write_text(RECIPE, encoding="utf-8")
    found, seed = read_labelled_images(read_source(photos)), 0
    held = hold_out(found, seed)
    return Fitting(found, held, output, before, minutes=0.1, seed=seed, recipe=path, report=report)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return write_class_folders(tmp_path / "photos", n_classes=15, per_class=8, side=20)


@pytest.fixture
def _quick(monkeypatch: pytest.MonkeyPatch, without_picture: None) -> None:
    make_quick(monkeypatch.setattr)


@pytest.mark.usefixtures("_quick")
def test_a_bundle_and_its_report_come_out(photos: Path, tmp_path: Path, tiny_bundle: ModelBundle) -> None:
    run = fitting(photos, tmp_path / "mine", tiny_bundle)
    said: list[PhotosUsed] = []
    run.on_plan = said.append
    report = run.run()
    assert [one.model_dump().items() <= report.model_dump().items() for one in said] == [True]
    assert ModelBundle.open(tmp_path / "mine").fingerprint == report.fingerprint
    assert (report.n_labels, report.n_held_out_labels, report.n_held_out_photos) == (15, 3, 24)
    assert report.found_after.low <= report.found_after.value <= report.found_after.high
    left = {path.name for path in (tmp_path / "mine").iterdir()}
    assert not left & {"front-maps.npy", "checkpoint.pt", "trial"}
    assert "probe.npz" in left


@pytest.mark.usefixtures("_quick")
def test_a_run_that_is_killed_goes_on_and_ends_as_one_that_was_not(
    photos: Path, tmp_path: Path, tiny_bundle: ModelBundle
) -> None:
    resumes: list[str] = []
    for stage, number in (("views", 70), ("train", 3)):
        arguments = [photos, tmp_path / "killed", tiny_bundle.path, stage, number, *resumes]
        done = subprocess.run(
            [sys.executable, "-c", KILLED, *map(str, arguments)],
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
            cwd=ROOT,
            capture_output=True,
            check=False,
        )
        assert done.returncode == -signal.SIGKILL, done.stderr.decode()
        resumes = ["resume"]
    resumed = fitting(photos, tmp_path / "killed", tiny_bundle).run("resume")
    assert resumed.fingerprint == fitting(photos, tmp_path / "whole", tiny_bundle).run().fingerprint
