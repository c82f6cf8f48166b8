"""`vicinal compare` and `vicinal use`: variants of a gallery on the same queries, and which is searched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from vicinal.service.cli.console import print_json, print_table, progress_bar, say
from vicinal.service.cli.options import GalleryOption, Home, JsonOption
from vicinal.service.errors import RequestError
from vicinal.service.operations import Progress
from vicinal.service.request_fields import ComparisonFields
from vicinal.service.words import number_of, percent, rate_name, span

if TYPE_CHECKING:
    from vicinal.service.comparing.record import ComparedFlips, Comparison, FigureName, Variant

# Shares are told in percent, other figures as they are.
_COLUMNS: dict[FigureName, str] = {
    "error": "{asked} at target",
    "fnir": "FNIR",
    "hit_rate": "R@1",
    "map_at_r": "MAP@R",
    "auroc": "AUROC",
    "opis": "OPIS",
}
_NO_SHARES = ("auroc", "opis")


def compare(
    gallery: GalleryOption,
    *,
    versions: Annotated[
        list[int] | None,
        typer.Argument(help="Other versions. Default: other pipelines on the active version."),
    ] = None,
    pipelines: Annotated[bool, typer.Option(help="Try the usual pipelines on every version.")] = False,
    group_by: Annotated[
        str | None,
        typer.Option(help="Try decisions by products: label or a metadata key, with every form of score."),
    ] = None,
    request: ComparisonFields,
    activate: Annotated[bool, typer.Option(help="Use the recommended variant and its threshold.")] = False,
    home: Home,
    json_output: JsonOption = False,
) -> None:
    """Try versions and pipelines on the same queries, each with its own threshold, and recommend one."""
    from vicinal.service.comparing.store import put_in_force
    from vicinal.service.operations import compare as operation

    tried = {"versions": versions or (), "pipelines": pipelines, "group_by": group_by}
    asked = operation.CompareRequest.model_validate({**dict(request), **tried})
    place = home.place(gallery)
    with progress_bar() as update:
        made = operation.run(place, asked, Progress(update))
    if activate:
        put_in_force(place.gallery, place.bundles, made)
    if json_output:
        print_json(made)
    else:
        _print(made, home.command("use", "-g", gallery, made.id))


def use(
    gallery: GalleryOption,
    comparison: Annotated[str | None, typer.Argument(help="Id of the comparison.")] = None,
    variant: Annotated[int | None, typer.Option(help="Its number; the recommended one by default.")] = None,
    reset: Annotated[
        bool, typer.Option("--reset", help="Let the settings choose the pipeline again.")
    ] = False,
    *,
    home: Home,
    json_output: JsonOption = False,
) -> None:
    """Use a compared variant and its threshold from the next search on; without an id, say what is used."""
    from vicinal.service.comparing.store import ComparisonStore, put_in_force

    if reset and comparison is not None:
        raise RequestError("name a comparison or --reset, not both")
    opened, bundles = home.gallery(gallery), home.bundles()
    if comparison is not None:
        put_in_force(opened, bundles, ComparisonStore(opened.path).find(comparison), variant)
    matcher = bundles.matcher(opened)
    if reset:
        matcher.pipeline_store.clear()
    active, version = matcher.active_pipeline, matcher.snapshot.manifest.version
    threshold = matcher.threshold(active.pipeline)
    if json_output:
        print_json(
            {
                "version": version,
                "pipeline": active.pipeline.key,
                "source": active.source,
                "comparison": None if active.chosen is None else active.chosen.comparison,
                "threshold": threshold.value,
                "state": threshold.state,
                "reason": active.reason,
            }
        )
        return
    value = "none" if threshold.value is None else f"{threshold.value:.4f}"
    say(
        f"Gallery {gallery} is searched in version {version} with '{active.pipeline.key}', by the "
        f"{active.source}; threshold {value}"
    )
    say(*(f"  note: {reason}" for reason in filter(None, (threshold.reason, active.reason))))


def _print(made: Comparison, use_it: str) -> None:
    names = [name for name in _COLUMNS if any(name in one.figures for one in made.variants)]
    samples = sorted({sample for one in made.variants for sample in one.flips}, reverse=True)
    asked = rate_name(made.asked)
    titles = [_COLUMNS[name].format(asked=asked) for name in names]
    flipped = [f"{sample} flipped" for sample in samples]
    table = Table("", "version", "pipeline", "threshold", *titles, *flipped, box=None)
    for number, one in enumerate(made.variants):
        mark = "*" if number == made.recommended else ""
        threshold = "none" if one.calibration is None else f"{one.calibration.threshold:.4f}"
        cells = [_figure(one, name) for name in names] + [_flipped(one.flips.get(name)) for name in samples]
        table.add_row(f"{number}{mark}", str(one.version), one.pipeline.key, threshold, *cells)
    print_table(table)
    asked_of = f"{number_of(made.n_queries, 'query', 'queries')} of {number_of(made.n_labels, 'label')}"
    say(f"{asked_of}; in brackets 95 % intervals, of figures for the change from number 0")
    say(f"* recommended: {made.reason}")
    for number, one in enumerate(made.variants):
        say(*(f"  no {what} of {number}: {reason}" for what, reason in one.left_out.items()))
    say(*(f"  note: {warning}" for warning in made.warnings))
    say(f"  use the recommended one with `{use_it}`, another one with --variant N")


def _figure(one: Variant, name: FigureName) -> str:
    figure = one.figures.get(name)
    if figure is None:
        return ""
    scale, digits, unit = (1.0, ".3g", "") if name in _NO_SHARES else (100.0, ".1f", " %")
    text = f"{scale * figure.value:{digits}}{unit}"
    if name == "opis" and one.opis_floor is not None:
        text += f" (floor {one.opis_floor:.2g})"
    if not figure.low and not figure.high:
        return text
    return f"{text} [{scale * (figure.low or 0.0):+{digits}} to {scale * (figure.high or 0.0):+{digits}}]"


def _flipped(flips: ComparedFlips | None) -> str:
    if flips is None:
        return ""
    share = flips.flipped
    return f"{percent(share.rate)} [{span(share.low, share.high)}]"
