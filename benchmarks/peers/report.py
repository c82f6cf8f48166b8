"""Where Vicinal stands among its peers: the rows in which it is not first, and a picture of the search.

    python -m benchmarks.peers.report

Both are made from the raw results that stand in `benchmarks/results`, whichever run they are of.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks.common.record import RESULTS
from benchmarks.peers.engines import ENGINES
from benchmarks.peers.vector_search import MARK, able

__all__ = ["Row", "draw_search", "main", "rows"]

_SEARCH_SIZES = (200_000, 1_000_000)
_PICTURE = Path(__file__).parents[2] / "docs" / "images" / "peers-search.png"
_OURS = "Vicinal"
# They decide by the best hundred, where the others look for ten.
_DECISIONS = ("Vicinal",)
_SAMPLED = "Vicinal, 2,000 queries"


@dataclass(frozen=True)
class Row:
    """What a piece of work costs by who does it, in seconds or any other unit; less is better."""

    work: str
    costs: dict[str, float]

    @property
    def fastest(self) -> str:
        """Who takes least."""
        return min(self.costs, key=self.costs.__getitem__)

    @property
    def times_as_long(self) -> float:
        """Cost of the best way of Vicinal over the least of all: 1 where it is first."""
        ours = min(cost for name, cost in self.costs.items() if name.startswith(_OURS))
        return ours / self.costs[self.fastest]


def rows() -> Iterator[Row]:
    """All rows of the kept results."""
    for n_items in _SEARCH_SIZES:
        engines = _engines(n_items)
        for batch in (1, 32):
            costs = {
                name: _milliseconds(engines[name], batch) for name in able(engines) if name not in _DECISIONS
            }
            yield Row(f"search, {n_items:,} x 512, recall {MARK}, {_asked(batch)}", costs)
    yield Row("contextual re-ranking, 1,000 queries of 20,000 items", _result("peers_reranking")["seconds"])
    for n_items, run in _result("peers_calibration")["items"].items():
        # All pairs, as the others take them.
        costs = {name: part["seconds"] for name, part in run["parts"].items() if name != _SAMPLED}
        yield Row(f"calibration, {int(n_items):,} items; peers' retrieval metrics alone", costs)
    for network, speeds in _result("peers_embedding")["images_per_second"].items():
        yield Row(f"embedding, {network}", {name: 1.0 / speed for name, speed in speeds.items()})
    servers = _result("peers_http_search")["servers"]
    yield Row("ready embeddings over HTTP", {name: 1.0 / _most_answers(one) for name, one in servers.items()})


def draw_search(path: Path) -> None:
    """Draw milliseconds a query against recall, of every engine that finds enough, alone and of 32."""
    engines = _engines(_SEARCH_SIZES[0])
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, batch in zip(figure.subplots(1, 2, sharey=True), (1, 32), strict=True):
        for (name, row), marker in zip(engines.items(), cycle("ovsD^Phx>d"), strict=False):
            style = {"markersize": 11, "color": "#0b6e4f"} if name.startswith(_OURS) else {"markersize": 7}
            axes.plot(row["recall_at_10"], _milliseconds(row, batch), marker, label=_label(name), **style)
        axes.set(title=_asked(batch), xlabel="recall of the ten nearest", yscale="log")
        axes.locator_params("x", nbins=5)
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("milliseconds a query")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside right center", fontsize=9)
    figure.suptitle(f"Search among {_SEARCH_SIZES[0]:,} vectors of 512 numbers", fontsize=11)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Draw the picture, and print the rows in which Vicinal is not first."""
    draw_search(_PICTURE)
    behind = [row for row in rows() if row.fastest.partition(",")[0] != _OURS]
    print("Vicinal is not first in:" if behind else "Vicinal is first in every row.")
    for row in sorted(behind, key=lambda row: -row.times_as_long):
        print(f"  {row.work}: {row.times_as_long:.2f} times as long as {row.fastest}")


def _result(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def _engines(n_items: int) -> dict[str, Any]:
    """Rows of the engines that are still compared."""
    rows = _result(f"peers_vector_search_{n_items}")["engines"]
    return {name: row for name, row in rows.items() if name in ENGINES}


def _milliseconds(row: dict[str, Any], batch: int) -> float:
    return statistics.median(row[f"batch_{batch}"]["milliseconds_per_query"])


def _most_answers(server: dict[str, Any]) -> float:
    """Searches a second at the number of clients at which it answers most, at the median of its rounds."""
    return max(
        statistics.median(turn["statuses"]["200"]["per_second"] for turn in turns)
        for turns in server["closed"].values()
    )


def _asked(batch: int) -> str:
    return "one query" if batch == 1 else f"{batch} queries at once"


def _label(name: str) -> str:
    return f"{name}, a decision" if name in _DECISIONS else name


if __name__ == "__main__":
    main()
