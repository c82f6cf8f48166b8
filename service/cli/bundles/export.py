"""`vicinal export`: make a model bundle from any timm backbone (needs the `train` extra)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from vicinal.service.cli.bundles.report import name_of, report_bundle
from vicinal.service.cli.console import errors, say
from vicinal.service.cli.options import JsonOption

BackboneOption = Annotated[
    str, typer.Option(help="A timm architecture, such as resnet50, or hf-hub:ORGANISATION/NAME.")
]
WeightsOption = Annotated[
    str | None,
    typer.Option(
        help="Local weights file, or `package` for those that the train extra installs; "
        "without it they come from the hub."
    ),
]
InputSizeOption = Annotated[
    int | None, typer.Option(min=16, max=2048, help="Pixels a side; the architecture's own by default.")
]
DimOption = Annotated[
    int | None,
    typer.Option(min=1, help="Numbers an embedding; all that the backbone gives by default."),
]
ProjectionOption = Annotated[
    Literal["classifier", "pca", "whitening"] | None,
    typer.Option(
        help="How --dim is reached: by what the classifier of the weights looks at, or by what differs "
        "most among --images. Default: classifier without --images, pca with them."
    ),
]
WhiteningOption = Annotated[
    float, typer.Option(min=0.0, max=1.0, help="How far --projection whitening goes; 0 is pca.")
]
ImagesOption = Annotated[
    Path | None,
    typer.Option(
        help="Folder of photos that the projection is learnt on, int8 is calibrated on and forms are "
        "compared on; in one folder a label, the share of right answers is measured too."
    ),
]
PrecisionOption = Annotated[
    Literal["float32", "float16", "int8", "auto"],
    typer.Option(help="Form of the network; auto takes the fastest that answers as well as float32."),
]
NameOption = Annotated[str | None, typer.Option(help="Name of the bundle; the architecture's by default.")]
NoticeOption = Annotated[Path | None, typer.Option(help="Text file that goes into the bundle as its NOTICE.")]


def export(
    backbone: BackboneOption,
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory of the bundle to write.")],
    weights: WeightsOption = None,
    input_size: InputSizeOption = None,
    dim: DimOption = None,
    projection: ProjectionOption = None,
    whitening: WhiteningOption = 0.5,
    images: ImagesOption = None,
    precision: PrecisionOption = "float32",
    name: NameOption = None,
    licence: Annotated[str | None, typer.Option(help="Licence of the weights.")] = None,
    source: Annotated[str | None, typer.Option(help="Where the weights come from, for people.")] = None,
    notice: NoticeOption = None,
    json_output: JsonOption = False,
) -> None:
    """Make a bundle from any timm backbone; its features, or --dim numbers made of them, embed an image."""
    from vicinal.models.errors import ConfigError
    from vicinal.models.probe import write_probe
    from vicinal.service.training import require_train_extra

    require_train_extra("making a bundle")
    from vicinal.service.training import (
        PACKAGED_WEIGHTS,
        BackboneConfig,
        HeadConfig,
        export_backbone,
        folder_sample,
        give_form,
        write_card,
        write_notice,
    )

    if notice is not None and not notice.is_file():
        raise ConfigError(f"there is no file '{notice}' for --notice")
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
    _note("Reading the weights and writing the network ...")
    bundle = export_backbone(config, output, fields=fields, input_size=input_size, head=head, sample=sample)
    _note("Measuring it on this machine ...")
    bundle = give_form(bundle, precision, sample, on_note=_note)
    write_notice(bundle, notice)
    write_card(bundle)
    write_probe(bundle)
    report_bundle(bundle, json_output=json_output)


def _note(line: str) -> None:
    say(line, to=errors)
