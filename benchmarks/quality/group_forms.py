"""One decision a group against one a photo: how many more are found at the same FPIR, on classes never seen?

For each image set the gallery of the calibration classes is searched for the labelled queries of these
classes, and the form with the lowest FNIR, at the first FPIR, is chosen there. Both decisions are then
measured on the test classes, which share no label with them: FNIR at the same FPIR, R@1, and the differences
with paired 95 % intervals over labels. `learned` is fitted on the calibration classes alone. Every form is
listed on both, so that the choice can be judged.

Queries that have a mate are searched for once more, without the items of their label, so that FPIR rests on
every label and not only on the few that the gallery lacks (`--lacking-only`: on these alone). With
`--leave-one-out` the queries are the items of the galleries, each left out once, as by default.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.common.record import save_result
from benchmarks.quality.protocol_data import extract_part
from benchmarks.quality.protocol_search import vicinal
from vicinal.calibration.rates.paired_bootstrap import LabelDraws, Searches, mean_figure, paired_interval
from vicinal.indexer.gallery import Gallery
from vicinal.models.bundle import ModelBundle, default_bundle_path
from vicinal.models.embedder import Embedder
from vicinal.service.measuring.calibrator import Calibrator
from vicinal.service.measuring.group_trials import group_forms, measure_groups
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.measuring.measurement import Measurement
from vicinal.service.measuring.queries import read_queries
from vicinal.service.search.pipeline import Group, choose_pipeline


def measure_part(root: Path, split: str, folder: Path, embedder: Embedder, options: argparse.Namespace):
    """Scores of all queries of one part, ready to be decided by group, and of those with a mate again."""
    part = extract_part(root, split, folder / split)
    data_dir = folder / "data"
    vicinal("index", part.gallery, "--gallery", split, "--data-dir", data_dir, "--bundle", options.bundle)
    matcher = Matcher(Gallery.open(data_dir / "galleries" / split), embedder)
    pipeline = choose_pipeline(
        matcher.pipeline, options.rerank, refine=options.refine, bundle=embedder.bundle, group_by="label"
    )
    refinement = matcher.refinement(pipeline)
    calibrator = Calibrator(matcher.snapshot, pipeline, refinement=refinement, most_queries=100_000)
    if options.leave_one_out:
        queries = calibrator.leave_one_out()
    else:
        queries = read_queries(part.queries, embedder).labelled()
    asked = [queries]
    if not options.leave_one_out and not options.lacking_only:
        asked.append(queries.take(np.flatnonzero(np.isin(queries.labels, matcher.snapshot.labels))))
    return pipeline, [calibrator.score(one, lambda *_progress: None) for one in asked]


def searches(measured: Sequence[Measurement]) -> Searches:
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


def compared(photos: Sequence[Measurement], groups: Sequence[Measurement], fpirs: list[float]) -> dict:
    """FNIR at each FPIR and R@1 of both, and the differences with paired intervals."""
    both = [searches(one) for one in (photos, groups)]
    draws = LabelDraws(both[0].mate_labels, both[0].other_labels, 0)
    pairs = {f"fnir at {fpir:g}": [one.error_when_held("fpir", fpir) for one in both] for fpir in fpirs}
    pairs["hit_rate_1"] = [
        mean_figure(one.hits[one.mates.has_mate].astype(float), labels)
        for one, labels in ((photos[0], both[0].mate_labels), (groups[0], both[1].mate_labels))
    ]
    found = {}
    for name, figures in pairs.items():
        values, drawn = draws.measured(figures), draws.drawn(figures)
        low, high = paired_interval(*drawn)
        found[name] = {
            "photos": round(float(values[0]), 4),
            "groups": round(float(values[1]), 4),
            "difference": [round(float(one), 4) for one in (values[1] - values[0], low, high)],
        }
    return found


def run_set(root: Path, folder: Path, embedder: Embedder, options: argparse.Namespace) -> dict:
    """All forms on both parts of one set, and the one that the calibration classes choose."""
    pipeline, items = measure_part(root, "calibration", folder, embedder, options)
    _, tested = measure_part(root, "test", folder, embedder, options)
    photos = [[measure_groups(one, Group(by="label")) for one in part] for part in (items, tested)]
    forms = {}
    for form in group_forms("label"):
        on_calibration = [measure_groups(one, form) for one in items]
        # With the weights of the calibration classes, where there are any.
        on_test = [measure_groups(one, on_calibration[0].group) for one in tested]
        forms[form.form] = {
            part: compared(before, after, options.fpir)
            for part, before, after in zip(
                ("calibration", "test"), photos, (on_calibration, on_test), strict=True
            )
        }
    asked = f"fnir at {options.fpir[0]:g}"
    chosen = min(forms, key=lambda name: forms[name]["calibration"][asked]["groups"])
    show(root.name, forms, chosen)
    counts = {
        name: {
            "with_mate": int(part[0].mates.has_mate.sum()),
            "without_mate": sum(len(one.without.queries) for one in part),
            "labels_without_mate": len(np.unique(np.concatenate([one.labels_without_mate for one in part]))),
            "labels": len(np.unique(part[0].codes)),
        }
        for name, part in (("calibration", items), ("test", tested))
    }
    key = pipeline.model_copy(update={"group": None}).key
    return {
        "pipeline": key,
        "queries": counts,
        "chosen": chosen,
        "test": forms[chosen]["test"],
        "forms": forms,
    }


def show(name: str, forms: dict, chosen: str) -> None:
    """Print every form's figures and differences, and which form was chosen."""
    for form, parts in forms.items():
        figures = [
            f"{part}: "
            + ", ".join(
                "{} {:.3f} ({:+.3f} [{:+.3f}, {:+.3f}])".format(what, one["groups"], *one["difference"])
                for what, one in parts[part].items()
            )
            for part in parts
        ]
        print(f"{name} {form}{' (chosen)' if form == chosen else ''}\n  " + "\n  ".join(figures), flush=True)


def main() -> None:
    """Run the sets and save what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with one protocol folder a set")
    parser.add_argument("--sets", nargs="+", default=["grocery", "dogfacenet", "omniglot"])
    parser.add_argument("--bundle", type=Path, default=default_bundle_path())
    parser.add_argument("--fpir", type=float, nargs="+", default=[0.05, 0.1, 0.2])
    parser.add_argument("--refine", default="auto")
    parser.add_argument("--rerank", default="auto")
    parser.add_argument("--leave-one-out", action="store_true")
    parser.add_argument("--lacking-only", action="store_true")
    parser.add_argument("--suffix", default="", help="added to the name of the raw results")
    arguments = parser.parse_args()
    embedder = Embedder(ModelBundle.open(arguments.bundle))
    found = {}
    for name in arguments.sets:
        with tempfile.TemporaryDirectory() as folder:
            found[name] = run_set(arguments.data / name, Path(folder), embedder, arguments)
    options = {
        "fpir": arguments.fpir,
        "leave_one_out": arguments.leave_one_out,
        "lacking_only": arguments.lacking_only,
        "bundle": arguments.bundle.name,
    }
    print(save_result(f"group_forms{arguments.suffix}", {**options, "sets": found}))


if __name__ == "__main__":
    main()
