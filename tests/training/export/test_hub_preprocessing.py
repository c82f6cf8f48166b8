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
SIGLIP = {"do_resize": True, "size": {"height": 384, "width": 384}, "resample": 3, **RESCALED, **HALF}


def said(given: dict[str, Any]) -> Preprocessing:
    return Preprocessing.model_validate(hub_preprocessing({"preprocessor_config.json": given}))


def both(side: int) -> dict[str, int]:
    return {"height": side, "width": side}


SHORT = {one: {"shortest_edge": one} for one in (192, 224, 256, 384)}
CUT = {"crop_size": both(224), "do_center_crop": True}
OLD = {"crop_size": 224, "do_center_crop": True}
# What the library transformers 5.24 makes, with the mean and deviation .5, of a picture of 640 x 360 pixels
# whose red rises from left to right and whose green from top to bottom: the side, red at the right end, green
# at the lower end. A whole picture has -1 to 1.
OF_THE_LIBRARY: list[tuple[str, dict[str, Any], int, float, float]] = [
    ("CLIP", {"size": SHORT[224], **CUT}, 224, 0.56, 1.0),
    ("CLIP", {"size": 224, **OLD}, 224, 0.56, 1.0),
    ("CLIP", {"size": 256, **OLD}, 224, 0.49, 0.87),
    ("CLIP", {"size": 256, "crop_size": 224}, 224, 0.49, 0.87),
    ("CLIP", {"size": [224, 224], "crop_size": 224}, 224, 1.0, 1.0),
    ("Bit", {"size": SHORT[256], **CUT}, 224, 0.49, 0.87),
    ("Bit", {"size": 256, "crop_size": 224}, 224, 0.49, 0.87),
    ("MobileNetV1", {"size": SHORT[256], "crop_size": both(192)}, 192, 0.43, 0.75),
    ("MobileNetV2", {"size": 256, **OLD}, 224, 0.49, 0.87),
    ("ViT", {"size": 224}, 224, 1.0, 1.0),
    ("ViT", {"size": both(224), "do_center_crop": None, "crop_size": None}, 224, 1.0, 1.0),
    ("DeiT", {"size": 224, **OLD}, 224, 1.0, 1.0),
    ("Beit", {"size": 224, **OLD, "do_center_crop": False}, 224, 1.0, 1.0),
    ("ConvNext", {"size": SHORT[224], "crop_pct": 0.875}, 224, 0.49, 0.87),
    ("ConvNext", {"size": 224}, 224, 0.49, 0.87),
    ("ConvNext", {"size": SHORT[256], "crop_pct": 0.95}, 256, 0.54, 0.95),
    ("ConvNext", {"size": SHORT[384], "crop_pct": 0.95}, 384, 1.0, 1.0),
    ("Levit", {"size": 224, "crop_size": 224}, 224, 0.49, 0.87),
    ("Levit", {"size": SHORT[192], "crop_size": both(192)}, 192, 0.49, 0.87),
    ("Levit", {"size": both(224), **OLD}, 224, 1.0, 1.0),
    ("Siglip", {"size": both(384), "do_convert_rgb": True}, 384, 1.0, 1.0),
    ("DPT", {"size": 384, "keep_aspect_ratio": False, "ensure_multiple_of": 1}, 384, 1.0, 1.0),
    ("Pvt", {"size": 224}, 224, 1.0, 1.0),
]


@pytest.mark.parametrize(("kind", "given", "side", "right", "low"), OF_THE_LIBRARY)
def test_a_wide_picture_becomes_what_the_library_makes_of_it(
    kind: str, given: dict[str, Any], side: int, right: float, low: float
) -> None:
    is_old = isinstance(given["size"], int)
    named = {"feature_extractor_type": f"{kind}FeatureExtractor"}
    named = named if is_old else {"image_processor_type": f"{kind}ImageProcessorFast"}
    x, y = np.meshgrid(np.linspace(0, 255, 640), np.linspace(0, 255, 360))
    picture = Image.fromarray(np.stack([x, y, y], -1).round().astype(np.uint8))
    tensor = said({"resample": 3, **RESCALED, **HALF, **given, **named}).to_tensor(picture)
    middle = side // 2
    ends = (tensor[0, middle, -1], -tensor[0, middle, 0], tensor[1, -1, middle], -tensor[1, 0, middle])
    assert tensor.shape == (3, side, side)
    assert ends == pytest.approx((right, right, low, low), abs=0.012)


@pytest.mark.parametrize(("resample", "name"), [(1, "lanczos"), (2, "bilinear"), (3, "bicubic")])
def test_pixels_are_drawn_from_as_it_says(resample: int, name: str) -> None:
    assert said({**SIGLIP, "resample": resample}).interpolation == name


@pytest.mark.parametrize(
    "given",
    [
        {**SIGLIP, **IMAGENET},
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
    del timm["crop_pct"]
    assert hub_preprocessing({"config.json": {"pretrained_cfg": timm}})["crop_fraction"] == 0.875
    whole = timm | {"crop_mode": "squash", "crop_pct": 1.0}
    assert hub_preprocessing({"config.json": {"pretrained_cfg": whole}})["fit"] == "squash"
    with pytest.raises(BundleError, match="crop_mode squash"):
        hub_preprocessing({"config.json": {"pretrained_cfg": {**whole, "crop_pct": 0.9}}})


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (
            {"do_flip_channel_order": True},
            "its preprocessor_config.json has do_flip_channel_order True, which",
        ),
        ({"do_grayscale": True}, "has do_grayscale True"),
        ({"keep_aspect_ratio": True}, "has keep_aspect_ratio True"),
        ({"ensure_multiple_of": 14}, "has ensure_multiple_of 14"),
        ({"crop_pct": 0.9}, "has crop_pct 0.9"),
        ({"include_top": True}, "has include_top True"),
        (
            {"image_processor_type": "PoolFormerImageProcessor"},
            "image_processor_type PoolFormerImageProcessor,",
        ),
        ({"do_center_crop": True}, "cuts the center out .*, and has no crop_size"),
        ({"size": 224}, "has size 224, and does not say of which sides"),
        ({"size": 224, "image_processor_type": "SiglipImageProcessor"}, "scales images to .*224"),
        (
            {"size": 256, "crop_size": 224, "image_processor_type": "DeiTImageProcessor"},
            "scales images to .*256.* and cuts .*224.* out",
        ),
        (
            {"size": {"shortest_edge": 800, "longest_edge": 1333}, "do_center_crop": True, "crop_size": 224},
            "1333",
        ),
        (
            {"size": 256, "crop_pct": 2.0, "image_processor_type": "ConvNextImageProcessor"},
            "scales images to",
        ),
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
