"""Fits the formulas of docs/SCALE.md to what was measured, checks them on what was held out, and ships them.

    python -m benchmarks.speed.fitted_unit_costs

The unit costs of `service/planning/formulas.py` are fitted by least squares of relative errors, none below
0, to the runs of `unit_costs.json`, and written to `service/planning/unit_costs.json` with what other results
say of requests, photos, threads and pgvector. The check fits without the largest galleries, and without those
of 256 dimensions, and says how far the formulas are from these, and from earlier results that nothing was
fitted to. It is kept as `unit_costs_check.json`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import nnls

from benchmarks.common.record import RESULTS, save_result
from vicinal.service.planning import engines, formulas
from vicinal.service.planning.formulas import COSTS, EXACT_LIMIT, TERMS

SHIPPED = Path(formulas.__file__).with_name("unit_costs.json")
Run = dict[str, Any]
_MEBI = 2**20


def _stage(name: str) -> Callable[[Run], float | None]:
    return lambda run: (
        float(run["build"]["seconds"][name]["cpu"]) if "seconds" in run.get("build", {}) else None
    )


def _lists(*, is_exact: bool) -> Callable[[Run], float | None]:
    def found(run: Run) -> float | None:
        return _stage("neighbors")(run) if (run["items"] <= EXACT_LIMIT) == is_exact else None

    return found


def _search(pipeline: str, batch: int) -> Callable[[Run], float | None]:
    def found(run: Run) -> float | None:
        if "searches" not in run:
            return None
        spent = run["searches"]["milliseconds"][pipeline].get(f"of {batch}")
        # What else a machine does only adds to it.
        return None if spent is None else float(np.quantile(spent, 0.25))

    return found


MEASURED: dict[str, Callable[[Run], float | None]] = {
    "staging, s": _stage("embed"),
    "exact neighbor lists, s": _lists(is_exact=True),
    "neighbor lists by cells, s": _lists(is_exact=False),
    "index and publishing, s": _stage("publish"),
    "refined items, s": lambda run: (
        run["refinement"]["seconds"]["items"]["cpu"] if "refinement" in run else None
    ),
    # Smaller ones are compared all with all, which takes other memory, and little.
    "building, bytes": lambda run: (
        run["build"]["memory"]["anonymous"] if "build" in run and run["items"] >= EXACT_LIMIT else None
    ),
    "serving, bytes": lambda run: run["serve"]["anonymous"] * _MEBI if "serve" in run else None,
    "table, bytes": lambda run: run["bytes"]["table"] if "bytes" in run else None,
    "encodings, bytes": lambda run: (
        sum(n for name, n in run["bytes"].items() if name.startswith("encoding_")) if "bytes" in run else None
    ),
    "search alone, ms": _search("re-ranked", 1),
    "search of 32, ms": _search("re-ranked", 32),
    "refined search alone, ms": _search("refined and re-ranked", 1),
    "refined search of 32, ms": _search("refined and re-ranked", 32),
}


def points(name: str, runs: list[Run]) -> list[tuple[int, int, float]]:
    """Items, dimensions and the measured cost, of the runs that have it."""
    found = ((run["items"], run["dim"], MEASURED[name](run)) for run in runs)
    return [(n, dim, cost) for n, dim, cost in found if cost is not None]


def earlier_runs() -> list[Run]:
    """Memory, and one query at a time, of earlier results: two threads are the same as one there."""
    sizes, ready = result("cost_by_size"), result("ready_embeddings")["runs"][0]
    start = result("start_up")
    served = max(one["anonymous"] for one in start["seconds"]["as built"]["serve, nothing cached"])
    return [
        *(
            {
                "items": run["items"],
                "dim": sizes["dim"],
                "build": {"memory": {"anonymous": run["costs"]["build, MiB"] * _MEBI}},
                "serve": {"anonymous": run["costs"]["start, MiB"]},
                "searches": {
                    "milliseconds": {
                        pipeline: {"of 1": [run["costs"][f"search, {pipeline}, alone, ms"]]}
                        for pipeline in ("re-ranked", "refined and re-ranked")
                    }
                },
            }
            for run in sizes["runs"]
            if run["items"] >= 10_000
        ),
        {"items": ready["items"], "dim": ready["dim"], "build": {"memory": ready["peak_bytes"]}},
        {"items": start["items"], "dim": start["dim"], "serve": {"anonymous": served}},
    ]


def fitted(name: str, runs: list[Run]) -> dict[str, Any]:
    """Unit costs of a formula, and how far it is from what it was fitted to."""
    at = points(name, runs)
    terms = [one for one in COSTS[name] if any(TERMS[one](n, dim) for n, dim, _ in at)]
    rows = np.array([[TERMS[one](n, dim) / cost for one in terms] for n, dim, cost in at])
    scale = rows.max(axis=0)
    units = nnls(rows / scale, np.ones(len(at)))[0] / scale
    ratios = 1.0 / (rows @ units)
    return {
        "units": {term: float(f"{unit:.4g}") for term, unit in zip(terms, units, strict=True) if unit > 0.0},
        "low": round(float(ratios.min()), 3),
        "high": round(float(ratios.max()), 3),
        "items": [min(n for n, _, _ in at), max(n for n, _, _ in at)],
        "dims": [min(dim for _, dim, _ in at), max(dim for _, dim, _ in at)],
    }


def predicted(fit: dict[str, Any], n: int, dim: int) -> float:
    """A cost by its formula."""
    return float(sum(unit * TERMS[term](n, dim) for term, unit in fit["units"].items()))


def held_out(name: str, runs: list[Run], is_left_out: Callable[[Run], bool]) -> list[dict[str, Any]]:
    """Predicted against measured for runs that the formula was not fitted to."""
    kept = [run for run in runs if not is_left_out(run)]
    if len(points(name, kept)) < len(COSTS[name]):
        return []
    fit = fitted(name, kept)
    return [
        {
            "cost": name,
            "items": n,
            "dim": dim,
            "measured": round(cost, 4),
            "predicted": round(predicted(fit, n, dim), 4),
            "predicted over measured": round(predicted(fit, n, dim) / cost, 3),
        }
        for n, dim, cost in points(name, [run for run in runs if is_left_out(run)])
    ]


def shipped(name: str, runs: list[Run]) -> dict[str, Any]:
    """Unit costs with their range, and beyond the sizes that were measured that of all held-out sizes too."""
    fit = fitted(name, runs)
    off = [1.0 / row["predicted over measured"] for rows in all_held_out(name, runs).values() for row in rows]
    return {
        **fit,
        "beyond": [round(min(fit["low"], *off), 3), round(max(fit["high"], *off), 3)]
        if off
        else [fit["low"], fit["high"]],
    }


def all_held_out(name: str, runs: list[Run]) -> dict[str, list[dict[str, Any]]]:
    """Predicted against measured, by what was left out."""
    most = max(run["items"] for run in runs)
    outs: dict[str, Callable[[Run], bool]] = {
        "without the largest": lambda run: run["items"] == most,
        "without 256 dimensions": lambda run: run["dim"] == 256,
    }
    return {told: held_out(name, runs, is_out) for told, is_out in outs.items()}


def result(name: str) -> dict[str, Any]:
    """A raw result."""
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def processor_seconds(costs: dict[str, Any], n: int, dim: int) -> float:
    """Seconds of the processor that an index job of ready embeddings takes, by the formulas."""
    names = ("staging, s", _lists_of(n), "index and publishing, s")
    return sum(predicted(costs[name], n, dim) for name in names)


def of_one_thread(costs: dict[str, Any], stage: str) -> tuple[float, float]:
    """Least and most share s of a stage that one thread does alone: two took s + (1 - s) / 2 of its time."""
    earlier = result("cost_by_size")
    shares = []
    for run in earlier["runs"]:
        if run["items"] >= EXACT_LIMIT:
            name = _OF_STAGE.get(stage) or _lists_of(run["items"])
            alone = predicted(costs[name], run["items"], earlier["dim"])
            shares.append(2.0 * run["costs"][f"build, {stage}, s"] / alone - 1.0)
    return min(1.0, max(0.0, min(shares))), min(1.0, max(0.0, *shares))


def _lists_of(n: int) -> str:
    return "exact neighbor lists, s" if n <= EXACT_LIMIT else "neighbor lists by cells, s"


_OF_STAGE = {"index and publishing": "index and publishing, s"}


def _best(closed: dict[str, Any]) -> float:
    return max(float(one["statuses"]["200"]["per_second"]) for one in closed.values())


def others(costs: dict[str, Any], runs: list[Run]) -> dict[str, tuple[float, float]]:
    """What other results say: least and most of each."""
    load, peers = result("searches_under_load")["workers"], result("peers_http_search")["servers"]["Vicinal"]
    photos = [one["index_job"] for one in result("index_throughput")["images_per_second"]]
    from_files = result("peers_embedding")["images_per_second"]["bundled model"]["Vicinal, int8"]
    start, pictures = result("start_up"), result("thumbnail_bytes")["bytes"]
    again = [
        run["refinement"]["seconds"]["lists and index"]["cpu"]
        / (_stage("neighbors")(run) + _stage("publish")(run))  # type: ignore[operator]
        for run in runs
        if "refinement" in run
    ]
    texts = [run["bytes"]["items.arrow"] / run["items"] for run in runs]
    of_postgres = result("postgres_costs")["runs"]
    graphs = [
        one["build"]["cpu"] / engines.postgres_products(one["items"], one["dim"]) for one in of_postgres
    ]
    beside = [
        one["build"]["bytes of an item"] - 4 * one["dim"]
        for one in of_postgres
        if "bytes of an item" in one["build"]
    ]
    return {
        "request of an embedding, ms": (2000.0 / peers["best"], 2000.0 / _best(load["2"]["ready"]["closed"])),
        "request of an image, ms": (
            2000.0 / _best(load["2"]["images"]["closed"]),
            2000.0 / _best(load["1"]["images"]["closed"]),
        ),
        "staging of an image, s": (2.0 / max(photos), 2.0 / min(*photos, from_files)),
        "thumbnail, bytes": (pictures["smallest mean"], pictures["largest mean"]),
        "texts, bytes": (min(texts), start["derived_bytes"]["items.arrow"] / start["items"]),
        "refined lists over lists": (min(again), max(again)),
        "lists by one thread": of_one_thread(costs, "neighbor lists"),
        "publishing by one thread": of_one_thread(costs, "index and publishing"),
        "graph of pgvector, s": (min(graphs), max(graphs)),
        "graph of pgvector beside a vector, bytes": (min(beside), max(beside)),
    }


def check(runs: list[Run], costs: dict[str, Any]) -> dict[str, Any]:
    """Errors of the formulas where they were not fitted."""
    ready = result("ready_embeddings")["runs"][0]
    found: dict[str, list[dict[str, Any]]] = {}
    for name in COSTS:
        for told, rows in all_held_out(name, [*runs, *earlier_runs()]).items():
            found.setdefault(told, []).extend(rows)
    return {
        "held out": found,
        "not fitted to": [
            _row(
                "index job of 1,000,000 x 512, seconds of the processor, two threads",
                ready["processor_seconds"],
                processor_seconds(costs, 1_000_000, 512),
                "`ready_embeddings.json`",
            ),
            _row(
                "index of 1,000,000 x 512, MB",
                result("start_up")["derived_bytes"]["initial.index"] / 1e6,
                formulas.index_bytes(1_000_000, 512) / 1e6,
                "`start_up.json`",
            ),
            *published(),
        ],
        "index, bytes": [
            {
                "items": run["items"],
                "dim": run["dim"],
                "measured": run["bytes"]["initial.index"],
                "predicted": round(formulas.index_bytes(run["items"], run["dim"])),
            }
            for run in runs
        ],
        "graph of pgvector, bytes": [
            {
                "items": run["items"],
                "dim": run["dim"],
                "measured": run["bytes"]["graph"],
                "predicted": round(engines.postgres_graph_bytes(run["items"], run["dim"])),
            }
            for run in result("postgres_costs")["runs"]
        ],
    }


def _row(what: str, measured: float, low: float, where: str, high: float | None = None) -> dict[str, Any]:
    by_formula = [low] if high is None else [low, high]
    return {
        "what": what,
        "measured": float(f"{measured:.4g}"),
        "by formula": [float(f"{one:.4g}") for one in by_formula],
        "where": where,
    }


def published() -> list[dict[str, Any]]:
    """What others published, against the formulas."""
    products = engines.postgres_products(1_000_000, 1536) / 3600
    hours = [products * one for one in formulas.measured("graph of pgvector, s")]
    return [
        _row(
            "graph of pgvector of 550,000 x 1,024, 32 or 48 links, MiB",
            4249.4,
            engines.postgres_graph_bytes(550_000, 1024) / _MEBI,
            "https://github.com/unrealshape/bachelor-db-benchmark",
        ),
        _row(
            "build of pgvector of 1,000,000 x 1,536 where 200 are looked at, not 64, hours of a core",
            1.45,
            hours[0],
            "https://supabase.com/blog/pgvector-fast-builds",
            hours[1],
        ),
        _row(
            "codes and ids of Faiss for 1,000,000,000, 20 bytes a code, GB",
            28.0,
            1_000_000_000 * (20 + 8) / 1e9,
            "https://github.com/facebookresearch/faiss/issues/229",
        ),
        _row(
            "k-means of Faiss, 1,000,000 x 256 into 20,000, minutes: of a whole processor, and of one core",
            11.0,
            formulas.unit_costs()["costs"]["index and publishing, s"]["units"]["assigned"] * 1.28e14 / 60,
            "https://github.com/facebookresearch/faiss/wiki/Low-level-benchmarks",
        ),
    ]


def main() -> None:
    """Fit, check, and write both."""
    measured = result("unit_costs")
    runs = measured["runs"]
    costs = {name: shipped(name, [*runs, *earlier_runs()]) for name in COSTS}
    told = {
        name: {"measured_at": one["measured_at"], "commit": one["commit"], "machine": one["machine"]}
        for name in ("unit_costs", "postgres_costs")
        for one in (result(name),)
    }
    document = {
        "written_by": "benchmarks/speed/fitted_unit_costs.py",
        "results": told,
        "costs": costs,
        "measured": {
            name: [float(f"{value:.4g}") for value in pair] for name, pair in others(costs, runs).items()
        },
    }
    SHIPPED.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    for name, one in costs.items():
        print(f"{name:30} {one['low']:.2f} to {one['high']:.2f}  {one['units']}")
    for name, pair in document["measured"].items():
        print(f"{name:40} {pair}")
    found = check(runs, costs)
    for name, rows in found.items():
        for row in rows if isinstance(rows, list) else [one for part in rows.values() for one in part]:
            print(name, row)
    print(save_result("unit_costs_check", found))


if __name__ == "__main__":
    main()
