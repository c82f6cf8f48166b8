"""A bundle from a ready ONNX file: checked for what searching needs, in ONNX Runtime alone."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from vicinal.calibration.advice import advise
from vicinal.models.bundle import BACKBONE_FILE, ModelBundle, Preprocessing, sha256_of
from vicinal.models.embedder import Embedder
from vicinal.models.errors import BundleError, MissingPackageError
from vicinal.models.probe import try_out
from vicinal.models.runtime import open_session
from vicinal.training.export.sample import measure_speed


def import_onnx(
    model: Path,
    path: Path,
    preprocessing: Mapping[str, Any],
    fields: Mapping[str, Any],
    *,
    called: str | None = None,
) -> ModelBundle:
    """Make a bundle from a network that somebody else exported; nothing is written before all is checked.

    It has one input (B, 3, S, S) and gives (B, d) first, both float32, for any B; an image embeds alone as it
    does in a batch. Where the file says that B is 1, that is changed, and tried out. Without an `input_size`
    among the fields of `preprocessing` the file has to say it. Errors name it `called`, its path when None.
    """
    what = called or f"'{model}'"
    if not model.is_file():
        raise BundleError(f"there is no file {what}")
    with tempfile.TemporaryDirectory() as folder:
        copied = Path(shutil.copy(model, Path(folder) / BACKBONE_FILE))
        size, is_fixed = _check_input(copied, what, preprocessing.get("input_size"))
        if is_fixed:
            _free_batch(copied, what)
        prepared = Preprocessing.model_validate({**preprocessing, "input_size": size})
        manifest = {
            "backbone": model.stem,
            "training": {"file": model.name},
            **fields,
            "dim": _check_output(copied, what, size),
            "preprocessing": prepared,
            "precision": None,
        }
        tried = ModelBundle.write(Path(folder), manifest)
        try_out(tried, what)
        speed = measure_speed({"as imported": Embedder(tried, device="cpu")})
        speed["as imported"]["megabytes"] = round(copied.stat().st_size / 1e6, 2)
        path.mkdir(parents=True, exist_ok=True)
        shutil.copy(copied, path / BACKBONE_FILE)
    return ModelBundle.write(path, {**manifest, "forms": speed})


def _check_input(copied: Path, what: str, asked: int | None) -> tuple[int, bool]:
    """Pixels a side, and whether the number of images is fixed."""
    inputs = open_session(copied, sha256_of(copied), device="cpu").get_inputs()
    shape = list(inputs[0].shape)
    # A name, or nothing, where it is free.
    is_other = len(shape) == 4 and isinstance(shape[1], int) and shape[1] != 3
    if len(inputs) != 1 or inputs[0].type != "tensor(float)" or len(shape) != 4 or is_other:
        taken = ", ".join(f"{one.name} {one.shape} {one.type}" for one in inputs)
        raise BundleError(f"{what} takes {taken}; expected one input (images, 3, size, size) of float32")
    sizes = {side for side in shape[2:] if isinstance(side, int)} or {asked or 0}
    if 0 in sizes:
        raise BundleError(
            f"{what} takes images of any size: ",
            advise("say with {input_size} which one it was made for"),
        )
    if len(sizes) > 1 or (asked is not None and sizes != {asked}):
        raise BundleError(
            f"{what} takes images of {shape[2]} x {shape[3]} pixels, expected ",
            advise(
                "{asked} x {asked}, as {input_size} says" if asked else "as many in height as in width",
                asked=asked,
            ),
        )
    return sizes.pop(), isinstance(shape[0], int)


def _free_batch(copied: Path, what: str) -> None:
    """Let the network take any number of images; whether it can is found out by trying."""
    try:
        import onnx
    except ImportError as error:
        raise MissingPackageError(
            "onnx", "train", f"{what} takes one image at a time; changing that"
        ) from error
    network = onnx.load(copied)
    del network.graph.value_info[:]
    for one in (*network.graph.input, *network.graph.output):
        one.type.tensor_type.shape.dim[0].dim_param = "batch"
    onnx.save(network, copied)


def _check_output(copied: Path, what: str, size: int) -> int:
    """Length of the embeddings, tried out on two images."""
    session = open_session(copied, sha256_of(copied), device="cpu")
    images = np.random.default_rng(0).normal(size=(2, 3, size, size)).astype(np.float32)
    try:
        given = session.run(None, {session.get_inputs()[0].name: images})[0]
    except Exception as error:  # ONNX Runtime raises classes of its own that share no public base
        raise BundleError(
            f"{what} does not take two images of {size} x {size} pixels at once: export it with a free "
            f"first axis (in torch.onnx.export: dynamic_axes={{'images': {{0: 'batch'}}}}): {error}"
        ) from error
    if given.ndim != 2 or len(given) != 2 or given.dtype != np.float32:
        raise BundleError(
            f"{what} gives {given.shape} {given.dtype} for two images, expected (2, numbers) float32: "
            "export it with its pooling and a free first axis"
        )
    return int(given.shape[1])
