"""`vicinal export`: a bundle from a timm backbone with its speed and notice, or one line why not."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
timm = pytest.importorskip("timm")
pytest.importorskip("onnxscript")

from tests.service.types import Fail, Run  # noqa: E402
from vicinal.models.bundle import ModelBundle  # noqa: E402
from vicinal.models.probe import read_probe  # noqa: E402

pytestmark = pytest.mark.slow


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    torch.save(timm.create_model("resnet18").state_dict(), tmp_path / "resnet18.pth")
    return tmp_path / "resnet18.pth"


def test_a_bundle_takes_the_form_that_was_asked_for(
    run: Run, weights: Path, tmp_path: Path, catalog: Path
) -> None:
    made = tmp_path / "made"
    options = ["--input-size", "32", "--dim", "24", "--precision", "int8", "--images", catalog]
    options += ["--source", "random numbers", "--licence", "MIT", "--json"]
    printed = run("export", "--backbone", "resnet18", "--weights", weights, "-o", made, *options)
    document = json.loads(printed.stdout)
    assert (document["dim"], document["precision"], document["name"]) == (24, "int8", "resnet18")
    assert document["training"]["head"] == "principal components of 60 images"
    assert {"hit_rate_1", "map_at_r", "mean_cosine"} <= set(document["forms"]["int8"])
    assert ModelBundle.open(made).fingerprint == document["fingerprint"]
    assert "random numbers, licence MIT" in (made / "NOTICE").read_text(encoding="utf-8")
    assert read_probe(ModelBundle.open(made)) is not None
    assert "| **int8** |" in (made / "MODEL_CARD.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("backbone", ["resnet18", "hf-hub:timm/resnet18.a1_in1k"])
def test_without_a_network_the_reason_is_one_line_at_once(
    fail: Fail, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backbone: str
) -> None:
    """The hub's client by itself tries for half a minute."""
    from huggingface_hub import constants

    # Nobody listens there.
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "empty"))
    started = time.monotonic()
    line = fail("export", "--backbone", backbone, "-o", tmp_path / "made")
    assert "cannot be fetched (there is no connection to the hub)" in line
    assert time.monotonic() - started < 25
    assert not constants.HF_HUB_OFFLINE


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--weights", "package"], "no package holds weights of 'resnet18'"),
        (["--weights", "gone.pth"], "there is no weights file 'gone.pth'"),
        (["--weights", "package", "--images", "gone"], "there is no folder 'gone'"),
        (["--weights", "package", "--notice", "gone"], "there is no file 'gone' for --notice"),
    ],
)
def test_wrong_options_are_one_line(fail: Fail, tmp_path: Path, options: list[str], message: str) -> None:
    assert message in fail("export", "--backbone", "resnet18", "-o", tmp_path / "made", *options)
    assert not (tmp_path / "made").exists()
