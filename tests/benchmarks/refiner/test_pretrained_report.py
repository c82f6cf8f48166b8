"""Which control a refiner is compared with, what the comparison says, and when the mark holds."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from benchmarks.refiner.pretrained_report import compare_all, control_of, pretrained_tables
from benchmarks.refiner.tasks import Task

FIGURES = (
    "hit_rate_1",
    "map_at_r",
    "auroc",
    "fnir_at_fpir_5",
    "fnir_at_calibrated_5",
    "fpir_at_calibrated_5",
)
TEST = dict.fromkeys(FIGURES, 0.5)
N_CLASSES, PER_CLASS = 12, 8


def control(name: str, map_at_r: float, fnir: float) -> dict[str, Any]:
    held = {"map_at_r": map_at_r, "fnir_at_fpir_5": fnir}
    return {"name": name, "setting": "k 2", "sides": "both", "held_out": held, "test": TEST}


CONTROLS = [
    {"name": "base", "sides": "off", "test": TEST},
    control("alpha-QE by FNIR", 0.3, 0.2),
    control("alpha-QE by MAP@R", 0.5, 0.4),
    control("softmax-QE by FNIR", 0.6, 0.3),
    control("softmax-QE by MAP@R", 0.4, 0.1),
]


def record(group: str, name: str, rows: list[dict[str, Any]], seed: int = 0) -> dict[str, Any]:
    return {**dataclasses.asdict(Task("dogfacenet", "classifier", seed, group, name)), "rows": rows}


REFINED = {
    "name": "both",
    "sides": "both",
    "held_out": {"both": {"map_at_r": 0.6, "fnir": 0.2}},
    "test": TEST,
}


@pytest.fixture
def study(tmp_path: Path) -> tuple[list[dict[str, Any]], Path]:
    """Records of controls, and of two seeds of a refiner whose queries all find a mate, and controls none."""
    (tmp_path / "features").mkdir()
    labels = np.repeat([f"dog {number}" for number in range(N_CLASSES)], PER_CLASS)
    roles = np.where(np.arange(len(labels)) < 6 * PER_CLASS, "query", "absent")
    for split in ("train", "calibration", "test"):
        arrays = {"views": np.ones((len(labels), 1, 4), np.float16), "labels": labels, "roles": roles}
        for images in ("dogfacenet", "grocery", "omniglot"):
            np.savez(tmp_path / "features" / f"{images}-{split}.npz", **arrays)
    records = [
        record("controls", "controls", CONTROLS),
        *(record("attention", "attention and level", [REFINED], seed) for seed in (0, 1)),
    ]
    (tmp_path / "refiner" / "outcomes").mkdir(parents=True)
    for one in records:
        for row in one["rows"]:
            score = 0.9 if row is REFINED else 0.1
            keep(tmp_path, one, row["name"], np.full(6 * PER_CLASS, score, np.float32))
    return records, tmp_path


def keep(work: Path, one: dict[str, Any], name: str, mate: np.ndarray) -> None:
    key = Task(*(one[field.name] for field in dataclasses.fields(Task))).key
    absent = np.linspace(0.2, 0.5, 6 * PER_CLASS).astype(np.float32)
    found = {"mate": mate, "top": mate, "precision": mate, "absent": absent, "mate_accepted": mate > 0.5}
    np.savez(work / "refiner" / "outcomes" / f"{key}--{name.replace(' ', '_')}.npz", **found)


def test_the_control_is_the_best_of_those_that_a_figure_chose() -> None:
    rows = {"rows": CONTROLS}
    assert control_of(rows, "FNIR")["name"] == "alpha-QE by FNIR"
    assert control_of(rows, "MAP@R")["name"] == "alpha-QE by MAP@R"


def test_every_seed_is_compared_with_the_controls_of_a_base_without_seeds(study: Any) -> None:
    records, work = study
    (one,) = compare_all(records, work, work)
    assert one["seeds"] == 2
    assert one["against"]["MAP@R"]["map_at_r"]["difference"] == pytest.approx(0.8)
    assert one["against"]["FNIR"]["fnir_at_fpir_5"]["difference"] == -1.0
    assert one["against"]["base"]["auroc"]["difference"] == 1.0


def marked(study: Any, *worse: tuple[str, str]) -> str:
    """The mark where these figures are no better than those of what is compared with."""
    records, work = study
    (one,) = compare_all(records, work, work)
    against = {name: dict(figures) for name, figures in one["against"].items()}
    for name, figure in worse:
        against[name][figure] = {"difference": -0.1, "interval": [-0.2, 0.1]}
    made = pretrained_tables(records, [{**one, "against": against}])["refiners-mark"]
    return made.splitlines()[-1].split(" | ")[-1].removesuffix(" |")


def test_the_mark_needs_the_control_that_is_best_in_each_figure(study: Any) -> None:
    assert marked(study) == "**holds**"
    assert marked(study, ("MAP@R", "map_at_r")) == "against the control by FNIR"
    assert marked(study, ("FNIR", "fnir_at_fpir_5")) == "against the control by MAP@R"
    assert marked(study, ("MAP@R", "map_at_r"), ("FNIR", "map_at_r")) == "no"
    assert marked(study, ("base", "auroc")) == "no"


def test_a_set_has_its_base_controls_and_refiners(study: Any) -> None:
    records, work = study
    made = pretrained_tables(records, compare_all(records, work, work))
    lines = made["refiners-dogfacenet"].splitlines()[2:]
    assert [line.split(" | ")[1] for line in lines] == [
        "base",
        "best control by MAP@R",
        "best control by FNIR",
        "attention and level",
    ]


def test_sides_of_a_gated_refiner_have_a_row_each(study: Any) -> None:
    records, work = study
    rows = [{**REFINED, "name": sides, "sides": sides} for sides in ("gallery", "query", "both")]
    gated = record("refiner", "gated", rows)
    made = pretrained_tables([*records, gated], compare_all(records, work, work))
    assert [line.split(" | ")[2] for line in made["refiners-sides"].splitlines()[2:]] == [
        "gallery",
        "query",
        "both",
    ]
