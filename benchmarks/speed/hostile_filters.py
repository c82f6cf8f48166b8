"""Hostile and costly filters against a running server: each is answered, and in what time.

    python -m benchmarks.speed.hostile_filters

The gallery has 2,000 items with metadata; they are searched by id, so that the filter is most of the work.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import Counter
from pathlib import Path

import httpx
import numpy as np
import pyarrow as pa

from benchmarks.common.record import percentiles, save_result
from benchmarks.common.server_process import memory_of, running_server
from tests.indexer.filters.hostile import hostile_filters
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.graph.neighbor_graph import build_neighbor_graph
from vicinal.indexer.storage.item_table import as_fixed_lists
from vicinal.models.bundle import ModelBundle, default_bundle_path
from vicinal.models.similarity import normalize

_N_ITEMS = 2000
# Other work on the machine delays one answer of thousands; the best of some is the filter's own.
_N_TIMES = 3
# The most that is allowed of everything that costs.
_COSTLY = [
    " OR ".join(["metadata.text LIKE '%a_a_a%a%b'"] * 3),
    " OR ".join([f"metadata.text LIKE '%{n}'" for n in range(32)]),
    " OR ".join([f"metadata.text > '{chr(97 + n % 26)}'" for n in range(64)]),
    "metadata.text LIKE '%a" + "_" * 10 + "'",
    "metadata.text LIKE '" + "%a" * 32 + "b'",
    "metadata.number IN (" + ",".join(map(str, range(2**60, 2**60 + 190))) + ")",
    " OR ".join([f"metadata.number = {2**60 + n}" for n in range(64)]),
    "(" * 16 + "id = 'a'" + ")" * 16,
]


def main() -> None:
    """Measure and keep the raw result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--filters", type=int, default=400, help="hostile ones that are drawn")
    parser.add_argument("--no-result", action="store_true", help="print only")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bundle = ModelBundle.open(default_bundle_path())
        write_gallery(Path(folder), bundle)
        with running_server(Path(folder), bundle.path) as (url, pid), httpx.Client(timeout=60) as client:
            search(client, url, "label = 'a'")
            before = memory_of(pid)
            groups = {"hostile": hostile_filters(arguments.filters), "costly": _COSTLY}
            measured = {name: measure(client, url, filters) for name, filters in groups.items()}
            after = memory_of(pid)
            client.get(f"{url}/livez").raise_for_status()
    result = {"items": _N_ITEMS, **measured, "memory_mib": {"before": before, "after": after}}
    print(json.dumps(result, indent=1))
    if not arguments.no_result:
        print(save_result("hostile_filters", result))


def measure(client: httpx.Client, url: str, filters: list[str]) -> dict[str, object]:
    """How filters were answered, and in how many milliseconds."""
    statuses, times, best = Counter[int](), [], []
    for text in filters:
        repeated = []
        for _ in range(_N_TIMES):
            started = time.perf_counter()
            # One space more, so that no selection is kept of it.
            statuses[search(client, url, " " * len(repeated) + text)] += 1
            repeated.append(1e3 * (time.perf_counter() - started))
        times += repeated
        best.append(min(repeated))
    return {
        "filters": len(filters),
        "statuses": {str(status): n for status, n in sorted(statuses.items())},
        "milliseconds": {**percentiles(times), "max": round(max(times), 3)},
        "slowest_of_best": round(max(best), 3),
    }


def search(client: httpx.Client, url: str, text: str) -> int:
    """Status of the answer to a search with a filter."""
    # Half of a character is written as JSON allows it.
    body = json.dumps({"item_id": "0", "refine": "off", "filter": text})
    headers = {"content-type": "application/json"}
    return client.post(f"{url}/v1/galleries/texts/search", content=body, headers=headers).status_code


def write_gallery(folder: Path, bundle: ModelBundle) -> None:
    """A gallery whose metadata are what costly filters would meet."""
    drawn = np.random.default_rng(0)
    vectors = normalize(drawn.normal(size=(_N_ITEMS, bundle.dim)))
    texts = ["".join(drawn.choice(list("aab"), 200)) for _ in range(_N_ITEMS)]
    metadata = [json.dumps({"text": text, "number": 2**60 + n}) for n, text in enumerate(texts)]
    rows = {
        "id": [str(n) for n in range(_N_ITEMS)],
        "label": pa.array(["a"] * _N_ITEMS, pa.string()),
        "uri": [""] * _N_ITEMS,
        "metadata": metadata,
        "thumbnail": pa.array([b""] * _N_ITEMS, pa.binary()),
        "embedding": as_fixed_lists(vectors),
    }
    gallery = Gallery(folder / "galleries" / "texts")
    gallery.start(pa.table(rows), bundle=bundle.fingerprint, bundle_name=bundle.name)
    gallery.publish(build_neighbor_graph(vectors), index="Flat")


if __name__ == "__main__":
    main()
