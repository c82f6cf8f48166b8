"""`vicinal export`: make a model bundle from any timm backbone (needs the `train` extra)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vicinal.service.cli.bundles.train_extra import require_train_extra
from vicinal.service.cli.console import console

__all__ = ["export"]


def export(
    backbone: Annotated[str, typer.Option(help="A timm architecture, such as resnet50.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory of the bundle to write.")],
    weights: Annotated[
        Path | None, typer.Option(help="Local weights file; without it they come from the hub.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the bundle; the architecture's by default.")
    ] = None,
    licence: Annotated[str, typer.Option(help="Licence of the weights.")] = "unknown",
) -> None:
    """Make a bundle from any timm backbone; its pooled features are the embedding."""
    require_train_extra("making a bundle")
    from vicinal.models.backbone import BackboneConfig
    from vicinal.models.export.backbone import export_backbone

    config = BackboneConfig(
        name=backbone,
        pretrained=weights is None,
        weights=weights,
        dim=None,
        layer_norm=False,
        pooling="native",
    )
    bundle = export_backbone(config, output, name=name or _as_name(backbone), licence=licence)
    console.print(f"Bundle [bold]{bundle.name}[/] {bundle.fingerprint}, {bundle.dim}-d, in {output}")


def _as_name(backbone: str) -> str:
    return "".join(c if c.isalnum() or c in "._-" else "-" for c in backbone.lower())[:64]
