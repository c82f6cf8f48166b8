"""`vicinal train-refiner`: train a context refiner for a bundle (needs the `train` extra)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from vicinal.models.bundle import ModelBundle
from vicinal.models.refiner_manifest import RefinerManifest
from vicinal.service.cli.bundles.train_extra import require_train_extra
from vicinal.service.cli.console import Update, console, print_json, print_table, progress_bar
from vicinal.service.cli.options import JsonOption
from vicinal.service.errors import RequestError

if TYPE_CHECKING:
    from vicinal.models.datasets.layouts import DatasetConfig
    from vicinal.refine.training.config import RefinerRecipe
    from vicinal.refine.training.embedding_set import EmbeddingSet
    from vicinal.refine.training.trainer import TrainingRecord

__all__ = ["train_refiner"]

_COLUMNS = {"fnir": "FNIR", "map_at_r": "MAP@R", "hit_rate_1": "R@1"}


def train_refiner(
    bundle: Annotated[Path, typer.Option(help="Bundle whose embeddings are refined; it gets the refiner.")],
    recipe: Annotated[
        Path | None,
        typer.Option("--data", help="Refiner recipe, a TOML file with settings and the images' data sets."),
    ] = None,
    embeddings: Annotated[
        list[Path] | None,
        typer.Option(help=".npz or .parquet file with embeddings and labels, in place of images."),
    ] = None,
    validation: Annotated[
        list[Path] | None,
        typer.Option(help="The same of classes to validate on; else a share of the classes is held out."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Copy the bundle here and leave the original as it is."),
    ] = None,
    data_root: Annotated[
        Path | None, typer.Option(help="Folder that relative data set paths start from; here by default.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Set a key of the recipe, such as refiner.n_steps=4."
        ),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Train a refiner on embeddings, and decide on held-out classes what it should refine."""
    require_train_extra("training a refiner")
    from vicinal.refine.training.config import RefinerRecipe
    from vicinal.refine.training.recipe import train_refiner as run
    from vicinal.refine.training.trainer import RefinerTrainer

    loaded = RefinerRecipe.load(recipe, data_root=data_root, settings=settings or ())
    opened = ModelBundle.open(bundle)
    _check_sources(loaded, embeddings, validation)
    if output is not None and output.exists():
        raise RequestError(f"'{output}' exists: choose another --output, or remove it")
    with progress_bar() as update:
        items = _read(opened, embeddings, loaded.datasets, update)
        has_validation = bool(validation or loaded.validation_datasets)
        held_out = _read(opened, validation, loaded.validation_datasets, update) if has_validation else None
        watcher = _Watcher(update)
        trainer = RefinerTrainer(loaded, on_step=watcher.on_step, on_record=watcher.on_record)
        trained = run(opened, loaded, items, held_out, output=output, trainer=trainer)
    section = trained.bundle.manifest.refiner
    if section is not None and json_output:
        print_json({**section.model_dump(), "fingerprint": section.fingerprint, "notes": trained.notes})
    elif section is not None:
        _print(trained.bundle, section, trained.notes)


class _Watcher:
    """Shows the steps, and what the last validation found.

    Args:
        update: Moves the bar.
    """

    def __init__(self, update: Update) -> None:
        self.update = update
        self._note = ""

    def on_step(self, done: int, total: int) -> None:
        self.update("Training", done, total, self._note)

    def on_record(self, record: TrainingRecord) -> None:
        both = record.figures["both"]
        self._note = f"FNIR {both.fnir:.3f}  MAP@R {both.map_at_r:.3f}"


def _check_sources(
    recipe: RefinerRecipe, embeddings: Sequence[Path] | None, validation: Sequence[Path] | None
) -> None:
    if not embeddings and not recipe.datasets:
        raise RequestError(
            "say what to train on: --embeddings FILE, or --data with a recipe that has [[datasets]]"
        )
    for option, key, files, datasets in (
        ("--embeddings", "[[datasets]]", embeddings, recipe.datasets),
        ("--validation", "[[validation_datasets]]", validation, recipe.validation_datasets),
    ):
        if files and datasets:
            raise RequestError(f"the recipe has {key}, and {option} was given: leave out one of them")


def _read(
    bundle: ModelBundle, files: Sequence[Path] | None, datasets: Sequence[DatasetConfig], update: Update
) -> EmbeddingSet:
    from vicinal.models.embedder import Embedder
    from vicinal.refine.training.embedding_set import read_embedding_sets
    from vicinal.refine.training.recipe import embed_datasets

    if files:
        return read_embedding_sets(files)
    return embed_datasets(
        Embedder(bundle),
        datasets,
        on_progress=lambda name, done, total: update(f"Embedding {name}", done, total),
    )


def _print(bundle: ModelBundle, section: RefinerManifest, notes: Sequence[str]) -> None:
    console.print(f"Refiner {section.fingerprint} in bundle [bold]{bundle.name}[/], {bundle.path}")
    verdict = "refine nothing" if section.sides == "off" else f"refine {section.sides}"
    rerank = "re-rank" if section.rerank == "contextual" else "do not re-rank"
    console.print(f"Verdict: [bold]{verdict}[/], {rerank}")
    table = Table("refined", *_COLUMNS.values(), box=None)
    for sides in ("off", "gallery", "query", "both"):
        figures: dict[str, Any] = section.validation[sides]
        table.add_row(sides, *(f"{figures[name]:.4f}" for name in _COLUMNS))
    print_table(table)
    counts = section.validation["queries"]
    fpir = section.training["recipe"]["validation"]["fpir"]
    console.print(
        f"  on held-out classes, {counts['n_known']:,.0f} queries with a mate and {counts['n_absent']:,.0f} "
        f"without; FNIR at FPIR {100 * fpir:g} %, {section.validation['rerank']['fnir']:.4f} with re-ranking",
        soft_wrap=True,
    )
    for note in notes:
        console.print(f"  note: {note}", markup=False, soft_wrap=True)
