"""Example answers on image sets that nobody trained on, right and wrong, through the command line and HTTP.

For each set of `benchmarks/quality/example_sets.py`: index a gallery, calibrate it with labelled queries of
a half of the labels, and search it for the queries of the other half, as a user would. Writes the rates and
every answer to `benchmarks/results/example_answers.json`, and a sheet of examples to
`docs/images/examples-SET.png`.

    python -m benchmarks.quality.example_answers --packages FOLDER
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from benchmarks.common.record import save_result
from benchmarks.quality.answer_sheets import N_ANSWERS, outcome, write_sheet
from benchmarks.quality.example_sets import SETS, Example, ExampleSet, write_set
from benchmarks.quality.protocol_search import rates, vicinal, with_interval
from vicinal.models.bundle import default_bundle_path
from vicinal.service.http.serving.server import serving
from vicinal.service.settings import Settings

SHEETS = Path(__file__).parents[2] / "docs" / "images"


def read_rows(manifest: Path) -> list[dict[str, str]]:
    """Rows of a CSV manifest by column."""
    with manifest.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def search_all(url: str, gallery: str, manifest: Path) -> Iterator[dict[str, Any]]:
    """Search for every query with what is in force; one row each, with its best answers."""
    with httpx.Client(base_url=url, timeout=60) as client:
        for query in read_rows(manifest):
            answer = client.post(
                f"/v1/galleries/{gallery}/search",
                files={"image": (manifest.parent / query["path"]).read_bytes()},
                data={"include_candidates": "true"},
            )
            if not answer.is_success:
                raise RuntimeError(f"'{query['id']}' is answered by {answer.status_code}: {answer.text}")
            found = answer.json()
            if found["threshold"]["state"] != "current":
                raise RuntimeError(f"gallery '{gallery}' has no threshold in force: {found['threshold']}")
            ranked = found["matches"] + found["candidates"]
            yield {
                **{name: query[name] for name in ("id", "label", "coarse", "view", "role")},
                "no_match": found["no_match"],
                "found": query["label"] in {match["label"] for match in found["matches"]},
                "top_label": ranked[0]["label"],
                "answers": [
                    {"id": one["id"], "label": one["label"], "score": round(one["score"], 4)}
                    for one in ranked[:N_ANSWERS]
                ],
            }


def measured(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Rates over labels that did not calibrate, and how many queries had which outcome."""
    known = [row for row in rows if row["role"] == "query"]
    return {
        **rates(rows),
        "found": with_interval(known, lambda row: row["found"]),
        "first_match_right": with_interval(known, lambda row: outcome(row) == "found"),
        "n_labels": len({row["label"] for row in known}),
        "outcomes": dict(sorted(Counter(outcome(row) for row in rows).items())),
    }


def run_set(
    name: str, examples: Iterator[Example], folder: Path, bundle: Path, target: str, sheets: Path
) -> dict[str, Any]:
    """All steps for one set."""
    made: ExampleSet = write_set(examples, folder)
    options = ("--data-dir", folder / "data", "--bundle", bundle)
    indexed = vicinal("index", made.gallery, "--gallery", name, *options)
    calibration = vicinal(
        *("calibrate", "--gallery", name, "--queries", made.calibration),
        *("--target", target, *options),
    )
    with serving(Settings(data_dir=folder / "data", bundle=bundle)) as url:
        rows = list(search_all(url, name, made.queries))
    pictures = {
        row["id"]: folder / row["path"] for part in (made.gallery, made.queries) for row in read_rows(part)
    }
    sheets.mkdir(parents=True, exist_ok=True)
    write_sheet(rows, calibration["threshold"], pictures, sheets / f"examples-{name}.png")
    views = sorted({row["view"] for row in rows})
    return {
        "n_items": indexed["n_items"],
        "calibration": calibration,
        "test": measured(rows),
        "by_view": {view: measured([row for row in rows if row["view"] == view]) for view in views},
        "rows": rows,
    }


def main() -> None:
    """Run every set, and save after each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--packages", type=Path, required=True, help="folder with one unpacked package a folder"
    )
    parser.add_argument("--bundle", type=Path, default=default_bundle_path())
    parser.add_argument("--target", default="fpir=5%")
    parser.add_argument("--sheets", type=Path, default=SHEETS, help="where the pictures go")
    arguments = parser.parse_args()
    sets = {}
    for name, read in SETS.items():
        with tempfile.TemporaryDirectory() as folder:
            examples = read(arguments.packages)
            sets[name] = run_set(
                name, examples, Path(folder), arguments.bundle, arguments.target, arguments.sheets
            )
        print(name, sets[name]["calibration"]["rates"], sets[name]["test"], flush=True)
        found = {"target": arguments.target, "bundle": arguments.bundle.name, "sets": sets}
        print(save_result("example_answers", found))


if __name__ == "__main__":
    main()
