"""The gallery's own metric against the nearest photo: how many more are found, on classes never seen?

For each part of each image set its gallery is indexed, and its labelled queries, taken on another day, are
searched for by label: by the score of the best photo, and by the metric that the gallery's labels teach
(`calibration.lda`). Measured are R@1, FNIR at an FPIR of exactly so much, and the same of a threshold that is
chosen by leaving items of the gallery out; differences have paired 95 % intervals over labels. Strangers are
the queries of labels that the gallery lacks (`--every-label`: and all others with their label taken out).
With `--beside` the training part of a set is laid beside by `vicinal fit`, and measured is what that changes.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.common.record import save_result
from benchmarks.quality.protocol_data import extract_part, extract_photos, protocol_parser
from benchmarks.quality.protocol_search import vicinal
from vicinal.calibration import Target, choose_threshold
from vicinal.calibration.rates.paired_bootstrap import LabelDraws, Searches, mean_figure, paired_interval
from vicinal.indexer.gallery import Gallery
from vicinal.models.bundle import ModelBundle
from vicinal.models.embedder import Embedder
from vicinal.service.measuring.calibrator import Calibrator
from vicinal.service.measuring.group_trials import measure_groups
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.measuring.measurement import Measurement
from vicinal.service.measuring.queries import read_queries
from vicinal.service.search.pipeline import Group, choose_pipeline

METRICS = {"cosine": Group(by="label"), "lda": Group(by="label", score="lda")}


def silent(*_progress: object) -> None:
    """Tell nobody."""


def measure_part(
    root: Path, split: str, folder: Path, embedder: Embedder, options: argparse.Namespace
) -> dict:
    """Figures of one part by both metrics, and their differences."""
    part = extract_part(root, split, folder / split)
    data_dir = folder / "data"
    vicinal("index", part.gallery, "--gallery", split, "--data-dir", data_dir, "--bundle", options.bundle)
    matcher = Matcher(Gallery.open(data_dir / "galleries" / split), embedder)
    pipeline = choose_pipeline(
        matcher.pipeline, "off", refine=options.refine, bundle=embedder.bundle, group_by="label"
    )
    refinement = matcher.refinement(pipeline)
    calibrator = Calibrator(matcher.snapshot, pipeline, refinement=refinement, most_queries=100_000)
    queries = read_queries(part.queries, embedder).labelled()
    asked = [queries]
    if options.every_label:
        asked.append(queries.take(np.flatnonzero(np.isin(queries.labels, matcher.snapshot.labels))))
    items = [calibrator.score_items(one, silent) for one in asked]
    own = calibrator.score_items(calibrator.leave_one_out(), silent)
    target = Target(rate="fpir", value=options.fpir)
    measured: dict[str, list[Measurement]] = {}
    thresholds: dict[str, float] = {}

    def measure(name: str, group: Group) -> None:
        measured[name] = [measure_groups(one, group) for one in items]
        thresholds[name] = choose_threshold(measure_groups(own, group).trials, target)

    for name, group in METRICS.items():
        measure(name, group)
    fitted: dict[str, dict] = {}
    for name in options.beside:
        photos = folder / "beside" / name
        manifest = extract_photos(options.data / name, photos)
        started = time.monotonic()
        more = ("--gallery", split, "--data-dir", data_dir, "--bundle", options.bundle)
        fitted[name] = vicinal("fit", manifest, *more)
        fitted[name]["seconds"] = round(time.monotonic() - started, 1)
        if fitted[name]["is_used"]:
            measure(f"lda beside {name}", METRICS["lda"])
            vicinal("fit", "--forget", *more)
        print(f"  beside {name}: {fitted[name]}", flush=True)
    return {
        "beside": fitted,
        "items": len(matcher.snapshot),
        "labels": len(set(matcher.snapshot.labels)),
        "queries": len(queries.labels),
        "pipeline": pipeline.key,
        "thresholds": thresholds,
        "figures": compared(measured, thresholds, options.fpir),
    }


def compared(measured: dict[str, list[Measurement]], thresholds: dict[str, float], fpir: float) -> dict:
    """Figures of both, and the differences with paired intervals."""
    both = {name: searches(one) for name, one in measured.items()}
    first = both["cosine"]
    draws = LabelDraws(first.mate_labels, first.other_labels, 0)
    figures = {
        f"fnir at {fpir:g}": [one.error_when_held("fpir", fpir) for one in both.values()],
        "fnir by leave-one-out": [one.fnir(thresholds[name]) for name, one in both.items()],
        "fpir by leave-one-out": [one.fpir(thresholds[name]) for name, one in both.items()],
        "auroc": [one.auroc for one in both.values()],
        "hit_rate_1": [
            mean_figure(one[0].hits[one[0].mates.has_mate].astype(float), both[name].mate_labels)
            for name, one in measured.items()
        ],
    }
    found = {}
    for name, pair in figures.items():
        values, drawn = draws.measured(pair), draws.drawn(pair)
        changes = {}
        for number, metric in list(enumerate(measured))[1:]:
            # What is beside changes the metric, and that the cosine.
            first = min(number - 1, 1)
            ends = paired_interval(drawn[first], drawn[number])
            changes[metric] = [round(float(one), 4) for one in (values[number] - values[first], *ends)]
        found[name] = {
            **{metric: round(float(value), 4) for metric, value in zip(measured, values, strict=True)},
            "difference": changes,
        }
    return found


def searches(measured: list[Measurement]) -> Searches:
    """Searches with a mate, of the first measurement, and those without one, of all."""
    first = measured[0]
    labels = [one.names[one.codes] for one in measured]
    names = np.unique(np.concatenate(labels))
    codes = [np.searchsorted(names, own) for own in labels]
    return Searches(
        first.trials.best_mate_scores,
        codes[0][first.mates.has_mate],
        np.concatenate([one.trials.best_scores_without_mate for one in measured]),
        np.concatenate([own[one.without.queries] for own, one in zip(codes, measured, strict=True)]),
    )


def main() -> None:
    """Run the parts of the sets and save what was found."""
    parser = protocol_parser(__doc__)
    parser.add_argument("--refine", default="auto")
    parser.add_argument("--every-label", action="store_true")
    parser.add_argument("--beside", nargs="*", default=[], help="sets whose training parts are tried")
    parser.add_argument("--suffix", default="", help="added to the name of the raw results")
    arguments = parser.parse_args()
    embedder = Embedder(ModelBundle.open(arguments.bundle))
    found = {}
    for name in arguments.sets:
        for part in arguments.parts:
            with tempfile.TemporaryDirectory() as folder:
                one = measure_part(arguments.data / name, part, Path(folder), embedder, arguments)
            found[f"{name}, {part}"] = one
            print(f"{name}, {part}: {one['items']} items, {one['labels']} labels", flush=True)
            for figure, values in one["figures"].items():
                print(f"  {figure}: {values}", flush=True)
    options = {"fpir": arguments.fpir, "every_label": arguments.every_label, "bundle": arguments.bundle.name}
    print(save_result(f"label_metric{arguments.suffix}", {**options, "parts": found}))


if __name__ == "__main__":
    main()
