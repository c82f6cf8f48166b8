"""Preprocessing of a model of the hub, from the configuration that lies beside it.

`preprocessor_config.json`, or `image_processor` of `processor_config.json`, is what the library transformers
reads; `pretrained_cfg` of `config.json` is what timm reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from vicinal.models.bundle import Preprocessing
from vicinal.models.errors import BundleError, in_one_line

CONFIG_FILE = "config.json"
PROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json")
_FILTERS = {1: "lanczos", 2: "bilinear", 3: "bicubic"}
# ConvNeXt's scales an image of this size and more to it as a whole, and cuts nothing.
_CONVNEXT_WHOLE = 384
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
    for key in ("do_flip_channel_order", "rescale_offset", "do_pad"):
        if given.get(key):
            raise BundleError(f"its {file} has {key}, which bundles do not have")
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
        **_fit(given, file),
        "interpolation": _FILTERS[resample],
        "mean": tuple(round(one / scale, 9) for one in mean),
        "std": tuple(round(one / scale, 9) for one in std),
    }


def _fit(given: Mapping[str, Any], file: str) -> dict[str, Any]:
    """Fields that say what becomes of an image's sides."""
    size = given["size"] if isinstance(given["size"], Mapping) else {"shortest_edge": given["size"]}
    height, width = size.get("height"), size.get("width")
    shortest, is_cut = size.get("shortest_edge"), given.get("do_center_crop")
    cut = given.get("crop_size") or {}
    cut = cut if isinstance(cut, Mapping) else {"height": cut, "width": cut}
    if height is not None and height == width and (not is_cut or cut == {"height": height, "width": width}):
        return {"input_size": height, "fit": "squash"}
    if (
        shortest is not None
        and is_cut
        and cut.get("height") == cut.get("width")
        and 0 < cut["height"] <= shortest
    ):
        return {"input_size": cut["height"], "fit": "crop", "crop_fraction": cut["height"] / shortest}
    if shortest is not None and not is_cut and "crop_pct" in given:
        if shortest >= _CONVNEXT_WHOLE:
            return {"input_size": shortest, "fit": "squash"}
        return {"input_size": shortest, "fit": "crop", "crop_fraction": given["crop_pct"] or 1.0}
    raise BundleError(
        f"its {file} scales images to {dict(size)}{f' and cuts {dict(cut)} out' if is_cut else ''}, which "
        "bundles do not have"
    )


def _of_timm(given: Mapping[str, Any]) -> dict[str, Any]:
    *_, height, width = given.get("input_size") or (0, 0)
    mode, resampling = given.get("crop_mode", "center"), given.get("interpolation", "bicubic")
    if (
        height != width
        or not height
        or mode not in ("center", "squash")
        or resampling not in _FILTERS.values()
    ):
        raise BundleError(
            f"its pretrained_cfg has input_size {given.get('input_size')}, crop_mode {mode} and "
            f"interpolation {resampling}, which bundles do not have"
        )
    return {
        "input_size": height,
        "fit": "squash" if mode == "squash" else "crop",
        "crop_fraction": given.get("crop_pct") or 1.0,
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
