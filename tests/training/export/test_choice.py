"""Choice of a form: measured beside float32, and taken where it loses little."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

pytest.importorskip("onnx")

from vicinal.models.bundle import ModelBundle
from vicinal.models.embedder import Embedder
from vicinal.models.errors import BundleError
from vicinal.training.export import choice
from vicinal.training.export.choice import choose_form, give_form
from vicinal.training.export.sample import Sample, folder_sample


@pytest.fixture
def bundle(tiny_bundle: ModelBundle, tmp_path: Path) -> ModelBundle:
    return ModelBundle.open(shutil.copytree(tiny_bundle.path, tmp_path / "tiny"))


@pytest.fixture
def sample(color_folder: Path) -> Sample:
    return folder_sample(color_folder)


def _figures(
    speed: float, size: float, hit_rate: float | None = None, cosine: float = 1.0
) -> dict[str, float]:
    rates = {} if hit_rate is None else {"hit_rate_1": hit_rate, "map_at_r": 0.5}
    return {"images_per_second": speed, "megabytes": size, "mean_cosine": cosine, **rates}


@pytest.mark.parametrize(
    ("int8", "expected"),
    [
        (_figures(200, 4, 0.800), "int8"),
        (_figures(200, 4, 0.796), "int8"),
        (_figures(200, 4, 0.794), "float16"),
        (_figures(80, 4, 0.900), "float16"),
    ],
    ids=["as good", "nearly as good", "worse", "slower"],
)
def test_the_fastest_form_that_answers_as_well_is_taken(int8: dict[str, float], expected: str) -> None:
    """Of two as fast the smaller file: speeds of one network differ a little each time."""
    forms = {"float32": _figures(100, 14, 0.8), "float16": _figures(98, 7, 0.8), "int8": int8}
    assert choose_form(forms) == expected


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["int8", "auto"])
def test_a_bundle_says_its_form_and_how_it_was_measured(
    bundle: ModelBundle, sample: Sample, precision: str
) -> None:
    made = give_form(bundle, precision, sample)
    assert made.manifest.precision in made.manifest.forms
    assert precision in ("auto", made.manifest.precision)
    for figures in made.manifest.forms.values():
        assert {"images_per_second", "milliseconds", "megabytes", "mean_cosine", "map_at_r"} <= set(figures)
    assert Embedder(made, device="cpu").bundle.dim == bundle.dim


@pytest.mark.slow
def test_a_form_that_embeds_otherwise_is_refused(
    bundle: ModelBundle, sample: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = bundle.backbone_path.read_bytes()
    monkeypatch.setitem(choice.LEAST_AGREEMENT, "int8", 1.5)
    with pytest.raises(BundleError, match=r"in int8 agrees .* at least 1.5 is accepted"):
        give_form(bundle, "int8", sample)
    assert bundle.backbone_path.read_bytes() == before
