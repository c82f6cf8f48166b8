"""`vicinal fit` on the training part of an image set, and what it promised measured on other parts.

    python -m benchmarks.quality.fit_protocol --data DATA --sets grocery dogfacenet --minutes 20

For each set: fit to the photos of the training part, with the command that a user would type. Then measure
R@1 and MAP@R of the test classes, calibrate on the gallery by leaving each photo out, as a user does who has
no other photos, and search for the test queries by HTTP (`protocol_search`). Beside what the trial promised
for an FPIR stands the share of the test queries that is found at the threshold with exactly this FPIR, which
nobody can know, and at the calibrated one.
`--part calibration` measures on the calibration classes alone, to judge by while something is still chosen.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common.record import save_result
from benchmarks.quality.protocol_search import run_set, vicinal
from vicinal.calibration.targets import lowest_threshold
from vicinal.training.datasets.layouts.protocol import ProtocolConfig
from vicinal.training.fitting.report import HeldOutFigures


def extract_training(root: Path, folder: Path, *, wrong: float = 0.0, seed: int = 0) -> Path:
    """Unpack the training part with a manifest; a share of the labels is replaced by others at random."""
    config = ProtocolConfig(kind="protocol", root=root, split="train", roles=("train",))
    rows, rng = config.rows(), np.random.default_rng(seed)
    labels = np.array([row.label for row in rows], dtype=object)
    known = np.unique(labels)
    for place in rng.permutation(len(labels))[: round(wrong * len(labels))]:
        labels[place] = rng.choice(known[known != labels[place]])
    folder.mkdir(parents=True)
    manifest = folder / "photos.csv"
    with config.open() as read, manifest.open("w", newline="", encoding="utf-8") as stream:
        rows_out = csv.writer(stream)
        rows_out.writerow(("path", "label"))
        for row, label in zip(rows, labels, strict=True):
            path = folder / "images" / row.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(read(row))
            rows_out.writerow((f"images/{row.path}", label))
    return manifest


def fitted(manifest: Path, output: Path, minutes: float, *options: str) -> dict[str, Any]:
    """Fit, and give the report with the seconds of the command, which ends with 1 where it did not help."""
    command = [sys.executable, "-m", "vicinal", "fit", str(manifest), "--output", str(output), *options]
    started = time.monotonic()
    done = subprocess.run(
        [*command, "--minutes", str(minutes), "--json"], check=False, stdout=subprocess.PIPE
    )
    if done.returncode not in (0, 1):
        sys.exit(f"fit ended with {done.returncode}")
    report = json.loads(done.stdout)
    return {**report, "exit_status": done.returncode, "command_seconds": round(time.monotonic() - started, 1)}


def promise(report: dict[str, Any], runs: dict[str, Any]) -> dict[str, Any]:
    """What the trial promised for a gallery of unseen labels alone, and what the test queries give in the
    pipeline that it decided on.
    """
    refine = report["refine"] or "off"
    name = report["rerank"] or "off"
    run = runs[name if refine == "off" else f"refine {refine}, {name}"]
    known = np.array([row["mate_score"] for row in run["rows"] if row["role"] == "query"])
    strangers = np.array([row["top_score"] for row in run["rows"] if row["role"] == "absent"])
    found = float((known >= lowest_threshold(strangers, report["fpir"])).mean())
    fields = HeldOutFigures.model_fields
    figures = HeldOutFigures.model_validate({name: report[name] for name in fields})
    low, high = figures.range_alone
    return {
        "promised": {"value": figures.found_alone.value, "low": low, "high": high},
        "promised_beside_all_labels": {"value": figures.found_after.value, "ends": figures.range_beside},
        "found_at_exactly_this_fpir": round(found, 4),
        "found_at_the_calibrated_threshold": round(1.0 - run["test"]["fnir"]["value"], 4),
        "holds": low <= found <= high,
    }


def main() -> None:
    """Run each set, and save one result a set."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with one protocol folder a set")
    parser.add_argument("--sets", nargs="+", default=["grocery", "dogfacenet"])
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--part", choices=("test", "calibration"), default="test")
    parser.add_argument("--wrong", type=float, default=0.0, help="share of the labels replaced by others")
    parser.add_argument("--recipe", type=Path)
    parser.add_argument("--keep", type=Path, help="folder that the bundles stay in")
    parser.add_argument("--suffix", default="", help="added to the names of the raw results")
    given = parser.parse_args()
    for name in given.sets:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            manifest = extract_training(given.data / name, folder / "train", wrong=given.wrong)
            bundle = (given.keep or folder / "bundles") / f"{name}{given.suffix}"
            options = () if given.recipe is None else ("--recipe", str(given.recipe))
            report = fitted(manifest, bundle, given.minutes, *options)
            place = ("--data", f"protocol:{given.data / name}", "--split", given.part, "--k", 1)
            figures = vicinal("evaluate", bundle, *place, "--no-nmi")["tests"][0]["figures"]
            found = {"set": name, "minutes": given.minutes, "wrong": given.wrong, "report": report}
            # Kept whatever comes: what fitted for minutes is not fitted again.
            (bundle.parent / f"{bundle.name}.json").write_text(json.dumps(report), encoding="utf-8")
            found[given.part] = figures
            if given.part == "test":
                result = run_set(given.data / name, folder, bundle, "fpir=5%", leave_one_out=True)
                found |= {"promise": promise(report, result["runs"]), **result}
            print(save_result(f"fit_{name}{given.suffix}", found), found.get("promise"), flush=True)


if __name__ == "__main__":
    main()
