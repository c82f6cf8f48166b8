"""Preprocessing of a model of the hub, from the configuration that lies beside it.

`preprocessor_config.json`, or `image_processor` of `processor_config.json`, is what the library transformers
reads; `pretrained_cfg` of `config.json` is what timm reads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from vicinal.models.bundle import Preprocessing
from vicinal.models.errors import BundleError, in_one_line

CONFIG_FILE = "config.json"
PROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json")
_FILTERS = {1: "lanczos", 2: "bilinear", 3: "bicubic"}
# The library's processors that take a size that is one number as the shorter side's, and all that are known.
_SHORTER = {"Bit", "CLIP", "ChineseCLIP", "ConvNext", "Levit", "MobileNetV1", "MobileNetV2", "Siglip"}
_KINDS = _SHORTER | {"Beit", "Blip", "DINOv3ViT", "DPT", "DeiT", "Pvt", "Segformer", "ViT"}
# Those that cut the center out where they are not told.
_CUTTING = _SHORTER - {"ConvNext", "Siglip"} | {"DeiT"}
_KIND = re.compile("(ImageProcessor|FeatureExtractor)(Fast|Pil)?")
_KIND_KEYS = ("image_processor_type", "feature_extractor_type")
# Keys that are read, and those that change no pixel of an image in color.
_KNOWN = re.compile(
    "do_(center_crop|convert_rgb|normalize|reduce_labels|rescale|resize)|(crop_|pad_)?size|default_to_square"
    "|image_(mean|std|seq_length)|resample|rescale_factor|(input_)?data_format|device|disable_grouping"
    "|processor_class|reduce_labels|return_tensors|_.*"
)
# ConvNeXt's scales an image of this size and more to it as a whole, and cuts nothing; of a smaller one it
# cuts this share out, as timm does, where it is not told another.
_CONVNEXT_WHOLE = 384
_CUT_SHARE = 0.875
_LEVIT_SCALE = 256 / 224
_BYTE = 255.0


def hub_preprocessing(configs: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Fields of `Preprocessing`, from the configurations of a repository by the names of their files.

    Raises:
        BundleError: None of them says it, or it is a way that bundles do not have.
    """
    for file in PROCESSOR_FILES:
        found = configs.get(file, {})
        found = found.get("image_processor", found)
        if isinstance(found, Mapping) and found.keys() & {"image_mean", "size", "do_resize"}:
            # Its library takes what is null for what is not said.
            said = {key: value for key, value in found.items() if value is not None}
            return _checked(partial(_of_transformers, said, file), file)
    timm = configs.get(CONFIG_FILE, {}).get("pretrained_cfg")
    if isinstance(timm, Mapping):
        return _checked(partial(_of_timm, timm), CONFIG_FILE)
    raise BundleError(
        f"it has no {PROCESSOR_FILES[0]}, and its {CONFIG_FILE} no pretrained_cfg: nothing says how it wants "
        "its images"
    )


def _checked(read: Callable[[], dict[str, Any]], file: str) -> dict[str, Any]:
    """Refuse fields of kinds and sizes that nobody expects in a file."""
    try:
        fields = read()
        Preprocessing.model_validate(fields)
    except BundleError:
        raise
    except (ArithmeticError, TypeError, ValueError) as error:
        raise BundleError(f"its {file} cannot be used: {in_one_line(error)}") from error
    return fields


def _of_transformers(given: Mapping[str, Any], file: str) -> dict[str, Any]:
    kind = _KIND.sub("", str(next((given[key] for key in _KIND_KEYS if key in given), "")))
    known = {"crop_pct" if kind == "ConvNext" else "", *(_KIND_KEYS if kind in _KINDS else ())}
    for key, value in given.items():
        # What is off, and a multiple of one, asks for nothing.
        is_off = not value or (key, value) == ("ensure_multiple_of", 1)
        if not is_off and key not in known and not _KNOWN.fullmatch(key):
            raise BundleError(f"its {file} has {key} {value!s:.80}, which bundles do not have")
    if given.get("do_resize") is False or "size" not in given:
        raise BundleError(f"its {file} does not say what size images are scaled to")
    resample = given.get("resample")
    if resample not in _FILTERS:
        raise BundleError(f"its {file} has resample {resample}, expected one of {_FILTERS}")
    scale = _BYTE * float(given.get("rescale_factor", 1 / _BYTE)) if given.get("do_rescale", True) else _BYTE
    if given.get("do_normalize", True):
        mean, std = (_three(given, key, file) for key in ("image_mean", "image_std"))
    else:
        mean, std = (0.0,) * 3, (1.0,) * 3
    # It scales pixels by a factor first; a bundle's count from 0 to 1.
    return {
        **_fit(given, kind, file),
        "interpolation": _FILTERS[resample],
        "mean": tuple(round(one / scale, 9) for one in mean),
        "std": tuple(round(one / scale, 9) for one in std),
    }


def _fit(given: Mapping[str, Any], kind: str, file: str) -> dict[str, Any]:
    """Fields that say what becomes of an image's sides."""
    if not kind and "default_to_square" not in given and isinstance(given["size"], int | float):
        raise BundleError(f"its {file} has size {given['size']}, and does not say of which sides")
    size, cut = _sides(given["size"], given.get("default_to_square", kind not in _SHORTER)), None
    if given.get("do_center_crop", kind in _CUTTING):
        if "crop_size" not in given:
            raise BundleError(f"its {file} cuts the center out (do_center_crop), and has no crop_size")
        cut = _sides(given["crop_size"])
    scaled = shortest = size["shortest_edge"] if size.keys() == {"shortest_edge"} else 0
    if kind == "ConvNext" and shortest and cut in (None, _sides(shortest)):
        cut, scaled = _sides(shortest), int(shortest / given.get("crop_pct", _CUT_SHARE))
        size = cut if shortest >= _CONVNEXT_WHOLE else size
    elif kind == "Levit":
        scaled = int(_LEVIT_SCALE * shortest)
    if size == _sides(size.get("height")) and cut in (None, size):
        return {"input_size": size["height"], "fit": "squash"}
    if cut and cut == _sides(cut.get("height")) and 0 < cut["height"] <= scaled:
        return {"input_size": cut["height"], "fit": "crop", "crop_fraction": cut["height"] / scaled}
    cutting = f" and cuts {cut} out" if cut else ""
    raise BundleError(f"its {file} scales images to {size}{cutting}, which bundles do not have")


def _sides(given: Any, is_square: bool = True) -> dict[str, Any]:
    """Sizes by the sides that they are of; a number is that of both, or of the shorter one."""
    if isinstance(given, Mapping):
        return {side: size for side, size in given.items() if size is not None}
    if isinstance(given, list | tuple):
        return dict(zip(("height", "width"), given, strict=True))
    return {"height": given, "width": given} if is_square else {"shortest_edge": given}


def _of_timm(given: Mapping[str, Any]) -> dict[str, Any]:
    *_, height, width = given.get("input_size") or (0, 0)
    mode, resampling = given.get("crop_mode") or "center", given.get("interpolation") or "bicubic"
    share = given.get("crop_pct") or _CUT_SHARE
    if (
        height != width
        or not height
        or (mode != "center" and (mode, share) != ("squash", 1.0))
        or resampling not in _FILTERS.values()
    ):
        raise BundleError(
            f"its pretrained_cfg has input_size {given.get('input_size')}, crop_mode {mode}, crop_pct "
            f"{share} and interpolation {resampling}, which bundles do not have"
        )
    return {
        "input_size": height,
        "fit": "squash" if mode == "squash" else "crop",
        "crop_fraction": share,
        "interpolation": resampling,
        "mean": _three(given, "mean", "pretrained_cfg"),
        "std": _three(given, "std", "pretrained_cfg"),
    }


def _three(given: Mapping[str, Any], key: str, where: str) -> tuple[float, ...]:
    """Three numbers."""
    found = given.get(key)
    if (
        not isinstance(found, list | tuple)
        or len(found) != 3
        or not all(isinstance(one, int | float) for one in found)
    ):
        raise BundleError(f"its {where} has {key} {found}, expected three numbers")
    return tuple(float(one) for one in found)
