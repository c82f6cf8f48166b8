"""Preprocessing: from an RGB image to the standardized tensor."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from pydantic import ValidationError

from vicinal.models.bundle import Preprocessing

FITS = ["crop", "squash", "pad"]


def _stripes(width: int, height: int) -> Image.Image:
    """Left half red, right half blue."""
    image = Image.new("RGB", (width, height), "red")
    image.paste("blue", (width // 2, 0, width, height))
    return image


def _noise(width: int, height: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3)).astype(np.uint8))


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("size", [(16, 16), (90, 33), (20, 200)])
def test_tensor_has_the_stated_shape(fit: str, size: tuple[int, int]) -> None:
    tensor = Preprocessing(input_size=24, fit=fit).to_tensor(_noise(*size))
    assert (tensor.shape, tensor.dtype) == ((3, 24, 24), np.float32)
    assert tensor.flags.c_contiguous


def test_tensor_is_each_pixel_minus_mean_over_std() -> None:
    """Slow reference: one pixel and channel at a time, in Python floats."""
    image, mean, std = _noise(16, 16), (0.1, 0.5, 0.9), (0.2, 0.3, 0.5)
    tensor = Preprocessing(input_size=16, fit="squash", mean=mean, std=std).to_tensor(image)
    for x, y, channel in np.ndindex(16, 16, 3):
        expected = (image.getpixel((x, y))[channel] / 255 - mean[channel]) / std[channel]
        assert tensor[channel, y, x] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic", "lanczos"])
@given(
    size=st.tuples(st.integers(8, 120), st.integers(8, 120)),
    color=st.tuples(*[st.integers(0, 255)] * 3),
    crop_fraction=st.floats(0.3, 1.0),
)
@settings(max_examples=20, deadline=None)
def test_plain_image_stays_plain(
    interpolation: str, size: tuple[int, int], color: tuple[int, int, int], crop_fraction: float
) -> None:
    """Scaling a single color, whatever the aspect ratio and filter, changes nothing."""
    chosen = Preprocessing(input_size=16, crop_fraction=crop_fraction, interpolation=interpolation)
    assert np.unique(
        np.asarray(chosen.resize(Image.new("RGB", size, color))).reshape(-1, 3), axis=0
    ).tolist() == [list(color)]


def test_squash_keeps_both_edges_of_a_wide_image() -> None:
    resized = Preprocessing(input_size=16, fit="squash").resize(_stripes(160, 16))
    assert resized.getpixel((0, 8)) == (255, 0, 0)
    assert resized.getpixel((15, 8)) == (0, 0, 255)


def test_crop_fraction_cuts_the_border_away() -> None:
    """Half of each side remains: the frame of a quarter's width is gone."""
    image = Image.new("RGB", (80, 80), "red")
    image.paste("lime", (20, 20, 60, 60))
    whole = Preprocessing(input_size=40, crop_fraction=1.0).resize(image)
    center = Preprocessing(input_size=40, crop_fraction=0.5).resize(image)
    assert whole.getpixel((2, 2)) == (255, 0, 0)
    assert center.getcolors() == [(1600, (0, 255, 0))]


def test_crop_equals_scale_then_center_crop() -> None:
    """The documented two steps give the same picture as the one step that is used."""
    image = Image.fromarray(
        np.stack(np.broadcast_arrays(*np.ogrid[0:120, 0:180], 90), axis=-1).astype(np.uint8)
    )
    scaled = image.resize((60, 40), Image.Resampling.BICUBIC)
    expected = np.asarray(scaled.crop((14, 4, 46, 36))).astype(float)
    actual = np.asarray(Preprocessing(input_size=32, crop_fraction=0.8).resize(image)).astype(float)
    assert np.abs(actual - expected).mean() < 1.0


@pytest.mark.parametrize(("fit", "ground"), [("pad", (255, 255, 255)), ("pad_black", (0, 0, 0))])
def test_pad_keeps_the_whole_image_on_its_ground(fit: str, ground: tuple[int, int, int]) -> None:
    resized = Preprocessing(input_size=32, fit=fit).resize(_stripes(64, 32))
    assert resized.getpixel((16, 2)) == ground
    assert resized.getpixel((1, 16)) == (255, 0, 0)
    assert resized.getpixel((30, 16)) == (0, 0, 255)


@pytest.mark.parametrize(("side", "fraction", "expected"), [(64, 1.0, 128), (224, 0.875, 512)])
def test_decode_side_is_twice_the_scaled_side(side: int, fraction: float, expected: int) -> None:
    assert Preprocessing(input_size=side, crop_fraction=fraction).decode_side == expected


@pytest.mark.parametrize(
    "fields",
    [{"fit": "stretch"}, {"input_size": 4}, {"crop_fraction": 0.0}, {"mean": (0.5, 0.5)}, {"size": 224}],
)
def test_impossible_or_unknown_fields_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Preprocessing.model_validate(fields)
