"""`vicinal evaluate`: measure a bundle, or ready embeddings, on labelled images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.table import Table

from vicinal.service.cli.console import print_json, print_table, progress_bar, say
from vicinal.service.cli.options import BUNDLE_HELP, JsonOption, load_settings
from vicinal.service.errors import RequestError

if TYPE_CHECKING:
    from vicinal.models.bundle import ModelBundle
    from vicinal.models.progress import OnProgress
    from vicinal.service.training import EvaluationSettings, RetrievalTest

_STAGES = {"embed": "Embedding", "measure": "Measuring"}


def evaluate(
    bundle: Annotated[Path | None, typer.Argument(help=BUNDLE_HELP)] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(metavar="KIND:ROOT", help="Images to measure on, such as folder:data/photos."),
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="Part of the data sets in --data; test by default.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="TOML file with tests, such as a training recipe.")
    ] = None,
    data_root: Annotated[
        Path | None, typer.Option(help="Folder that the paths in --config start from; here by default.")
    ] = None,
    embeddings: Annotated[
        Path | None,
        typer.Option(help=".npz file with embeddings, labels and maybe roles and super_labels, instead."),
    ] = None,
    ranks: Annotated[
        list[int] | None, typer.Option("--k", min=1, help="Rank of R@k and recall@k; 1, 2, 4 and 8.")
    ] = None,
    distance: Annotated[
        Literal["cosine", "euclidean"],
        typer.Option(help="Compare normalized embeddings, or those of a loss that does not normalize."),
    ] = "cosine",
    nmi: Annotated[bool, typer.Option(help="Cluster, which takes long with thousands of classes.")] = True,
    opis: Annotated[bool, typer.Option(help="Measure OPIS over all pairs, and its floor.")] = True,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the clustering and of the OPIS floor.")] = 0,
    json_output: JsonOption = False,
) -> None:
    """Measure how well embeddings find, cluster and share one threshold, on labelled images."""
    from vicinal.service.training import EvaluationSettings, load_tests, parse_test, scikit_metrics

    # What is missing is told before images are embedded for an hour.
    scikit_metrics()
    ks = tuple(sorted(set(ranks or EvaluationSettings.ks)))
    settings = EvaluationSettings(ks=ks, distance=distance, nmi=nmi, opis=opis, seed=seed)
    if (embeddings is not None) == bool(data or config):
        raise RequestError("say what to measure on: --data KIND:ROOT, --config FILE, or --embeddings FILE")
    if embeddings is not None:
        if bundle is not None:
            raise RequestError(f"--embeddings are measured as they are: leave out the bundle '{bundle}'")
        opened, measured = None, [_measure_stored(embeddings, settings)]
    else:
        tests = [parse_test(one, split=split) for one in data or ()]
        tests += load_tests(config, data_root=data_root) if config is not None else []
        opened, measured = _measure_bundle(bundle, tests, settings)
    if json_output:
        told = opened and {"name": opened.name, "fingerprint": opened.fingerprint}
        print_json({"bundle": told, "tests": measured})
    else:
        _print(opened, measured)


@dataclass(frozen=True)
class _Measured:
    name: str
    figures: dict[str, float]
    notes: tuple[str, ...]


def _measure_stored(path: Path, settings: EvaluationSettings) -> _Measured:
    from vicinal.service.training import evaluate as evaluate_embeddings
    from vicinal.service.training import read_embeddings

    stored = read_embeddings(path)
    with progress_bar() as update:
        result = evaluate_embeddings(
            stored.embeddings,
            stored.labels,
            stored.roles,
            super_labels=stored.super_labels,
            settings=settings,
            on_progress=lambda _stage, done, total, *_: update("Measuring", done, total),
        )
    return _Measured(path.stem, result.figures, result.notes)


def _measure_bundle(
    bundle: Path | None, tests: Sequence[RetrievalTest], settings: EvaluationSettings
) -> tuple[ModelBundle, list[_Measured]]:
    from vicinal.models.bundle import ModelBundle
    from vicinal.models.embedder import Embedder
    from vicinal.service.training import measure_test

    chosen = load_settings(bundle=bundle)
    embedder = Embedder(
        ModelBundle.open(chosen.bundle),
        device=chosen.device,
        threads=chosen.threads,
        limits=chosen.decode_limits,
    )
    measured = []
    with progress_bar() as update:
        for test in tests:
            result = measure_test(embedder, test, settings, on_progress=partial(_show, update, test.name))
            measured.append(_Measured(test.name, result.figures, result.notes))
    return embedder.bundle, measured


def _show(update: OnProgress, name: str, stage: str, done: int, total: int) -> None:
    update(f"{_STAGES[stage]} {name}", done, total)


def _print(bundle: ModelBundle | None, tests: Sequence[_Measured]) -> None:
    if bundle is not None:
        say(f"Bundle {bundle.name} {bundle.fingerprint}")
    table = Table("", box=None)
    for one in tests:
        table.add_column(one.name, justify="right")
    for name in dict.fromkeys(name for one in tests for name in one.figures):
        # A spread stands beside its figure; recall proper is for scripts.
        if not name.endswith("_spread") and not name.startswith("recall_"):
            table.add_row(_label(name), *(_value(name, one.figures) for one in tests))
    print_table(table)
    for one in tests:
        say(*(f"  {one.name}: {note}" for note in one.notes))


_LABELS = {
    "r_precision": "R-precision",
    "map_at_r": "MAP@R",
    "mean_average_precision": "mAP",
    "map_at_1000": "mAP@1000",
    "nmi": "NMI",
    "nmi_geometric": "  by the geometric mean",
    "auroc": "AUROC, mate or none",
    "opis": "OPIS",
    "opis_floor": "  if all classes were equal",
    "epsilon_opis": "10 %-OPIS",
    "epsilon_opis_floor": "  if all classes were equal",
    "n_gallery": "gallery images",
    "n_queries": "query images",
    "n_absent": "absent images",
    "n_without_mate": "images without a mate",
    "n_classes": "classes",
}
_LABELS_AT_RANK = {"hit_rate": "R@", "precision": "mP@"}


def _label(name: str) -> str:
    difficulty, _, rest = name.partition("_")
    if difficulty in ("easy", "medium", "hard", "coarse"):
        return f"{difficulty} {_label(rest)}"
    kind, _, rank = name.rpartition("_")
    if kind in _LABELS_AT_RANK:
        return f"{_LABELS_AT_RANK[kind]}{rank}"
    return _LABELS[name]


def _value(name: str, figures: dict[str, float]) -> str:
    if name not in figures:
        return "-"
    value, spread = figures[name], figures.get(f"{name}_spread")
    if name.startswith("n_"):
        return f"{value:,.0f}"
    return f"{value:.4f}" if spread is None else f"{value:.4f} ± {spread:.4f}"
