"""Configurations of the hub: an image becomes what the models' own library makes of it, or one sentence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from PIL import Image

from vicinal.models.bundle import Preprocessing
from vicinal.models.errors import BundleError
from vicinal.training.export.hub_preprocessing import hub_preprocessing

IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
HALF = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
RESCALED = {"do_rescale": True, "rescale_factor": 0.00392156862745098, "do_normalize": True}
# As they lie in the repositories.
DINOV2 = {
    "crop_size": {"height": 224, "width": 224},
    "do_center_crop": True,
    "do_resize": True,
    "size": {"shortest_edge": 256},
    "resample": 3,
    **RESCALED,
    **IMAGENET,
}
DINOV3 = {"do_resize": True, "size": {"height": 224, "width": 224}, "resample": 2, **RESCALED, **IMAGENET}
SIGLIP = {"do_resize": True, "size": {"height": 384, "width": 384}, "resample": 3, **RESCALED, **HALF}
OLD_CLIP = {
    "crop_size": 224,
    "do_center_crop": True,
    "do_normalize": True,
    "do_resize": True,
    "feature_extractor_type": "CLIPFeatureExtractor",
    "resample": 3,
    "size": 224,
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}
CONVNEXT = {"crop_pct": 0.875, "do_resize": True, "size": {"shortest_edge": 224}, "resample": 3, **RESCALED}
CONVNEXT |= IMAGENET


def said(given: dict[str, Any]) -> Preprocessing:
    return Preprocessing.model_validate(hub_preprocessing({"preprocessor_config.json": given}))


@pytest.mark.parametrize(
    ("given", "size", "fit", "fraction", "interpolation"),
    [
        (DINOV2, 224, "crop", 0.875, "bicubic"),
        (DINOV3, 224, "squash", 1.0, "bilinear"),
        (SIGLIP, 384, "squash", 1.0, "bicubic"),
        (OLD_CLIP, 224, "crop", 1.0, "bicubic"),
        (CONVNEXT, 224, "crop", 0.875, "bicubic"),
        ({**CONVNEXT, "size": {"shortest_edge": 384}}, 384, "squash", 1.0, "bicubic"),
        ({**SIGLIP, "resample": 1}, 384, "squash", 1.0, "lanczos"),
    ],
    ids=["dinov2", "dinov3", "siglip", "clip", "convnext", "large convnext", "lanczos"],
)
def test_sides_are_scaled_and_cut_as_it_says(
    given: dict[str, Any], size: int, fit: str, fraction: float, interpolation: str
) -> None:
    found = said(given)
    assert (found.input_size, found.fit, found.crop_fraction, found.interpolation) == (
        size,
        fit,
        fraction,
        interpolation,
    )


@pytest.mark.parametrize(
    "given",
    [
        DINOV2,
        SIGLIP,
        {**SIGLIP, "rescale_factor": 1 / 127.5},
        {**SIGLIP, "do_rescale": False, "image_mean": [127.5] * 3, "image_std": [127.5] * 3},
        {**SIGLIP, "do_normalize": False},
    ],
    ids=["imagenet", "half", "other factor", "no factor", "not normalized"],
)
def test_colors_become_the_numbers_of_the_library(given: dict[str, Any]) -> None:
    """Slow reference: a pixel times the factor, less the mean, by the deviation."""
    color = (10, 128, 250)
    tensor = said(given).to_tensor(Image.new("RGB", (400, 400), color))
    for channel, value in enumerate(color):
        expected = (
            value * given.get("rescale_factor", 1 / 255) if given.get("do_rescale", True) else float(value)
        )
        if given.get("do_normalize", True):
            expected = (expected - given["image_mean"][channel]) / given["image_std"][channel]
        assert np.allclose(tensor[channel], expected, rtol=1e-5, atol=1e-5)


def test_timm_says_it_in_its_own_configuration() -> None:
    timm = {"input_size": [3, 224, 224], "crop_pct": 0.95, "interpolation": "bicubic"}
    timm |= {"mean": [0.5] * 3, "std": [0.5] * 3, "crop_mode": "center"}
    found = Preprocessing.model_validate(hub_preprocessing({"config.json": {"pretrained_cfg": timm}}))
    assert (found.input_size, found.fit, found.crop_fraction, found.mean) == (224, "crop", 0.95, (0.5,) * 3)
    whole = hub_preprocessing({"config.json": {"pretrained_cfg": {**timm, "crop_mode": "squash"}}})
    assert whole["fit"] == "squash"


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"do_flip_channel_order": True}, "its preprocessor_config.json has do_flip_channel_order"),
        ({"do_resize": False}, "does not say what size images are scaled to"),
        ({"resample": 0}, "has resample 0, expected one of"),
        ({"image_mean": None}, "has image_mean None, expected three numbers"),
        ({"size": {"height": 224, "width": 336}}, "scales images to .*336.*, which bundles do not have"),
        ({"size": {"height": 256, "width": 256}, "do_center_crop": True, "crop_size": 224}, "and cuts .*224"),
        ({"size": {"height": 9999, "width": 9999}}, "its preprocessor_config.json cannot be used: .* 2048"),
        ({"rescale_factor": 0}, "cannot be used: .*division by zero"),
    ],
)
def test_a_way_that_bundles_do_not_have_is_refused(changed: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BundleError, match=sentence):
        said({**SIGLIP, **changed})


def test_a_repository_that_says_nothing_is_refused() -> None:
    with pytest.raises(BundleError, match="nothing says how it wants its images"):
        hub_preprocessing({"config.json": {"model_type": "vit"}, "preprocessor_config.json": {}})
    with pytest.raises(BundleError, match="crop_mode border"):
        hub_preprocessing(
            {"config.json": {"pretrained_cfg": {"input_size": [3, 32, 32], "crop_mode": "border"}}}
        )
