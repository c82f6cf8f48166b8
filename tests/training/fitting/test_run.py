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

from tests.conftest import add_refiner, write_tiny_bundle  # noqa: E402
from tests.training.conftest import write_class_folders  # noqa: E402
from vicinal.indexer.sources import read_source  # noqa: E402
from vicinal.models.bundle import ModelBundle  # noqa: E402
from vicinal.models.errors import ConfigError  # noqa: E402
from vicinal.models.progress import OnProgress, no_progress  # noqa: E402
from vicinal.service.fitting.labelled_images import hold_out, read_labelled_images  # noqa: E402
from vicinal.training.fitting import run  # noqa: E402
from vicinal.training.fitting.plan import FitSpeed  # noqa: E402
from vicinal.training.fitting.report import LabelLook, PhotosUsed  # noqa: E402
from vicinal.training.fitting.run import Fitting  # noqa: E402

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


DRAWN = """
[[datasets]]
kind = "demo_catalog"
seeds = [101]
products = 8
views = 4
side = 20
"""


def fitting(
    photos: Path,
    output: Path,
    before: ModelBundle,
    report: OnProgress = no_progress,
    *,
    text: str = RECIPE,
    minutes: float = 0.1,
    seed: int = 0,
) -> Fitting:
    path = photos.parent / "recipe.toml"
    path.write_text(text, encoding="utf-8")
    found = read_labelled_images(read_source(photos))
    return Fitting(
        found,
        hold_out(found, seed),
        output,
        before,
        minutes=minutes,
        seed=seed,
        recipe=path,
        report=report,
    )


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return write_class_folders(tmp_path / "photos", n_classes=15, per_class=8, side=20)


@pytest.fixture
def _quick(monkeypatch: pytest.MonkeyPatch, without_picture: None) -> None:
    make_quick(monkeypatch.setattr)


@pytest.fixture(scope="module")
def without_picture() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vicinal.training.log.Figure.savefig", lambda *_, **__: None)
        yield


@pytest.mark.usefixtures("_quick")
def test_a_bundle_and_its_report_come_out(photos: Path, tmp_path: Path, tiny_bundle: ModelBundle) -> None:
    run = fitting(photos, tmp_path / "mine", tiny_bundle)
    said: list[PhotosUsed | LabelLook] = []
    run.on_plan = lambda used, look: said.extend((used, look))
    report = run.run()
    assert [one.model_dump().items() <= report.model_dump().items() for one in said] == [True, True]
    assert ModelBundle.open(tmp_path / "mine").fingerprint == report.fingerprint
    assert (report.n_labels, report.n_held_out_labels, report.n_held_out_photos) == (15, 3, 24)
    assert report.found_after.low <= report.found_after.value <= report.found_after.high
    left = {path.name for path in (tmp_path / "mine").iterdir()}
    assert not left & {"front-maps.npy", "checkpoint.pt", "trial"}
    assert "probe.npz" in left


@pytest.mark.usefixtures("_quick")
def test_only_what_was_asked_for_alike_goes_on(
    photos: Path, tmp_path: Path, tiny_bundle: ModelBundle
) -> None:
    """A run that has ended is no answer to another question either."""
    output = tmp_path / "mine"
    first = fitting(photos, output, tiny_bundle).run()
    other = write_tiny_bundle(tmp_path / "other", seed=1)
    for name, asked in {
        "seed": fitting(photos, output, tiny_bundle, seed=1),
        "minutes": fitting(photos, output, tiny_bundle, minutes=0.2),
        "bundle": fitting(photos, output, other),
        "recipe": fitting(photos, output, tiny_bundle, text=RECIPE + DRAWN),
    }.items():
        with pytest.raises(ConfigError, match=f"was begun with other {name}: "):
            asked.run("resume")
    assert fitting(photos, output, tiny_bundle).run("resume") == first
    one, two = sorted(photos.rglob("*.*"))[:2]
    kept = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(kept)
    with pytest.raises(ConfigError, match="was begun with other photos: "):
        fitting(photos, output, tiny_bundle).run("resume")
    (output / run.PLAN_FILE).unlink()
    with pytest.raises(ConfigError, match="nothing tells"):
        fitting(photos, output, tiny_bundle).run("resume")


@pytest.mark.usefixtures("_quick")
def test_a_gated_refiner_goes_along_with_a_verdict_of_its_own(photos: Path, tmp_path: Path) -> None:
    before = add_refiner(write_tiny_bundle(tmp_path / "before"), form="gated", level=True)
    report = fitting(photos, tmp_path / "mine", before).run()
    section = ModelBundle.open(tmp_path / "mine").manifest.refiner
    assert section is not None
    assert (section.sides, section.rerank) == (report.refine, report.rerank)
    assert section.backbone_fingerprint == report.fingerprint


@pytest.mark.usefixtures("_quick")
def test_a_run_that_is_killed_in_every_stage_goes_on_and_ends_as_one_that_was_not(
    photos: Path, tmp_path: Path, tiny_bundle: ModelBundle
) -> None:
    resumes: list[str] = []
    for stage, number in (("views", 70), ("trial", 12), ("measure", 24), ("train", 3), ("export", 0)):
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
