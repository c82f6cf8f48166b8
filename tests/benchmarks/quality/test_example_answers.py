"""Example answers on tiny drawn pictures: the sets, the outcomes, the rows that a sheet shows."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw

from benchmarks.quality.answer_sheets import outcome
from benchmarks.quality.example_answers import run_set
from benchmarks.quality.example_sets import (
    Example,
    write_set,
)
from vicinal.models.bundle import ModelBundle


def blob(color: tuple[int, ...], size: int = 40) -> Image.Image:
    image = Image.new("RGBA", (size, size), (0, 0, 0, 0))
    ImageDraw.Draw(image).ellipse((size // 4, size // 8, size // 2, size - 1), fill=color)
    return image


def blobs(n_labels: int, seed: int = 0) -> list[Example]:
    """Things of one color each; a query has another size."""
    draw = np.random.default_rng(seed)
    found = []
    for number in range(n_labels):
        color = (*(int(value) for value in draw.integers(0, 255, 3)), 255)
        for view, size in (("gallery", 64), ("small", 48), ("large", 80)):
            ground = Image.new("RGBA", (size, size), "white")
            ground.alpha_composite(blob(color, size))
            found.append(Example(f"thing {number}", view, f"kind {number % 5}", ground.convert("RGB")))
    return found


def test_calibration_and_queries_share_no_label_and_strangers_are_not_in_the_gallery(tmp_path: Path) -> None:
    made = write_set(iter(blobs(60)), tmp_path)
    rows = {}
    for part in ("gallery", "calibration", "queries"):
        with getattr(made, part).open(newline="") as stream:
            rows[part] = list(csv.DictReader(stream))
    labels = {part: {row["label"] for row in found} for part, found in rows.items()}
    absent = {
        row["label"] for part in ("calibration", "queries") for row in rows[part] if row["role"] == "absent"
    }
    assert not labels["calibration"] & labels["queries"]
    assert not absent & labels["gallery"]
    assert labels["gallery"] | absent == {f"thing {number}" for number in range(60)}


def answer(role: str, scores: list[float], labels: list[str], threshold: float = 0.5) -> dict[str, Any]:
    return {
        "id": "q",
        "label": "a",
        "view": "small",
        "role": role,
        "no_match": scores[0] < threshold,
        "answers": [
            {"id": label, "label": label, "score": score} for score, label in zip(scores, labels, strict=True)
        ],
    }


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (answer("query", [0.9, 0.6], ["a", "b"]), "found"),
        (answer("query", [0.9, 0.6], ["b", "a"]), "other"),
        (answer("query", [0.4, 0.3], ["a", "b"]), "missed"),
        (answer("absent", [0.4, 0.3], ["b", "c"]), "refused"),
        (answer("absent", [0.9, 0.3], ["b", "c"]), "stranger"),
    ],
)
def test_outcomes(row: dict[str, Any], expected: str) -> None:
    assert outcome(row) == expected


@pytest.mark.slow
def test_a_set_is_indexed_calibrated_searched_and_drawn(tmp_path: Path, tiny_bundle: ModelBundle) -> None:
    """Every query of the other labels is answered with the threshold in force, and the counts add up."""
    found = run_set("blobs", iter(blobs(120)), tmp_path, tiny_bundle.path, "fpir=20%", tmp_path / "sheets")
    assert sum(found["test"]["outcomes"].values()) == len(found["rows"])
    assert found["test"]["n_queries"] + found["test"]["n_absent"] == len(found["rows"])
    assert set(found["by_view"]) == {"small", "large"}
    with Image.open(tmp_path / "sheets/examples-blobs.png") as sheet:
        assert sheet.width < 1000
