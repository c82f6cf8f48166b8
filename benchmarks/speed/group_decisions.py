"""What a decision by group costs: searches over HTTP by photo and by product, 100,000 photos of 50,000.

Every query is searched for once in each way, in turns, as a ready embedding, so that the network's time stays
out. Thresholds are set by hand beforehand, with the form of the group score that is measured; `learned` makes
all features. The difference is that of the median requests, as the client sees them.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import httpx
import numpy as np

from benchmarks.common.record import percentiles, save_result
from benchmarks.common.server_process import server_process
from benchmarks.speed import query_stages
from benchmarks.speed.index_recall import clustered_vectors
from vicinal.indexer.gallery import Gallery
from vicinal.models.embedder import Embedder
from vicinal.service.matcher.matcher import Matcher
from vicinal.service.scoring.group_scores import FEATURES
from vicinal.service.scoring.pipeline import Group
from vicinal.service.settings import Settings

FORMS = {
    "max": Group(by="label"),
    "lme": Group(by="label", score="lme"),
    "vote": Group(by="label", score="vote"),
    "learned": Group(by="label", score="learned", weights=(1.0,) * (len(FEATURES) + 1)),
}


def search(client: httpx.Client, query: np.ndarray, group_by: str) -> dict[str, float]:
    body = {"embedding": query.tolist(), "include_candidates": True, "group_by": group_by}
    started = time.perf_counter()
    answer = client.post("/v1/galleries/large/search", json=body).raise_for_status().json()
    spent = 1e3 * (time.perf_counter() - started)
    return {"request": spent, "answer": answer["milliseconds"]["answer"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--labels", type=int, default=50_000)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--queries", type=int, default=300)
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    centers, basis = rng.normal(size=(5000, 64)), rng.normal(size=(64, arguments.dim))
    items = clustered_vectors(rng, arguments.items, arguments.dim, centers, basis)
    queries = clustered_vectors(rng, arguments.queries + 20, arguments.dim, centers, basis)
    query_stages.N_LABELS = arguments.labels
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(data_dir=Path(folder), bundle=Path(folder) / "bundle")
        bundle = query_stages.write_bundle(settings.bundle, arguments.dim)
        gallery = Gallery(settings.galleries_path / "large")
        query_stages.write_gallery(gallery, items, bundle)
        matcher = Matcher(gallery, Embedder(bundle))
        matcher.thresholds.set_by_hand(matcher.pipeline, 0.5)
        with (
            server_process(settings.data_dir, settings.bundle) as url,
            httpx.Client(base_url=url, timeout=60) as client,
        ):
            for name, form in FORMS.items():
                grouped = matcher.pipeline.model_copy(update={"group": form})
                matcher.thresholds.set_by_hand(grouped, 0.5)
                found[name] = measure(client, queries, warm_up=20)
                print(name, {key: value for key, value in found[name].items() if key != "raw"}, flush=True)
    result = {
        "items": arguments.items,
        "labels": arguments.labels,
        "dim": arguments.dim,
        "queries": arguments.queries,
        "forms": found,
    }
    print(save_result("group_decisions", result))


def measure(client: httpx.Client, queries: np.ndarray, *, warm_up: int) -> dict:
    raw: dict[str, dict[str, list[float]]] = {"photos": {}, "groups": {}}
    for turn, query in enumerate(queries):
        # Each way comes first every other time.
        ways = [("photos", "off"), ("groups", "label")]
        for way, group_by in ways if turn % 2 else reversed(ways):
            spent = search(client, query, group_by)
            if turn >= warm_up:
                for stage, milliseconds in spent.items():
                    raw[way].setdefault(stage, []).append(round(milliseconds, 4))
    medians = {way: {stage: percentiles(values) for stage, values in one.items()} for way, one in raw.items()}
    extra = {
        stage: round(medians["groups"][stage]["p50"] - medians["photos"][stage]["p50"], 3)
        for stage in ("request", "answer")
    }
    return {"milliseconds": medians, "extra_p50": extra, "raw": raw}


if __name__ == "__main__":
    main()
