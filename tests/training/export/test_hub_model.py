"""Models of the hub: each family becomes a bundle of its ONNX file, and whatever is wrong is one sentence."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest

from tests.hub_models import DIM, FAMILIES, SIDE, configured, embedded, network
from tests.hub_server import put_model, refuses, sends_parts
from tests.web_server import WebServer, serving
from vicinal.models.bundle import ModelBundle
from vicinal.models.embedder import Embedder
from vicinal.models.errors import BundleError, ConfigError, HubError
from vicinal.models.similarity import normalize
from vicinal.training.export.hub_model import HUB_MODELS, bundle_from_hub, hub_model

hub_constants = pytest.importorskip("huggingface_hub.constants")
NAME = "art/eye"
SQUASH = {
    "size": {"height": SIDE, "width": SIDE},
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
    "resample": 3,
}
FILES = configured({"onnx/model.onnx": network("image_embeds")}, "clip_vision_model", SQUASH)


@pytest.fixture(scope="module")
def running() -> Iterator[WebServer]:
    with serving() as server:
        yield server


@pytest.fixture
def hub(running: WebServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> WebServer:
    running.answers.clear()
    running.asked.clear()
    monkeypatch.setenv("HF_ENDPOINT", running.url(""))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(hub_constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return running


Get = Callable[..., ModelBundle]


@pytest.fixture
def get(hub: WebServer, tmp_path: Path) -> Get:
    def run(name: str = f"hf:{NAME}", **options: object) -> ModelBundle:
        return bundle_from_hub(hub_model(name), tmp_path / "made", "made", **options)  # type: ignore[arg-type]

    return run


@pytest.mark.parametrize(("make", "name", "output"), FAMILIES, ids=[name for _, name, _ in FAMILIES])
def test_each_family_becomes_a_bundle_of_its_embedding(
    hub: WebServer, get: Get, tmp_path: Path, make: Callable[..., dict[str, bytes]], name: str, output: str
) -> None:
    files = make(tmp_path)
    commit = put_model(hub, HUB_MODELS[name], files)
    bundle = get(name)
    images = np.random.default_rng(0).normal(size=(3, 3, SIDE, SIDE)).astype(np.float32)
    embedder = Embedder(bundle, device="cpu", threads=1)
    made = embedder.finish(embedder.infer(list(images)))
    assert made == pytest.approx(normalize(embedded(images)), abs=1e-5)
    taken = bundle.manifest.training["hub"]
    assert (taken["repository"], taken["revision"], taken["output"]) == (HUB_MODELS[name], commit, output)
    assert not any("text_model" in one for one in hub.asked)


def test_revision_checksums_licence_and_source_are_kept(hub: WebServer, get: Get) -> None:
    commit = put_model(hub, NAME, FILES, revision="v1", card={"license": "mit"})
    notes: list[str] = []
    manifest = get(f"hf:{NAME}@v1", on_note=notes.append).manifest
    sha256 = hashlib.sha256(FILES["onnx/model.onnx"]).hexdigest()
    assert manifest.training["hub"]["files"] == {"onnx/model.onnx": sha256}
    assert (manifest.licence, manifest.dim, manifest.backbone) == ("mit", DIM, "clip_vision_model")
    assert manifest.source == f"{NAME} of the hub of Hugging Face, commit {commit}"
    assert f"{NAME} at {commit[:12]}: onnx/model.onnx" in notes[0]
    assert notes[0].endswith("licence mit")
    assert notes[1] == "The embedding is image_embeds"


@pytest.mark.parametrize(
    ("card", "base", "licence"),
    [
        (
            {"license": "other", "license_name": "own", "license_link": "https://a.b/c"},
            {},
            "own (https://a.b/c)",
        ),
        ({"base_model": ["art/first"]}, {"license": "apache-2.0"}, "apache-2.0"),
        ({"base_model": "art/gone"}, {"license": "apache-2.0"}, "unknown"),
    ],
)
def test_a_licence_is_that_of_the_model_it_was_made_of_where_it_says_none(
    hub: WebServer, get: Get, card: dict[str, object], base: dict[str, object], licence: str
) -> None:
    put_model(hub, NAME, FILES, card=card)
    put_model(hub, "art/first", {}, card=base)
    assert get().manifest.licence == licence


def test_content_that_the_hub_does_not_name_is_refused_and_not_kept(
    hub: WebServer, get: Get, tmp_path: Path
) -> None:
    put_model(hub, NAME, FILES)
    (there,) = (one for one in hub.answers if one.startswith("/cdn/"))
    right = hub.answers[there]
    body = FILES["onnx/model.onnx"]
    hub.answers[there] = sends_parts(body[:-1] + bytes([body[-1] ^ 1]))
    with pytest.raises(
        HubError, match=r"has changed on its way: the SHA-256 of onnx/model.onnx is .*, the hub says"
    ):
        get()
    assert not (tmp_path / "made").exists()
    hub.answers[there] = right
    assert get().dim == DIM


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        (
            "gated",
            "model 'hf:art/eye' is gated: ask for it on its page of the hub, and give your token by HF_TOKEN",
        ),
        ("private", "the hub has no model 'hf:art/eye', or it is private: give your token by HF_TOKEN"),
    ],
)
def test_what_the_hub_refuses_is_one_sentence(hub: WebServer, get: Get, how: str, sentence: str) -> None:
    refuses(hub, NAME, how, "models")
    with pytest.raises(HubError, match=sentence) as found:
        get()
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("sizes", "sentence"),
    [
        ({}, r"has .* GB to download, and .* GB are free in .*: make room"),
        ({"config.json": 300_000_000}, r"has 300 MB in config\.json, at most 17 are taken"),
        ({"onnx/model.onnx": 2**31 + 1}, r"has 2,147 MB in onnx/model\.onnx, at most 2,147"),
    ],
)
def test_what_is_too_large_is_not_begun(
    hub: WebServer, get: Get, monkeypatch: pytest.MonkeyPatch, sizes: dict[str, int], sentence: str
) -> None:
    put_model(hub, NAME, FILES, sizes=sizes)
    if not sizes:
        monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=0))
    with pytest.raises((BundleError, HubError), match=sentence):
        get()
    large = next(iter(sizes), "config.json")
    assert not any("/resolve/" in one and one.endswith(large) for one in hub.asked)


@pytest.mark.parametrize(
    ("files", "options", "sentence"),
    [
        (
            configured({}, "vit", SQUASH),
            {},
            r"model 'hf:art/eye' has no ONNX file: write one from its weights with",
        ),
        (
            configured({"a.onnx": b"", "b.onnx": b""}, "vit", SQUASH),
            {},
            "has 2 ONNX files: name one with file: a.onnx, b",
        ),
        (FILES, {"file": "../../x.onnx"}, "has no ONNX file '../../x.onnx', only onnx/model.onnx"),
        ({**FILES, "config.json": b"["}, {}, "has a config.json that is no JSON"),
        (
            {name: one for name, one in FILES.items() if not name.startswith("pre")},
            {},
            "cannot be taken: it has no preprocessor_config.json, .* give its ONNX file to `import_onnx`",
        ),
        (
            {**FILES, "onnx/model.onnx": network("last_hidden_state")},
            {},
            r"of model .* \('clip_vision_model'\) gives last_hidden_state .* none of it is known",
        ),
    ],
    ids=["none", "two", "hostile", "json", "unsaid", "no output"],
)
def test_what_makes_no_bundle_is_one_sentence(
    hub: WebServer, get: Get, tmp_path: Path, files: dict[str, bytes], options: dict[str, str], sentence: str
) -> None:
    put_model(hub, NAME, files)
    with pytest.raises(BundleError, match=sentence) as found:
        get(**options)
    assert "\n" not in str(found.value)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("place", ["/etc/passwd", "../../../etc/passwd"])
def test_weights_that_are_no_file_of_the_model_are_not_read(
    hub: WebServer, get: Get, tmp_path: Path, place: str
) -> None:
    body = network("image_embeds", weights_beside="weights", to=tmp_path)
    model = onnx.load_from_string(body)
    for one in model.graph.initializer:
        for pair in one.external_data:
            pair.value = place if pair.key == "location" else pair.value
    put_model(hub, NAME, {**FILES, "onnx/model.onnx": model.SerializeToString()})
    with pytest.raises(
        BundleError, match=f"keeps weights of onnx/model.onnx in '{place}', which is no file beside it"
    ):
        get()


@pytest.mark.parametrize(
    "name", ["dinov2", "art/eye", "hf:eye", "hf:art/eye/file", "hf:../../etc", "hf:a/b@"]
)
def test_what_names_no_model_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"names no model: give hf:owner/name, .* one of clip-vit-b16, "):
        hub_model(name)
