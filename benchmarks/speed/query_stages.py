"""Time of a query by stage, over real HTTP, in a gallery of 100,000 synthetic items x 512.

Searches come one after the other as ready embeddings, so that the network's time stays out. The stages
are those that the answer names; `json` is reading the request and writing the answer, done again here on the
same bodies, because a server cannot say in its answer how long writing it takes. `request` is the whole of it
as the client sees it, with HTTP and the client's own JSON.
"""

from __future__ import annotations

import argparse
import json
import time

from pydantic import TypeAdapter

from benchmarks.common.large_gallery import NAME, items_and_queries, large_gallery
from benchmarks.common.record import percentiles, save_result
from vicinal.service.http.routes.search import SearchRequest
from vicinal.service.search.answers import Answer

_ANSWERS = TypeAdapter(Answer)


def json_milliseconds(request: str, answer: dict) -> float:
    """What reading a request and writing its answer takes."""
    started = time.perf_counter()
    SearchRequest.model_validate(json.loads(request))
    _ANSWERS.dump_json(_ANSWERS.validate_python({**answer, "top_score": None}))
    return 1e3 * (time.perf_counter() - started)


def main() -> None:
    """Send the queries one after the other, and save the times of each stage."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--no-result", action="store_true", help="print only")
    arguments = parser.parse_args()
    items, queries = items_and_queries(arguments.items, arguments.queries + 20, arguments.dim)
    stages: dict[str, list[float]] = {}
    with large_gallery(items) as served:
        index = served.client.get(f"/v1/galleries/{NAME}").raise_for_status().json()["index"]
        for turn, query in enumerate(queries):
            body = {"embedding": query.tolist(), "threshold": 0.5, "include_candidates": True}
            answer, request = served.search(body)
            spent = {**answer["milliseconds"], "request": request}
            spent["json"] = json_milliseconds(json.dumps(body), answer)
            # The first requests touch pages of the memory map for the first time.
            if turn >= 20:
                for stage, milliseconds in spent.items():
                    stages.setdefault(stage, []).append(milliseconds)
    counted = ("rescore", "rerank", "answer", "json")
    stages["all_but_search"] = [sum(spent) for spent in zip(*(stages[one] for one in counted), strict=True)]
    result = {
        "items": arguments.items,
        "dim": arguments.dim,
        "index": index,
        "queries": arguments.queries,
        "build_seconds": served.build_seconds,
        "milliseconds": {stage: percentiles(values) for stage, values in stages.items()},
        "raw_milliseconds": {stage: [round(v, 4) for v in values] for stage, values in stages.items()},
    }
    for stage, row in result["milliseconds"].items():
        print(f"{stage:16} {row}")
    medians = {stage: row["p50"] for stage, row in result["milliseconds"].items()}
    whole = medians["search"] + medians["all_but_search"]
    result["ratios"] = {
        "index over all stages": round(medians["search"] / whole, 4),
        "all stages over the request": round(whole / medians["request"], 4),
    }
    if not arguments.no_result:
        print(save_result("query_stages", result))


if __name__ == "__main__":
    main()
