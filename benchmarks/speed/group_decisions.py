"""What a decision by label costs: searches over HTTP by photo and by label, 100,000 photos of 5,000 labels.

Every query is searched for once in each way, in turns, as a ready embedding, so that the network's time stays
out. Thresholds are set by hand so that nothing matches: every answer lists ten candidates, photos or labels,
and none is dearer because it found more. Labels are scored by the nearest photo, and by the metric that they
teach. The difference is that of the median requests, as the client sees them.
"""

from __future__ import annotations

import argparse

import numpy as np

from benchmarks.common.large_gallery import LargeGallery, items_and_queries, large_gallery
from benchmarks.common.record import percentiles, save_result
from vicinal.models.embedder import Embedder
from vicinal.service.measuring.label_folds import LabelFolds
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.search.label_scores import note_metric
from vicinal.service.search.pipeline import Group


def search(served: LargeGallery, query: np.ndarray, group_by: str) -> dict[str, float]:
    """Milliseconds of the request, and of the answer in it, for a (d,) query by photo or by group."""
    body = {"embedding": query.tolist(), "include_candidates": True, "group_by": group_by}
    answer, request = served.search(body)
    return {"request": request, "answer": answer["milliseconds"]["answer"]}


def main() -> None:
    """Measure both scores over one gallery, and save raw times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--labels", type=int, default=5_000)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--no-result", action="store_true", help="print only")
    arguments = parser.parse_args()
    items, queries = items_and_queries(arguments.items, arguments.queries + 20, arguments.dim)
    found = {}
    with large_gallery(items, n_labels=arguments.labels) as served:
        matcher = Matcher(served.gallery, Embedder(served.bundle))
        matcher.thresholds.set_by_hand(matcher.pipeline, 1.0)
        metric = note_metric(LabelFolds(matcher.groups("label")).whole)
        forms = {"cosine": Group(by="label"), "lda": Group(by="label", score="lda", metric=metric)}
        for name, form in forms.items():
            grouped = matcher.pipeline.model_copy(update={"group": form})
            matcher.thresholds.set_by_hand(grouped, 1.0)
            found[name] = measure(served, queries, warm_up=20)
            print(name, {key: value for key, value in found[name].items() if key != "raw"}, flush=True)
    result = {
        "items": arguments.items,
        "labels": arguments.labels,
        "dim": arguments.dim,
        "queries": arguments.queries,
        "forms": found,
        "ratios": {f"photos over groups, {name}": one["photos_over_groups"] for name, one in found.items()},
    }
    if not arguments.no_result:
        print(save_result("group_decisions", result))


def measure(served: LargeGallery, queries: np.ndarray, *, warm_up: int) -> dict:
    """Search for (n, d) queries in both ways in turns; the first `warm_up` of them do not count."""
    raw: dict[str, dict[str, list[float]]] = {"photos": {}, "groups": {}}
    for turn, query in enumerate(queries):
        # Each way comes first every other time.
        ways = [("photos", "off"), ("groups", "label")]
        for way, group_by in ways if turn % 2 else reversed(ways):
            spent = search(served, query, group_by)
            if turn >= warm_up:
                for stage, milliseconds in spent.items():
                    raw[way].setdefault(stage, []).append(round(milliseconds, 4))
    medians = {way: {stage: percentiles(values) for stage, values in one.items()} for way, one in raw.items()}
    extra = {
        stage: round(medians["groups"][stage]["p50"] - medians["photos"][stage]["p50"], 3)
        for stage in ("request", "answer")
    }
    ratio = medians["photos"]["request"]["p50"] / medians["groups"]["request"]["p50"]
    return {"milliseconds": medians, "extra_p50": extra, "photos_over_groups": round(ratio, 4), "raw": raw}


if __name__ == "__main__":
    main()
