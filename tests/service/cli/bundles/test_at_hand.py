"""`vicinal bundle`: a model of the hub becomes a bundle that galleries find again, and bundles are listed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hub_models import FAMILIES, SIDE, configured, network
from tests.hub_server import put_model
from tests.service.types import Fail, Run
from tests.web_server import WebServer, serving
from vicinal.models.bundle import BACKBONE_FILE, ModelBundle
from vicinal.models.probe import read_probe
from vicinal.service.training import HUB_MODELS

hub_constants = pytest.importorskip("huggingface_hub.constants")
ROOT = Path(__file__).resolve().parents[4]
PROCESSOR = {"size": {"height": SIDE, "width": SIDE}, "resample": 3}
PROCESSOR |= {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
FILES = configured({"onnx/model.onnx": network("image_embeds")}, "clip_vision_model", PROCESSOR)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[WebServer]:
    with serving() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url(""))
        monkeypatch.delenv("HF_TOKEN", raising=False)
        monkeypatch.setattr(hub_constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        put_model(server, "art/eye", FILES, card={"license": "mit"})
        yield server


def test_a_fetched_model_is_found_by_its_galleries_without_being_named(
    run: Run, hub: WebServer, tmp_path: Path, catalog: Path
) -> None:
    made = tmp_path / "data" / "bundles" / "eye"
    result = run("bundle", "get", "hf:art/eye")
    assert "licence mit" in result.output
    assert f"--bundle {made}" in result.stdout
    assert read_probe(ModelBundle.open(made)) is not None
    assert "licence mit" in (made / "NOTICE").read_text(encoding="utf-8")
    card = (made / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert "Its embedding is image_embeds of the network that it was made from" in card
    run("index", catalog, "-g", "own", "--bundle", "eye")
    query = next(catalog.glob("*/*.png"))
    answer = json.loads(run("search", query, "-g", "own", "--json").stdout)
    assert answer["bundle"] == ModelBundle.open(made).fingerprint
    listed = {one["name"]: one for one in json.loads(run("bundle", "list", "--json").stdout)}
    assert (listed["eye"]["galleries"], listed["eye"]["licence"]) == (["own"], "mit")
    assert {"eye", "tiny", "vicinal-photos"} == set(listed)
    shown = run("bundle", "show", "eye").stdout
    assert all(word in shown for word in ("image_embeds", "mit", "SHA-256 of onnx/model.onnx", "own"))
    assert json.loads(run("bundle", "show", made, "--json").stdout)["fingerprint"] == answer["bundle"]
    assert "own" in run("bundle", "list").stdout


def test_a_check_tells_a_sound_bundle_from_a_damaged_one(run: Run, hub: WebServer, tmp_path: Path) -> None:
    run("bundle", "get", "hf:art/eye")
    (one,) = json.loads(run("bundle", "check", "eye", "--json").stdout)
    assert (one["name"], one["state"], "parity" in one["says"]) == ("network", "ok", True)
    (tmp_path / "data" / "bundles" / "eye" / BACKBONE_FILE).write_bytes(b"damaged")
    with pytest.raises(AssertionError, match=r"failed.*is damaged or was changed"):
        run("bundle", "check", "eye")


def test_a_bundle_is_replaced_when_asked_to_and_stays_where_that_fails(
    run: Run, fail: Fail, hub: WebServer, tmp_path: Path
) -> None:
    made = tmp_path / "data" / "bundles" / "eye"
    run("bundle", "get", "hf:art/eye")
    before = ModelBundle.open(made).fingerprint
    assert "exists: choose another --output" in fail("bundle", "get", "hf:art/eye")
    put_model(hub, "art/eye", {**FILES, "onnx/model.onnx": b"<html>"})
    assert "is no ONNX file" in fail("bundle", "get", "hf:art/eye", "--overwrite")
    assert ModelBundle.open(made).fingerprint == before
    put_model(hub, "art/eye", {**FILES, "onnx/model.onnx": network("pooler_output")})
    run("bundle", "get", "hf:art/eye", "--overwrite")
    assert ModelBundle.open(made).fingerprint != before
    assert [one.name for one in made.parent.iterdir()] == ["eye"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["get", "dinov9"], "'dinov9' names no model: give hf:owner/name"),
        (["get", "hf:art/eye", "--notice", "gone"], "there is no file 'gone' for --notice"),
        (["get", "hf:art/gone"], "the hub has no model 'hf:art/gone'"),
        (["get", "hf:art/eye", "--file", "b.onnx"], "has no ONNX file 'b.onnx', only onnx/model.onnx"),
        (["get", "hf:art/eye", "--name", "../Eye"], "--name '../Eye' is no name of a bundle"),
        (["show", "gone"], "'gone' is no model bundle: it has no bundle.json"),
        (["check", "gone"], "'gone' is no model bundle: it has no bundle.json"),
    ],
)
def test_what_cannot_be_done_is_one_line(fail: Fail, hub: WebServer, words: list[str], message: str) -> None:
    assert message in fail("bundle", *words)


def test_short_names_are_listed(run: Run) -> None:
    assert json.loads(run("bundle", "get", "--json").stdout) == HUB_MODELS
    assert "onnx-community/dinov2-small" in run("bundle", "get").stdout


WITHOUT_TORCH = """
import json, sys

TRAINING = {"torch", "timm", "torchvision", "pytorch_metric_learning", "onnxscript", "sklearn", "scipy"}

class Refuses:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in TRAINING:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refuses())
from vicinal.service.cli.main import app

home, photos, query, *names = sys.argv[1:]
for name in names:
    made = f"{home}/bundles/{name}"
    for words in (
        ["bundle", "get", name],
        ["index", photos, "-g", name, "--bundle", made],
        ["calibrate", "-g", name],
        ["search", query, "-g", name, "--json"],
    ):
        app([*words, "--data-dir", home], standalone_mode=False)
assert not TRAINING & set(sys.modules)
"""


@pytest.mark.slow
def test_each_family_is_fetched_indexed_calibrated_and_searched_without_torch(
    hub: WebServer, tmp_path: Path, catalog: Path
) -> None:
    for make, name, _ in FAMILIES:
        put_model(hub, HUB_MODELS[name], make(tmp_path))
    query = sorted(catalog.glob("*/*.png"))[3]
    names = [name for _, name, _ in FAMILIES]
    environment = {"HF_ENDPOINT": hub.url(""), "HF_HOME": str(tmp_path / "cache"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, str(tmp_path / "home"), str(catalog), str(query), *names],
        capture_output=True,
        text=True,
        cwd=ROOT / "src",
        env={**environment, "OMP_NUM_THREADS": "1", "VICINAL_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers = [json.loads(one) for one in _documents(done.stdout)]
    expected = f"{catalog.name}/{query.relative_to(catalog).as_posix()}"
    assert [one["matches"][0]["id"] for one in answers] == [expected] * len(names)
    assert len({one["bundle"] for one in answers}) == len(names)


def _documents(text: str) -> list[str]:
    """JSON documents among lines for people."""
    found, decoder = [], json.JSONDecoder()
    at = text.find("\n{")
    while at >= 0:
        _, end = decoder.raw_decode(text, at + 1)
        found.append(text[at + 1 : end])
        at = text.find("\n{", end)
    return found
