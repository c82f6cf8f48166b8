"""`vicinal calibrate` and `vicinal calibration`: find thresholds, try others, and say which is in force."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from vicinal.service.cli.console import errors, print_json, print_left_out, print_table, progress_of, say
from vicinal.service.cli.options import DetailsOption, GalleryOption, Home, JsonOption, end_by
from vicinal.service.errors import RequestError
from vicinal.service.operations import calibrate as operation
from vicinal.service.operations import check as check_operation
from vicinal.service.operations import fit as fit_operation
from vicinal.service.request_fields import PipelineChoice
from vicinal.service.surfaces.command_line import Commands, words_of
from vicinal.service.words import (
    drift_words,
    percent,
    promise_lines,
    rate_name,
    span,
    standing_words,
)

if TYPE_CHECKING:
    from vicinal.models.bundle import BundleManifest, Noun
    from vicinal.service.measuring.dry_run import DryRunResult, TriedThreshold
    from vicinal.service.measuring.matcher import Matcher
    from vicinal.service.measuring.records.promise import PromiseCheck
    from vicinal.service.measuring.records.record import CalibrationRecord

# Further advice is of little use while the first is not followed.
_MOST_ADVICE = 3
app = Commands(
    help="List, show, report, try, activate and set the thresholds of a gallery.", no_args_is_help=True
)

IdArgument = Annotated[str, typer.Argument(help="Id of the calibration.")]


def calibrate(
    gallery: GalleryOption,
    request: operation.CalibrateRequest,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Use it, also where it promises less.")] = False,
    details: DetailsOption = False,
    *,
    home: Home,
    json_output: JsonOption = False,
) -> None:
    """Find the one threshold that holds a stated target on this gallery, and what it lets expect."""
    if yes and request.activate is None:
        request = request.model_copy(update={"activate": True})
    place = home.place(gallery)
    with progress_of(operation.STAGES) as progress:
        made = operation.run(place, request, progress)
    record, kept_back = made.record, made.objection
    question = f"{kept_back} Use it all the same?"
    if kept_back and not json_output and sys.stdin.isatty() and typer.confirm(question):
        kept_back = None
        place.matcher.put_in_force(record)
    print_left_out(progress.failures, as_json=json_output)
    if kept_back:
        again = home.command("calibration", "activate", record.id, "-g", gallery)
        say(f"{kept_back} It was kept and is not in force; to use it: {again}", to=errors)
    if json_output:
        print_json(json.loads(record.model_dump_json()))
        return
    print_promise(record, gallery, place.matcher.embedder.bundle.manifest, home, details=details)
    if record.source != "leave_one_out" and not details:
        # What became of the queries that were given.
        say(*(f"  note: {warning}" for warning in record.warnings))


def fit(
    gallery: GalleryOption,
    request: fit_operation.FitRequest,
    *,
    home: Home,
    json_output: JsonOption = False,
) -> None:
    """Let labelled photos beside the gallery teach its metric more, where they are surely of its kind."""
    place = home.place(gallery)
    with progress_of(fit_operation.STAGES) as progress:
        found = fit_operation.run(place, request, progress)
    print_left_out(progress.failures, as_json=json_output)
    if json_output:
        print_json(found)
        return
    if found is None:
        say("Calibrations use no photos beside the gallery from now on.")
        return
    if found.n_known:
        say(f"{found.n_known:,} photos carry labels of the gallery and were left out: add them to it.")
    say(fit_operation.fitted_words(found))
    if found.is_used:
        say(f"Calibrations use them from now on: {home.command('calibrate', '-g', gallery)}")


def print_promise(
    record: CalibrationRecord,
    gallery: str,
    bundle: BundleManifest,
    home: Home,
    *,
    check: PromiseCheck | None = None,
    broken: str | None = None,
    details: bool = False,
) -> None:
    """Print a calibration for people: what it promises, what would improve it, or all figures."""
    from vicinal.service.reports.promise import advice, calibration_lines, tried_promise

    found_by = "".join(f" {shlex.quote(word)}" for word in home.words)
    say(*tried_promise(record, check, bundle.noun, broken))
    steps = advice(record, gallery, noun=bundle.noun)[:_MOST_ADVICE]
    if steps:
        say("To improve it, what promises most first:")
    for number, step in enumerate(steps, start=1):
        say(f"  {number}. {step.text}")
        if step.command:
            say(f"     {step.command.replace(' && ', f'{found_by} && ')}{found_by}")
    if details:
        say(*calibration_lines(record, bundle.noun))
    else:
        say(
            f"Threshold {record.threshold:.4f}, calibration {record.id}. All figures: "
            f"vicinal calibration show {record.id} -g {gallery} --details{found_by}"
        )


@app.command("list")
def list_all(gallery: GalleryOption, home: Home, json_output: JsonOption = False) -> None:
    """Calibrations of a gallery, newest first; * marks those in force."""
    from vicinal.service.measuring.matcher import measuring_command
    from vicinal.service.reports.report import describe_history

    found = home.matcher(gallery)
    history = describe_history(found)
    if json_output:
        print_json(history)
        return
    if not history.calibrations:
        say(f"Gallery {gallery} has no calibration: make one with `{measuring_command(found.gallery)}`")
        return
    table = Table("", box=None)
    # An id is there to be copied.
    table.add_column("id", no_wrap=True, min_width=max(len(one.id) for one in history.calibrations))
    for name in ("state", "target", "threshold", "FPIR", "FNIR", "items", "pipeline"):
        table.add_column(name)
    for one in history.calibrations:
        rates = [one.promised.get(name) for name in ("fpir", "fnir")]
        table.add_row(
            "*" if one.is_active else "",
            one.id,
            one.state or "",
            one.target or "set by hand",
            f"{one.threshold:.4f}",
            *(
                "" if rate is None else f"{percent(rate.rate)} [{span(rate.low, rate.high)}]"
                for rate in rates
            ),
            f"{one.n_items:,}",
            one.pipeline,
        )
    print_table(table)
    say(*(f"{one.id}: {one.reason}" for one in history.calibrations if one.state == "broken"))


@app.command("show")
def show(
    calibration: IdArgument,
    gallery: GalleryOption,
    *,
    details: DetailsOption = False,
    home: Home,
    json_output: JsonOption = False,
) -> None:
    """One calibration: what it was measured on, what it lets expect, and whether it still holds."""
    matcher = home.matcher(gallery)
    record = matcher.calibrations.find(calibration)
    _print_record(matcher, record, home, json_output=json_output, details=details)


@app.command("report")
def report(calibration: IdArgument, gallery: GalleryOption, home: Home) -> None:
    """All that is known of one calibration, as JSON."""
    from vicinal.service.measuring.drift import read_drift
    from vicinal.service.reports.report import report_record

    matcher = home.matcher(gallery)
    record = matcher.calibrations.find(calibration)
    print_json(report_record(matcher, record, read_drift(matcher.calibrations, record)))


@app.command("activate")
def activate(
    calibration: IdArgument, gallery: GalleryOption, home: Home, json_output: JsonOption = False
) -> None:
    """Use a calibration from the next search with its pipeline on."""
    matcher = home.matcher(gallery)
    _print_record(matcher, matcher.activate(calibration), home, json_output=json_output)


@app.command("rollback")
def roll_back(
    gallery: GalleryOption, choice: PipelineChoice, home: Home, json_output: JsonOption = False
) -> None:
    """Use the calibration again that was in force before the present one."""
    matcher = home.matcher(gallery)
    record = matcher.roll_back(choice)
    _print_record(matcher, record, home, json_output=json_output)


@app.command("set")
def set_by_hand(
    threshold: Annotated[float, typer.Argument(help="Lowest accepted score, in [0, 1].")],
    gallery: GalleryOption,
    choice: PipelineChoice,
    home: Home,
    json_output: JsonOption = False,
) -> None:
    """Use a threshold of your own; every answer says so, and no rate is claimed."""
    matcher = home.matcher(gallery)
    record = matcher.thresholds.set_by_hand(matcher.chosen(choice), threshold)
    _print_record(matcher, record, home, json_output=json_output)


@app.command("dry-run")
def try_threshold(
    tried: Annotated[
        str,
        typer.Argument(help="A score such as 0.35, a target such as fpir=1%, or the id of a calibration."),
    ],
    gallery: GalleryOption,
    choice: PipelineChoice,
    home: Home,
    json_output: JsonOption = False,
) -> None:
    """Try a threshold beside the one in force, on stored scores; nothing is changed."""
    from vicinal.service.measuring.dry_run import dry_run

    matcher = home.matcher(gallery)
    found = dry_run(matcher.thresholds, matcher.chosen(choice), _tried(tried))
    if json_output:
        print_json(found)
    else:
        _print_dry_run(found)


@app.command("check")
def check(
    gallery: GalleryOption,
    request: check_operation.CheckRequest,
    details: Annotated[
        bool, typer.Option("--details", help="Also print rates, ranges and probabilities.")
    ] = False,
    *,
    home: Home,
    json_output: JsonOption = False,
) -> None:
    """Try what was promised with new labelled queries or with answers; nothing is calibrated or changed.

    Exit status: 0 if the promise holds or it cannot be told yet, 1 if it is broken, 2 after an error.
    """
    place = home.place(gallery)
    with progress_of(check_operation.STAGES) as progress:
        found = check_operation.run(place, request, progress)
    print_left_out(progress.failures, as_json=json_output)
    if json_output:
        print_json(found)
    else:
        record = place.matcher.calibrations.find(found.calibration)
        asked, group = record.target, record.pipeline.group
        target = (
            [] if asked is None or str(asked) == "FPIR 5 %" else ["--target", f"{asked.rate}={asked.value:g}"]
        )
        given = words_of(request, leave_out=("queries", "answers", "calibration", "group_by"))
        source = ("--answers",) if request.answers else ("--queries", str(request.queries))
        given += [] if group is None else ["--group-by", group.by]
        again = home.command("calibrate", *source, "-g", gallery, *target, *given)
        say(*_check_lines(found, again, place.matcher.embedder.bundle.manifest.noun, details=details))
    end_by(found.verdict == "broken")


@app.command("drift")
def drift(
    gallery: GalleryOption, choice: PipelineChoice, home: Home, json_output: JsonOption = False
) -> None:
    """Whether searches still look like the queries of the calibration in force, as servers have written.

    Exit status: 1 where they have drifted strongly, 0 where not, or it cannot be told, 2 after an error.
    """
    from vicinal.service.measuring.drift import read_drift

    matcher = home.matcher(gallery)
    pipeline = matcher.chosen(choice)
    record = matcher.calibrations.active(pipeline)
    if record is None:
        raise RequestError(f"gallery '{gallery}' has no calibration for '{pipeline.key}'")
    found = read_drift(matcher.calibrations, record)
    if json_output:
        print_json(found)
    else:
        say(f"Drift from calibration {record.id}: {drift_words(found)}")
    end_by(found.level == "strong")


def _tried(text: str) -> TriedThreshold:
    from vicinal.service.measuring.dry_run import TriedThreshold
    from vicinal.service.search.answers import require_score

    # As answers write it, too: a score and an id have none of these.
    if not set("=≤≥ ").isdisjoint(text):
        return TriedThreshold(target=text)
    try:
        threshold = float(text)
    except ValueError:
        return TriedThreshold(calibration=text)
    require_score(threshold)
    return TriedThreshold(threshold=threshold)


def _print_record(
    matcher: Matcher, record: CalibrationRecord, home: Home, *, json_output: bool, details: bool = False
) -> None:
    from vicinal.service.reports.report import describe_record

    found = describe_record(matcher, record)
    if json_output:
        print_json(found)
        return
    bundle, check = matcher.embedder.bundle.manifest, found.last_check
    print_promise(
        record, matcher.gallery.name, bundle, home, check=check, broken=found.broken, details=details
    )
    state = "It is in force" if found.is_active else "It is not in force"
    say(f"{state}; {standing_words(found.state, found.reason, check, bundle.noun)}.")


def _check_lines(found: PromiseCheck, again: str, noun: Noun, *, details: bool) -> Iterator[str]:
    what = f"{noun}s" if found.source == "queries" else "answers"
    advice = f" What to do: calibrate with these {what}: {again}" if found.verdict == "broken" else ""
    yield found.sentence + advice
    yield from (f"  note: {warning}" for warning in found.warnings)
    yield from (f"  {line}" for line in promise_lines(found, noun)) if details else ()


def _print_dry_run(found: DryRunResult) -> None:
    now = "none" if found.current is None else f"{found.current.threshold:.4f}"
    say(
        f"Threshold {now} -> {found.tried.threshold:.4f} ({found.pipeline}), on the scores of "
        f"calibration {found.scores_of}"
    )
    table = Table("rate", "now", "then", box=None)
    sides = [{} if found.current is None else found.current.rates, found.tried.rates]
    for name in dict.fromkeys(name for side in sides for name in side):
        cells = [
            f"{percent(one.rate)} [{span(one.low, one.high)}]" if one else "not known"
            for one in (side.get(name) for side in sides)
        ]
        table.add_row(rate_name(name), *cells)
    print_table(table)
    for kind, flips in found.flips.items():
        say(
            f"  {kind.replace('_', ' ')}: of {flips.n:,}, {flips.to_match:,} would get a match and "
            f"{flips.to_no_match:,} lose it"
        )
    say(*(f"  note: {warning}" for warning in found.warnings))
