"""`vicinal export` and `vicinal import`: make a bundle from a timm backbone, or from a ready ONNX file."""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.table import Table

from vicinal.service.cli.console import errors, print_json, print_table, say
from vicinal.service.cli.options import JsonOption
from vicinal.service.errors import RequestError

if TYPE_CHECKING:
    from vicinal.models.bundle import ModelBundle

_COLUMNS = {
    "images_per_second": ("images/s", "{:,.0f}"),
    "milliseconds": ("ms for one", "{:,.1f}"),
    "megabytes": ("MB", "{:,.1f}"),
    "mean_cosine": ("agreement", "{:.4f}"),
    "hit_rate_1": ("first is right (R@1)", "{:.3f}"),
    "map_at_r": ("MAP@R", "{:.3f}"),
}
OutputOption = Annotated[Path, typer.Option("--output", "-o", help="Directory of the bundle to write.")]
NoticeOption = Annotated[Path | None, typer.Option(help="Text file that goes into the bundle as its NOTICE.")]


def export(
    backbone: Annotated[
        str, typer.Option(help="A timm architecture, such as resnet50, or hf-hub:ORGANISATION/NAME.")
    ],
    output: OutputOption,
    weights: Annotated[
        str | None,
        typer.Option(
            help="Local weights file, or `package` for those that the train extra installs; "
            "without it they come from the hub."
        ),
    ] = None,
    input_size: Annotated[
        int | None, typer.Option(min=16, max=2048, help="Pixels a side; the architecture's own by default.")
    ] = None,
    dim: Annotated[
        int | None,
        typer.Option(min=1, help="Numbers an embedding; all that the backbone gives by default."),
    ] = None,
    projection: Annotated[
        Literal["classifier", "pca", "whitening"] | None,
        typer.Option(
            help="How --dim is reached: by what the classifier of the weights looks at, or by what differs "
            "most among --images. Default: classifier without --images, pca with them."
        ),
    ] = None,
    whitening: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="How far --projection whitening goes; 0 is pca.")
    ] = 0.5,
    images: Annotated[
        Path | None,
        typer.Option(
            help="Folder of photos that the projection is learnt on, int8 is calibrated on and forms are "
            "compared on; in one folder a label, the share of right answers is measured too."
        ),
    ] = None,
    precision: Annotated[
        Literal["float32", "float16", "int8", "auto"],
        typer.Option(help="Form of the network; auto takes the fastest that answers as well as float32."),
    ] = "float32",
    name: Annotated[
        str | None, typer.Option(help="Name of the bundle; the architecture's by default.")
    ] = None,
    licence: Annotated[str | None, typer.Option(help="Licence of the weights.")] = None,
    source: Annotated[str | None, typer.Option(help="Where the weights come from, for people.")] = None,
    notice: NoticeOption = None,
    json_output: JsonOption = False,
) -> None:
    """Make a bundle from any timm backbone; its features, or --dim numbers made of them, embed an image."""
    from vicinal.service.training import require_train_extra

    require_train_extra("making a bundle")
    from vicinal.service.training import (
        PACKAGED_WEIGHTS,
        BackboneConfig,
        HeadConfig,
        export_backbone,
        folder_sample,
        give_form,
    )

    require_file(notice)
    config = BackboneConfig.model_validate(
        {"name": backbone, "pretrained": weights is None, "weights": weights}
        | {"pooling": "native", "dim": None, "layer_norm": False}
    )
    packaged = PACKAGED_WEIGHTS.get(backbone) if weights == "package" else None
    fields = {
        "name": name or name_of(backbone),
        "licence": licence or (packaged.licence if packaged else "unknown"),
        "source": source or (packaged.source if packaged else ""),
    }
    sample = folder_sample(images) if images else None
    head = HeadConfig(dim, projection, whitening) if dim else None
    note("Reading the weights and writing the network ...")
    bundle = export_backbone(config, output, fields=fields, input_size=input_size, head=head, sample=sample)
    note("Measuring it on this machine ...")
    bundle = give_form(bundle, precision, sample, on_note=note)
    finish(bundle, notice, json_output=json_output)


def note(line: str) -> None:
    """Say what is done, beside what a script reads."""
    say(line, to=errors)


def import_onnx(
    model: Annotated[Path, typer.Argument(help="ONNX file: images in, one row of numbers an image out.")],
    output: OutputOption,
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
        Literal["crop", "squash", "pad", "pad_black"],
        typer.Option(help="How a photo becomes square: cut the middle out, squeeze it, add white or black."),
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
    notice: NoticeOption = None,
    json_output: JsonOption = False,
) -> None:
    """Make a bundle from a ready ONNX file; say how it wants its images, and it is checked and measured."""
    from vicinal.service.training import import_onnx as make

    require_file(notice)
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
    finish(bundle, notice, json_output=json_output)


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


def require_file(notice: Path | None) -> None:
    """Refuse a NOTICE that is not there, before anything is made."""
    from vicinal.models.errors import ConfigError

    if notice is not None and not notice.is_file():
        raise ConfigError(f"there is no file '{notice}' for --notice")


def require_place(output: Path, *, overwrite: bool) -> None:
    """Refuse to write a bundle where something else is, before anything is made."""
    from vicinal.models.bundle import read_fingerprint

    require_own(output)
    if not output.exists():
        return
    if not overwrite:
        raise RequestError(f"'{output}' exists: choose another --output, or replace it with --overwrite")
    if read_fingerprint(output) is None:
        raise RequestError(f"'{output}' is no bundle and is not overwritten: choose another --output")


def require_own(output: Path) -> None:
    """Refuse to write into the bundle that ships with the package."""
    from vicinal.models.bundle import default_bundle_path

    if output.resolve() == default_bundle_path().resolve():
        raise RequestError(
            f"'{output}' ships with Vicinal and stays as it is: name a folder for a copy with --output"
        )


def name_of(model: str) -> str:
    """Name of a bundle from that of an architecture, of a model on the hub, or of a file."""
    name = "".join(c if c.isalnum() or c in "._-" else "-" for c in model.rpartition("/")[2].lower())
    return name.lstrip("._-")[:64] or "model"


def finish(bundle: ModelBundle, notice: Path | None, *, json_output: bool) -> None:
    """Write what is for people and other machines, and print what was made; or JSON for a script."""
    from vicinal.models.probe import write_probe
    from vicinal.service.training import write_card, write_notice

    write_notice(bundle, notice)
    write_card(bundle)
    write_probe(bundle)
    manifest = bundle.manifest
    if json_output:
        document = manifest.model_dump(mode="json", exclude={"refiner", "files"})
        print_json({**document, "fingerprint": bundle.fingerprint, "path": str(bundle.path)})
        return
    form = f", {manifest.precision}" if manifest.precision else ""
    say(f"Bundle {bundle.name} {bundle.fingerprint}: {bundle.dim} numbers an image{form}, in {bundle.path}")
    if manifest.forms:
        print_table(_forms(bundle))
    say(f"Next: vicinal index photos/ --gallery shop --bundle {shlex.quote(str(bundle.path))}")


def _forms(bundle: ModelBundle) -> Table:
    forms = bundle.manifest.forms
    shown = {key: column for key, column in _COLUMNS.items() if any(key in one for one in forms.values())}
    table = Table(title="Speed on this machine")
    for title in ("form", *(title for title, _ in shown.values())):
        table.add_column(title, justify="left" if title == "form" else "right")
    for form, figures in forms.items():
        is_taken = len(forms) > 1 and form == bundle.manifest.precision
        cells = [text.format(figures[key]) if key in figures else "" for key, (_, text) in shown.items()]
        table.add_row(f"{form} (taken)" if is_taken else form, *cells)
    return table
