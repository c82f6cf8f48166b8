"""`vicinal train-refiner`: train a context refiner for a bundle (needs the `train` extra)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from vicinal.service.cli.bundles.making import require_own, require_place
from vicinal.service.cli.bundles.train import DataRootOption, SetOption
from vicinal.service.cli.console import print_json, print_table, progress_bar, say
from vicinal.service.cli.options import BundleOption, DataHome, JsonOption
from vicinal.service.errors import RequestError
from vicinal.service.words import percent

if TYPE_CHECKING:
    from vicinal.models.bundle import ModelBundle
    from vicinal.models.progress import OnProgress
    from vicinal.models.refiner_manifest import RefinerManifest
    from vicinal.service.training import (
        DatasetConfig,
        EmbeddingSet,
        RefinerRecipe,
        TrainedRefiner,
        TrainingRecord,
    )

_COLUMNS = {"fnir": "FNIR", "map_at_r": "MAP@R", "hit_rate_1": "R@1"}


def train_refiner(
    bundle: BundleOption = None,
    recipe: Annotated[
        Path | None,
        typer.Option("--data", help="Refiner recipe, a TOML file with settings and the images' data sets."),
    ] = None,
    embeddings: Annotated[
        list[Path] | None,
        typer.Option(help=".npz or .parquet file with embeddings and labels, in place of images."),
    ] = None,
    space: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[@VERSION]",
            help="What made the embeddings, such as clip-vit-b32, where no bundle did; --output becomes a "
            "bundle of it without a backbone.",
        ),
    ] = None,
    validation: Annotated[
        list[Path] | None,
        typer.Option(help="The same of labels to measure on; else the labels are dealt into folds."),
    ] = None,
    folds: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Parts of the labels, each measured with a refiner that learned from the others; "
            "0 holds one share out. 5 by default.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Copy the bundle here and leave the original as it is.",
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the bundle in --output.")] = False,
    data_root: DataRootOption = None,
    settings: SetOption = None,
    *,
    home: DataHome,
    json_output: JsonOption = False,
) -> None:
    """Train a refiner on embeddings or images, and measure on unseen labels what it should refine."""
    from vicinal.models.bundle import ModelBundle, space_manifest
    from vicinal.service.training import require_train_extra

    require_train_extra("training a refiner")
    from vicinal.service.training import RefinerRecipe, RefinerTrainer
    from vicinal.service.training import train_refiner as run

    changes = [*(settings or ()), *([] if folds is None else [f"validation.folds={folds}"])]
    loaded = RefinerRecipe.load(recipe, data_root=data_root, settings=changes)
    _check_sources(loaded, embeddings, validation)
    if space is not None and (not embeddings or output is None or bundle is not None):
        raise RequestError(
            "--space says what made the embeddings, and makes a bundle for them: give --embeddings FILE and "
            "--output FOLDER with it, and no --bundle"
        )
    service = home.settings(bundle=bundle)
    ready: EmbeddingSet | None = None
    if space is not None and embeddings and output is not None:
        ready = _of_one_space(embeddings)
        opened = ModelBundle(output, space_manifest(space, ready.dim))
    else:
        opened = ModelBundle.open(service.bundle)
    _check_output(opened, output, overwrite=overwrite)
    with progress_bar() as update:
        read = partial(_read, opened, update, service.device)
        items = ready or read(embeddings, loaded.datasets)
        has_validation = bool(validation or loaded.validation_datasets)
        held_out = read(validation, loaded.validation_datasets) if has_validation else None
        watcher = _Watcher(update)
        trainer = RefinerTrainer(loaded, on_step=watcher.on_step, on_record=watcher.on_record)
        trained = run(opened, loaded, items, held_out, output=output, trainer=trainer)
    _report(trained, json_output=json_output)


def _report(trained: TrainedRefiner, *, json_output: bool) -> None:
    section = trained.bundle.manifest.refiner
    if section is None:
        return
    if json_output:
        print_json(
            {
                **section.model_dump(),
                "fingerprint": section.fingerprint,
                "bundle": str(trained.bundle.path),
                "notes": trained.notes,
            }
        )
        return
    _print(trained.bundle, section)
    say(*(f"  note: {note}" for note in trained.notes))


class _Watcher:
    """Shows the steps, and what the last validation found."""

    def __init__(self, update: OnProgress) -> None:
        self.update = update
        self._note = ""

    def on_step(self, done: int, total: int) -> None:
        self.update("Training", done, total, self._note)

    def on_record(self, record: TrainingRecord) -> None:
        both = record.figures["both"]
        self._note = f"FNIR {both.fnir:.3f}  MAP@R {both.map_at_r:.3f}"


def _check_sources(
    recipe: RefinerRecipe,
    embeddings: Sequence[Path] | None,
    validation: Sequence[Path] | None,
) -> None:
    if not embeddings and not recipe.datasets:
        raise RequestError(
            "say what to train on: --embeddings FILE, or --data with a recipe that has [[datasets]]"
        )
    for option, key, given, datasets in (
        ("--embeddings", "[[datasets]]", embeddings, recipe.datasets),
        ("--validation", "[[validation_datasets]]", validation, recipe.validation_datasets),
    ):
        if given and datasets:
            raise RequestError(f"the recipe has {key}, and {option} was given: leave out one of them")


def _check_output(bundle: ModelBundle, output: Path | None, *, overwrite: bool) -> None:
    """Refuse to write where something else is; done before the training, which takes long."""
    if output is None:
        require_own(bundle.path)
    else:
        require_place(output, overwrite=overwrite)


def _read(
    bundle: ModelBundle,
    update: OnProgress,
    device: str,
    files: Sequence[Path] | None,
    datasets: Sequence[DatasetConfig],
) -> EmbeddingSet:
    from vicinal.models.embedder import Embedder
    from vicinal.service.training import embed_datasets, read_embedding_sets

    if files:
        return _of_one_space(files) if bundle.manifest.space else read_embedding_sets(files)
    return embed_datasets(
        Embedder(bundle, device=device),
        datasets,
        on_progress=lambda name, done, total, *_: update(f"Embedding {name}", done, total),
    )


def _of_one_space(files: Sequence[Path]) -> EmbeddingSet:
    """Files of one named space, whose folds tell nothing apart; a label in two files is the same."""
    from vicinal.service.training import EmbeddingSet, read_embedding_sets

    found = read_embedding_sets(files)
    return EmbeddingSet.of(found.embeddings, found.labels)


def _fpir(section: RefinerManifest) -> float:
    return float(section.training["recipe"]["validation"]["fpir"])


def _gain_lines(bundle: ModelBundle, section: RefinerManifest) -> list[str]:
    """Lines on what searches find before and after; nothing where only one share was held out."""
    gain = section.validation.get("gain_over_present")
    if gain is None:
        return []
    noun = bundle.manifest.noun
    before, after = (100 * (1.0 - gain[f"fnir_{when}"]) for when in ("before", "after"))
    # Fewer misses are more finds, so that the ends change places.
    low, high = (round(-100 * gain[f"fnir_{end}"]) for end in ("high", "low"))
    return [
        f"Of 100 {noun}s of things you have, {before:.0f} were found before and {after:.0f} are now, at the "
        f"same rate of wrong matches: {100 * _fpir(section):.2g} in 100 {noun}s of other things.",
        f"95 % interval of the gain: {low:+d} to {high:+d}; measured on labels that the refiner never saw.",
    ]


def _print(bundle: ModelBundle, section: RefinerManifest) -> None:
    say(f"Refiner {section.fingerprint} in bundle {bundle.name}, {bundle.path}")
    verdict = "refine nothing" if section.sides == "off" else f"refine {section.sides}"
    rerank = "re-rank" if section.rerank == "contextual" else "do not re-rank"
    say(f"Verdict: {verdict}, {rerank}")
    table = Table("refined", *_COLUMNS.values(), box=None)
    for sides in ("off", "gallery", "query", "both"):
        figures: dict[str, Any] = section.validation[sides]
        table.add_row(sides, *(f"{figures[name]:.4f}" for name in _COLUMNS))
    print_table(table)
    counts = section.validation["queries"]
    say(
        f"  on held-out classes, {counts['n_known']:,.0f} queries with a mate and {counts['n_absent']:,.0f} "
        f"without; FNIR at FPIR {percent(_fpir(section))}, {section.validation['rerank']['fnir']:.4f} with "
        "re-ranking"
    )
    say(*(f"  {line}" for line in _gain_lines(bundle, section)))
