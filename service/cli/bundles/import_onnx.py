"""`vicinal import`: make a model bundle from a ready ONNX file."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from vicinal.service.cli.bundles.report import name_of, report_bundle
from vicinal.service.cli.options import JsonOption


def import_onnx(
    model: Annotated[Path, typer.Argument(help="ONNX file: images in, one row of numbers an image out.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory of the bundle to write.")],
    input_size: Annotated[
        int | None, typer.Option(min=16, max=2048, help="Pixels a side; what the file says by default.")
    ] = None,
    mean: Annotated[
        str, typer.Option(help="Mean of red, green and blue, for values from 0 to 1.")
    ] = "0.485,0.456,0.406",
    std: Annotated[
        str, typer.Option(help="Standard deviation of red, green and blue.")
    ] = "0.229,0.224,0.225",
    fit: Annotated[
        Literal["crop", "squash", "pad"],
        typer.Option(help="How a photo becomes square: cut the middle out, squeeze it, or add white."),
    ] = "crop",
    crop_fraction: Annotated[
        float, typer.Option(min=0.1, max=1.0, help="Share of the scaled photo that --fit crop keeps.")
    ] = 1.0,
    interpolation: Annotated[
        Literal["bilinear", "bicubic", "lanczos"], typer.Option(help="How a photo is scaled.")
    ] = "bicubic",
    name: Annotated[str | None, typer.Option(help="Name of the bundle; the file's by default.")] = None,
    licence: Annotated[str, typer.Option(help="Licence of the weights.")] = "unknown",
    source: Annotated[str, typer.Option(help="Where the weights come from, for people.")] = "",
    notice: Annotated[
        Path | None, typer.Option(help="Text file that goes into the bundle as its NOTICE.")
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Make a bundle from a ready ONNX file; say how it wants its images, and it is checked and measured."""
    from vicinal.models.errors import ConfigError
    from vicinal.models.probe import write_probe
    from vicinal.service.training import import_onnx as make
    from vicinal.service.training import write_card, write_notice

    if notice is not None and not notice.is_file():
        raise ConfigError(f"there is no file '{notice}' for --notice")
    preprocessing: dict[str, Any] = {
        "fit": fit,
        "crop_fraction": crop_fraction,
        "interpolation": interpolation,
        "mean": _three("--mean", mean),
        "std": _three("--std", std, above=0.0),
    }
    preprocessing |= {} if input_size is None else {"input_size": input_size}
    fields = {"name": name or name_of(model.stem), "licence": licence, "source": source}
    bundle = make(model, output, preprocessing, fields)
    write_notice(bundle, notice)
    write_card(bundle)
    write_probe(bundle)
    report_bundle(bundle, json_output=json_output)


def _three(option: str, text: str, above: float = -math.inf) -> tuple[float, ...]:
    """Three numbers, or one for all three."""
    from vicinal.models.errors import ConfigError

    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError as error:
        raise ConfigError(f"{option} '{text}' holds no numbers: write them as 0.5,0.5,0.5") from error
    if len(numbers) not in (1, 3):
        raise ConfigError(f"{option} takes three numbers or one for all colors, got {len(numbers)}")
    if min(numbers) <= above:
        raise ConfigError(f"{option} '{text}' has to be above {above:g}")
    return tuple(numbers if len(numbers) == 3 else numbers * 3)
