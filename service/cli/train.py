"""`vicinal train` and `vicinal export`: make model bundles (needs the `train` extra)."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from models.errors import MissingPackageError
from service.cli.console import console, progress_bar

__all__ = ["export", "train"]


def train(
    recipe: Annotated[Path, typer.Argument(help="Training configuration, a TOML file.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory of the bundle to write.")],
    data_root: Annotated[
        Path | None, typer.Option(help="Folder that relative data set paths start from; here by default.")
    ] = None,
) -> None:
    """Train an embedding and export it as a bundle; training.csv beside it keeps the curve."""
    _require_torch()
    from models.recipe import run_recipe

    with progress_bar() as update:
        bundle = run_recipe(
            recipe, output, data_root=data_root, on_step=lambda done, total: update("Training", done, total)
        )
    console.print(f"Bundle [bold]{bundle.name}[/] {bundle.fingerprint} in {output}")
    for test, metrics in bundle.manifest.metrics.items():
        shown = ", ".join(f"{name} {value:.4f}" for name, value in metrics.items())
        console.print(f"  {test}: {shown}", markup=False, soft_wrap=True)


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
    _require_torch()
    from models.config import BackboneConfig
    from models.export import export_backbone

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


def _require_torch() -> ModuleType:
    try:
        import timm
    except ImportError as error:
        raise MissingPackageError("torch and timm", "train", "making a bundle") from error
    module: ModuleType = timm
    return module


def _as_name(backbone: str) -> str:
    return "".join(c if c.isalnum() or c in "._-" else "-" for c in backbone.lower())[:64]
