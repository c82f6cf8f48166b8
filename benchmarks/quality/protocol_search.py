"""A threshold calibrated on some classes, tried on others, through the command line and the HTTP server.

For each image set: index the gallery of its calibration classes, calibrate for an FPIR on the labelled
queries of these classes, then search a gallery of the test classes, which share no label with them, by
HTTP and count. Everything is done with the commands a user would type.

With `--leave-one-out` the gallery of the test classes is calibrated by leaving out its own items, the default
of `vicinal calibrate`, and searched for the protocol's queries, which were taken on other occasions:
what does the default promise, and does the range hold what is measured afterwards? Beside it stand the rates
at the ends that the threshold was chosen between, at the bundle's own, and at the one that holds the target
on these very queries, which nobody can know.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
import numpy as np

from benchmarks.common.record import percentiles, save_result
from benchmarks.quality.protocol_data import Part, extract_part
from vicinal.calibration import LabelCounts, rate_interval
from vicinal.calibration.targets import lowest_threshold
from vicinal.models.bundle import ModelBundle, default_bundle_path
from vicinal.service.http.serving.server import serving
from vicinal.service.measuring.records.record import CalibrationRecord, promised_range
from vicinal.service.settings import Settings

RERANK = ("off", "contextual")
# What is refined, where the bundle has a refiner.
REFINE = ("off", "gallery", "both")


def vicinal(*arguments: object) -> dict:
    """Run a command and read its JSON."""
    command = [sys.executable, "-m", "vicinal", *map(str, arguments), "--json"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def search_all(url: str, gallery: str, part: Part, pipeline: dict[str, str], threshold: float) -> list[dict]:
    """Search for every query over HTTP; one row each."""
    rows = []
    with httpx.Client(base_url=url, timeout=60) as client, part.queries.open(newline="") as stream:
        for query in csv.DictReader(stream):
            image = (part.queries.parent / query["path"]).read_bytes()
            started = time.perf_counter()
            answer = client.post(
                f"/v1/galleries/{gallery}/search",
                files={"image": image},
                data={"threshold": repr(threshold), "include_candidates": "true", **pipeline},
            )
            milliseconds = 1e3 * (time.perf_counter() - started)
            found = answer.raise_for_status().json()
            ranked = found["matches"] + found["candidates"]
            rows.append(
                {
                    "id": query["id"],
                    "label": query["label"],
                    "role": query["role"],
                    "top_label": ranked[0]["label"],
                    "top_score": ranked[0]["score"],
                    "no_match": found["no_match"],
                    "found": query["label"] in {match["label"] for match in found["matches"]},
                    "mate_score": max(
                        (one["score"] for one in ranked if one["label"] == query["label"]), default=0.0
                    ),
                    "milliseconds": round(milliseconds, 2),
                }
            )
    return rows


def rates(rows: list[dict]) -> dict[str, float]:
    """Hit rate, FNIR and FPIR, with 95 % intervals that rest on labels."""
    known = [row for row in rows if row["role"] == "query"]
    absent = [row for row in rows if row["role"] == "absent"]
    return {
        "hit_rate_1": with_interval(known, lambda row: row["top_label"] == row["label"]),
        "fnir": with_interval(known, lambda row: not row["found"]),
        "fpir": with_interval(absent, lambda row: not row["no_match"]),
        "n_queries": len(known),
        "n_absent": len(absent),
        "n_absent_labels": len({row["label"] for row in absent}),
    }


def with_interval(rows: list[dict], counts) -> dict[str, float]:
    """Share of the rows that count, and its 95 % interval for labels like these."""
    by_label: dict[str, list[bool]] = {}
    for row in rows:
        by_label.setdefault(row["label"], []).append(bool(counts(row)))
    events, trials = np.array([[sum(values), len(values)] for values in by_label.values()]).T
    found = rate_interval(LabelCounts(events, trials))
    return {"value": round(found.rate, 4), "low": round(found.low, 4), "high": round(found.high, 4)}


def run_set(root: Path, folder: Path, bundle: Path, target: str, *, leave_one_out: bool = False) -> dict:
    """All steps for one image set."""
    data_dir = folder / "data"
    options = ("--data-dir", data_dir, "--bundle", bundle)
    calibrated = "test" if leave_one_out else "calibration"
    parts = {split: extract_part(root, split, folder / split) for split in {calibrated, "test"}}
    indexed = {
        split: vicinal("index", part.gallery, "--gallery", split, *options) for split, part in parts.items()
    }
    runs = {}
    has_refiner = ModelBundle.open(bundle).manifest.refiner is not None
    with serving(Settings(data_dir=data_dir, bundle=bundle)) as url:
        for refine, rerank in itertools.product(REFINE if has_refiner else REFINE[:1], RERANK):
            calibration = vicinal(
                *("calibrate", "--gallery", calibrated, "--target", target),
                "--yes",
                *(() if leave_one_out else ("--queries", parts[calibrated].queries)),
                *("--refine", refine, "--rerank", rerank, *options),
            )
            pipeline = {"refine": refine, "rerank": rerank}
            rows = search_all(url, "test", parts["test"], pipeline, calibration["threshold"])
            at = at_ends(calibration, rows) if leave_one_out else {}
            name = rerank if refine == "off" else f"refine {refine}, {rerank}"
            measured = rates(rows)
            runs[name] = {
                "calibration": calibration,
                "test": measured,
                "promised": promised(calibration, measured),
                **({"at": at} if at else {}),
                "request_milliseconds": percentiles([row["milliseconds"] for row in rows]),
                "rows": rows,
            }
            show(root.name, name, runs[name])
    counts = {split: {"items": one["n_items"], "hygiene": one["hygiene"]} for split, one in indexed.items()}
    return {"galleries": counts, "runs": runs}


def promised(calibration: dict, measured: dict) -> dict[str, dict]:
    """The ranges that a calibration promises, and whether they hold what was measured."""
    record = CalibrationRecord.model_validate(calibration)
    found = {}
    for rate in ("fnir", "fpir"):
        ends = promised_range(record, rate)
        if ends is not None:
            holds = ends.low <= measured[rate]["value"] <= ends.high
            found[rate] = {"low": round(ends.low, 4), "high": round(ends.high, 4), "holds": holds}
    return found


def at_ends(calibration: dict, rows: list[dict]) -> dict[str, dict]:
    """Shares of the queries that are missed, and of the strangers that match, at every threshold of interest;
    and of both those that are unsure.
    """
    record = CalibrationRecord.model_validate(calibration)
    known = np.array([row["mate_score"] for row in rows if row["role"] == "query"])
    strangers = np.array([row["top_score"] for row in rows if row["role"] == "absent"])
    thresholds = {"in force": record.threshold}
    if record.target is not None and record.target.rate == "fpir":
        thresholds["right"] = lowest_threshold(strangers, record.target.value)
    band = chosen = None
    if record.evidence is not None:
        band, chosen = record.evidence.unsure, record.evidence.chosen
    if chosen is not None:
        ends = {"strict": chosen.strict, "mean": chosen.mean, "bundle": chosen.starting}
        thresholds |= {name: one for name, one in ends.items() if one is not None}
    lowest = record.threshold if band is None else band.lowest
    return {
        name: {
            "threshold": one,
            "missed": int((known < one).sum()),
            "fnir": round(float((known < one).mean()), 4),
            "matched": int((strangers >= one).sum()),
            "fpir": round(float((strangers >= one).mean()), 4),
        }
        for name, one in thresholds.items()
    } | {
        "unsure": {
            "threshold": lowest,
            "known": int(((known >= lowest) & (known < record.threshold)).sum()),
            "strangers": int(((strangers >= lowest) & (strangers < record.threshold)).sum()),
        }
    }


def show(name: str, rerank: str, run: dict) -> None:
    """Print the threshold, and the rates on calibration and on test classes."""
    measured = {
        rate: "{value:.3f} [{low:.3f}, {high:.3f}]".format(**run["test"][rate])
        for rate in ("hit_rate_1", "fpir", "fnir")
    }
    calibrated = run["calibration"]["rates"]
    print(
        f"{name}, {rerank}: threshold {run['calibration']['threshold']:.4f} "
        f"(on calibration classes: FPIR {calibrated['fpir']:.3f}, FNIR {calibrated['fnir']:.3f}); "
        f"on test classes: R@1 {measured['hit_rate_1']}, FPIR {measured['fpir']}, FNIR {measured['fnir']}; "
        f"promised: {run['promised']}; at: {run.get('at')}",
        flush=True,
    )


def main() -> None:
    """Run each set that is there, and save one result a set."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with one protocol folder a set")
    parser.add_argument("--sets", nargs="+", default=["grocery", "dogfacenet", "omniglot"])
    parser.add_argument("--bundle", type=Path, default=default_bundle_path())
    parser.add_argument("--target", default="fpir=5%")
    parser.add_argument("--suffix", default="", help="added to the names of the raw results")
    parser.add_argument("--leave-one-out", action="store_true", help="calibrate as `vicinal calibrate` does")
    arguments = parser.parse_args()
    for name in arguments.sets:
        root = arguments.data / name
        if not root.is_dir():
            print(f"{name}: not found in {arguments.data}, left out")
            continue
        with tempfile.TemporaryDirectory() as folder:
            result = run_set(
                root,
                Path(folder),
                arguments.bundle,
                arguments.target,
                leave_one_out=arguments.leave_one_out,
            )
        found = {"set": name, "target": arguments.target, "bundle": arguments.bundle.name, **result}
        print(save_result(f"protocol_{name}{arguments.suffix}", found))


if __name__ == "__main__":
    main()
