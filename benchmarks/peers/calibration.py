"""A calibration of labelled items, leave-one-out, beside the dense computation and evaluations by others.

    Vicinal                    the service's calibrator: every item is searched for without itself, and once
                               more without its label; threshold, rates with intervals, OPIS, curves
    Vicinal, 2,000 queries     the same of as many items as it samples by default
    dense                      all n x n scores in numpy, held at once; threshold and curves from them
    pytorch-metric-learning    `AccuracyCalculator` with its Faiss: precision@1, R-precision, MAP@R
    OML, retrieval             CMC@1, precision@1 and MAP of the nearest ten
    OML, FNMR at FMR           FRR at a FAR too, from all distances

The peers evaluate the same set leave-one-out. They give no threshold, no FPIR and no interval, and but for
FNMR at FMR they look at the nearest few of each item: they have less to do. The dense computation and FNMR at
FMR count all pairs, as a calibration does, and make no intervals and no OPIS.

Nothing is refined. `--rerank contextual` scores by the formula of re-ranking; the dense form of it then
leaves FPIR out, because the scores of all others change without the query's label. Every part has a process
of its own; memory is what it needed on top of its inputs. What two parts both give is compared.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.common.cost_meters import in_fresh_process, peak_of
from benchmarks.common.large_gallery import labelled_vectors
from benchmarks.common.record import save_result
from benchmarks.speed.calibration_memory import write
from vicinal.calibration import Target, Trials, choose_threshold, operating_curve
from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.graph.neighbor_graph import build_neighbor_graph
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.refine.reranking import dense_contextual_scores
from vicinal.service.measuring.calibrator import Calibrator
from vicinal.service.search.pipeline import Pipeline, Rerank, RerankMethod
from vicinal.service.search.scorer import similarity_score

FAR = 0.001
PER_LABEL, SPREAD = 10, 1.5
N_SAMPLED = 2000
# Vicinal lists its curves at as many thresholds at most.
N_CURVE = 201
# Of rates that two parts count; thresholds are scores, of which float32 keeps seven digits.
MOST_APART = 1e-6
# Share of the queries whose nearest item an approximate index may miss.
MOST_MISSED = 1e-3
OML = "build/peers-oml"

Labels = npt.NDArray[np.int64]
Found = dict[str, float]


def vicinal(path: Path, n_queries: int, method: RerankMethod) -> dict[str, Any]:
    """The service's calibration, with its stages."""
    snapshot, target = Snapshot.open(path), Target(rate="far", value=FAR)
    pipeline, laps = Pipeline(rerank=Rerank(method=method)), []

    def run() -> Found:
        calibrator = Calibrator(snapshot, pipeline, most_queries=n_queries)
        queries = calibrator.leave_one_out().sample(n_queries, calibrator.seed)
        laps.append(time.perf_counter())
        measured = calibrator.score(queries, lambda *_: None)
        laps.append(time.perf_counter())
        record = calibrator.calibration(queries, measured, target).record
        laps.append(time.perf_counter())
        rates = record.rates.model_dump()
        return {"precision_at_1": rates.pop("hit_rate_1"), "threshold": record.threshold, **rates}

    row = _measured(run)
    scores, rest = np.diff(laps)
    return {**row, "stages": {"scores": round(float(scores), 2), "all else": round(float(rest), 2)}}


def dense(n: int, dim: int, method: RerankMethod) -> dict[str, Any]:
    """The same threshold and curves from a matrix of all scores."""
    embeddings, labels = labelled_vectors(n, dim, per_label=PER_LABEL, spread=SPREAD)
    return _measured(lambda: dense_calibration(embeddings, labels, Rerank(method=method)))


def dense_calibration(embeddings: FloatArray, labels: Labels, rerank: Rerank) -> Found:
    """Threshold and rates of (n, d) items, each a query among all others.

    The scores of a query among the others are those of the whole set, in which it is an item: so one matrix
    has them all. Only a query whose label is taken out needs another where neighborhoods count.
    """
    wide = embeddings.astype(np.float64)
    # Without the copy numpy ends the process from 20,000 rows on (numpy#19685).
    similarities = np.clip(wide @ wide.T.copy(), -1.0, 1.0).astype(np.float32)
    np.fill_diagonal(similarities, 1.0)
    if rerank.method == "off":
        scores = similarity_score(similarities)
    else:
        scores = dense_contextual_scores(similarities, rerank.k, rerank.beta, rerank.eps)
    del similarities
    is_mate = labels[:, None] == labels
    non_mates = scores[~is_mate]
    best_without = np.where(is_mate, -np.inf, scores).max(axis=1) if rerank.method == "off" else np.empty(0)
    np.fill_diagonal(is_mate, False)
    np.fill_diagonal(scores, -np.inf)
    first = labels[scores.argmax(axis=1)]
    best_mates = np.where(is_mate, scores, -np.inf).max(axis=1)
    trials = Trials(scores[is_mate], non_mates, best_mates, best_without)
    threshold = choose_threshold(trials, Target(rate="far", value=FAR))
    at = np.append(np.quantile(trials.mate_scores, np.linspace(0.0, 1.0, N_CURVE)), threshold)
    curve = operating_curve(trials, at)
    place = int(np.flatnonzero(curve.thresholds == threshold)[0])
    rates = {name: float(getattr(curve, name)[place]) for name in ("far", "frr", "fpir", "fnir")}
    shown = {name: rate for name, rate in rates.items() if np.isfinite(rate)}
    return {"precision_at_1": float((first == labels).mean()), "threshold": threshold, **shown}


def metric_learning(n: int, dim: int) -> dict[str, Any]:
    """What pytorch-metric-learning evaluates."""
    import torch
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

    embeddings, labels = labelled_vectors(n, dim, per_label=PER_LABEL, spread=SPREAD)
    wanted = ("precision_at_1", "r_precision", "mean_average_precision_at_r")
    calculator = AccuracyCalculator(include=wanted, k="max_bin_count", device=torch.device("cpu"))
    return _measured(lambda: calculator.get_accuracy(embeddings, labels))


def oml(folder: str, n: int, dim: int, of_all: bool) -> dict[str, Any]:
    """What OML evaluates: the nearest ten, or all distances for FNMR at FMR.

    Args:
        folder: Where it is installed; packages of this environment come first.
        n: Items.
        dim: Length of the embeddings.
        of_all: Whether FNMR at FMR is asked for.
    """
    sys.path.append(folder)
    # A package of its asks the network for newer versions of itself.
    os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"
    import torch
    from oml.functional.knn import batched_knn
    from oml.metrics.embeddings import calc_fnmr_at_fmr_rr, calc_retrieval_metrics_rr
    from oml.retrieval.retrieval_results import RetrievalResults

    embeddings, labels = labelled_vectors(n, dim, per_label=PER_LABEL, spread=SPREAD)

    def run() -> Found:
        ids = torch.arange(n)
        nearest = batched_knn(
            torch.from_numpy(embeddings),
            ids,
            ids,
            top_n=n if of_all else PER_LABEL,
            labels_gt=torch.from_numpy(labels),
        )
        results = RetrievalResults(*nearest)
        tops = {"cmc_top_k": (1,), "precision_top_k": (1,), "map_top_k": (PER_LABEL,)}
        metrics = calc_retrieval_metrics_rr(results, **tops, verbose=False)
        found = {"precision_at_1": float(metrics["precision"][1]), "map": float(metrics["map"][PER_LABEL])}
        if of_all:
            found["frr"] = float(calc_fnmr_at_fmr_rr(results, (FAR,))["fnmr@fmr"][FAR])
        return found

    return _measured(run)


def of_size(n: int, dim: int, method: RerankMethod, oml_folder: str) -> dict[str, dict[str, Any]]:
    """Every part over n items; one that cannot run says why."""
    rows: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "1"
        embeddings, labels = labelled_vectors(n, dim, per_label=PER_LABEL, spread=SPREAD)
        write(path, embeddings, labels, build_neighbor_graph(embeddings))
        parts: dict[str, tuple[Callable[..., dict[str, Any]], tuple[Any, ...]]] = {
            "Vicinal": (vicinal, (path, n, method)),
            "dense": (dense, (n, dim, method)),
            "pytorch-metric-learning": (metric_learning, (n, dim)),
            "OML, retrieval": (oml, (oml_folder, n, dim, False)),
            "OML, FNMR at FMR": (oml, (oml_folder, n, dim, True)),
        }
        if n > N_SAMPLED:
            parts[f"Vicinal, {N_SAMPLED:,} queries"] = (vicinal, (path, N_SAMPLED, method))
        for name, (part, given) in parts.items():
            try:
                rows[name] = in_fresh_process(part, *given)
            # Whatever a peer raises belongs in the results, and the others are measured all the same.
            except Exception as error:
                if part is vicinal:
                    raise
                rows[name] = {"failed": f"{type(error).__name__}: {error}"}
            print(f"{n:,} items, {name}: {rows[name]}", flush=True)
    return rows


def apart(rows: dict[str, dict[str, Any]]) -> dict[str, dict[str, float]]:
    """How far what others found lies from what Vicinal found of every item.

    Raises:
        RuntimeError: The dense computation has other rates: one of the two counts something else.
    """
    own, found = rows["Vicinal"]["found"], {}
    for name, row in rows.items():
        if name.startswith("Vicinal") or "failed" in row:
            continue
        both = own.keys() & row["found"].keys()
        found[name] = {what: abs(own[what] - row["found"][what]) for what in sorted(both)}
    most = {"precision_at_1": MOST_MISSED}
    if any(value > most.get(what, MOST_APART) for what, value in found.get("dense", {}).items()):
        raise RuntimeError(f"the calibration and the dense computation differ: {found['dense']}")
    return found


def _measured(run: Callable[[], Found]) -> dict[str, Any]:
    """What a part found, in what time, and with how much memory on top."""
    found: list[Found] = []
    started, busy = time.perf_counter(), time.process_time()
    peak = peak_of(lambda: found.append(run()))
    return {
        "seconds": round(time.perf_counter() - started, 2),
        "processor_seconds": round(time.process_time() - busy, 2),
        "mebibytes": round(peak.extra / 2**20, 1),
        "found": found[0],
    }


def main() -> None:
    """Run every part over every size, compare what they found, and save all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--items", type=int, nargs="+", default=[10_000, 20_000])
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--rerank", choices=("off", "contextual"), default="off")
    parser.add_argument("--oml", default=OML, help="where OML is installed")
    parser.add_argument("--no-result", action="store_true", help="print only")
    arguments = parser.parse_args()
    sizes, ratios = {}, {}
    for n in arguments.items:
        rows = of_size(n, arguments.dim, arguments.rerank, arguments.oml)
        own = rows["Vicinal"]
        sizes[f"{n}"] = {"parts": rows, "apart": apart(rows)}
        print(sizes[f"{n}"]["apart"])
        for name, row in rows.items():
            if name != "Vicinal" and "failed" not in row:
                ratios[f"time of {name} over Vicinal, {n:,} items"] = round(
                    row["seconds"] / own["seconds"], 3
                )
        if "failed" not in rows["dense"]:
            memory = rows["dense"]["mebibytes"] / own["mebibytes"]
            ratios[f"memory of dense over Vicinal, {n:,} items"] = round(memory, 2)
    for name, ratio in ratios.items():
        print(f"{name:64} {ratio}")
    setting = {"dim": arguments.dim, "rerank": arguments.rerank, "far": FAR, "per_label": PER_LABEL}
    if not arguments.no_result:
        name = "peers_calibration" if arguments.rerank == "off" else f"peers_calibration_{arguments.rerank}"
        print(save_result(name, {**setting, "items": sizes, "ratios": ratios}))


if __name__ == "__main__":
    main()
