"""Example answers on tiny drawn pictures: the sets, the outcomes, the rows that a sheet shows."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw

from benchmarks.quality.answer_sheets import GROUPS, outcome, pick_rows, write_sheet
from benchmarks.quality.example_answers import run_set
from benchmarks.quality.example_sets import (
    SETS,
    Example,
    drawn_symbols,
    photographed_things,
    role_of,
    write_set,
)
from vicinal.models.bundle import ModelBundle


def blob(color: tuple[int, ...], size: int = 40) -> Image.Image:
    image = Image.new("RGBA", (size, size), (0, 0, 0, 0))
    ImageDraw.Draw(image).ellipse((size // 4, size // 8, size // 2, size - 1), fill=color)
    return image


def save(image: Image.Image, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path)


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    stamps = tmp_path / "tuxpaint-stamps-default/usr/share/tuxpaint/stamps"
    save(blob((200, 30, 30, 255)), stamps / "food/red_apple.png")
    save(blob((200, 30, 30, 255)), stamps / "people/the_same.png")
    save(blob((255, 255, 255, 255)), stamps / "weather/white_cloud.png")
    save(blob((30, 30, 200, 255)), stamps / "food/red_apple_mirror.png")
    save(blob((30, 200, 30, 255)), stamps / "food/cartoon/pear.png")
    ground = tmp_path / "mate-backgrounds/usr/share/backgrounds/mate/nature/Green.jpg"
    save(Image.new("RGB", (80, 60), (20, 120, 20)), ground)
    described = [
        {
            "unified": code,
            "image": f"{code.lower()}.png",
            "short_name": name,
            "category": kind,
            "subcategory": kind,
        }
        for code, name, kind in (
            ("2600-FE0F", "sunny", "Travel"),
            ("1F600", "grinning", "Smileys"),
            ("1F1E6", "flag-a", "Flags"),
        )
    ]
    for vendor, folder in (("google", "emoji-datasource-google"), ("twitter", "emoji-datasource-twitter")):
        for one in described:
            save(blob((255, 200, 0, 255)), tmp_path / folder / f"package/img/{vendor}/64" / str(one["image"]))
    (tmp_path / "emoji-datasource-google/package/emoji.json").write_text(json.dumps(described))
    for code in ("2600", "1f1e6"):
        save(blob((255, 180, 0, 255)), tmp_path / f"fluent-emoji-3d/package/assets/{code}.webp")
    return tmp_path


def test_a_thing_is_taken_once_and_drawn_or_blank_ones_are_left_out(packages: Path) -> None:
    found = list(photographed_things(packages))
    assert [(one.label, one.view) for one in found] == [
        ("red apple", "gallery"),
        ("red apple", "scene"),
        ("red apple", "part"),
        ("red apple", "dim"),
    ]


def test_the_views_of_a_thing_are_what_they_are_called(packages: Path) -> None:
    views = {one.view: np.asarray(one.image, dtype=float) for one in photographed_things(packages)}
    np.testing.assert_allclose(views["scene"][0, 0], (20, 120, 20), atol=3)
    assert views["part"].shape == (154, 154, 3)
    assert views["dim"].shape == (64, 64, 3)
    assert views["dim"].mean() < 0.5 * views["gallery"].mean()


def test_a_symbol_is_taken_where_all_three_draw_it_and_is_no_flag(packages: Path) -> None:
    assert [(one.label, one.view) for one in drawn_symbols(packages)] == [
        ("sunny", "gallery noto"),
        ("sunny", "gallery twemoji"),
        ("sunny", "fluent"),
    ]


def test_packages_that_are_not_there_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unpack the packages"):
        write_set(SETS["things"](tmp_path), tmp_path / "set")


def test_two_of_three_labels_are_known_and_half_of_each_kind_calibrates() -> None:
    roles = [role_of(f"label {number}") for number in range(3000)]
    shares = [
        np.mean([role == one for role in roles]) for one in ((True, True), (True, False), (False, True))
    ]
    np.testing.assert_allclose(shares, [1 / 3, 1 / 3, 1 / 6], atol=0.03)


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


def test_wrong_rows_are_picked_by_score_and_right_ones_in_order_one_a_label() -> None:
    wrong = [answer("absent", [score, 0.1], ["b", "c"]) for score in (0.6, 0.9, 0.7, 0.8, 0.65)]
    right = [answer("query", [score, 0.1], ["a", "b"]) for score in (0.6, 0.9, 0.7, 0.8)]
    for number, row in enumerate(wrong):
        row["label"] = f"stranger {number}"
    right[1]["label"] = right[1]["answers"][0]["label"] = "another"
    groups = {group.outcome: group for group in GROUPS}
    scores = {
        name: [row["answers"][0]["score"] for row in pick_rows(wrong + right, groups[name])]
        for name in ("stranger", "found")
    }
    assert scores == {"stranger": [0.9, 0.8, 0.7, 0.65], "found": [0.6, 0.9]}


def dark_columns(sheet: Path) -> list[int]:
    """Columns that hold a threshold bar: dark over the whole height of the first picture."""
    with Image.open(sheet) as opened:
        pixels = np.asarray(opened.convert("L"))
    return [int(x) for x in np.flatnonzero((pixels[38:118] < 60).all(axis=0))]


def test_the_bar_stands_after_the_last_match(tmp_path: Path) -> None:
    pictures = {name: tmp_path / f"{name}.png" for name in ("q", "a", "b", "c")}
    for path in pictures.values():
        save(Image.new("RGB", (20, 20), (240, 240, 240)), path)
    bars = {}
    for threshold in (0.5, 0.3):
        row = answer("query", [0.9, 0.4, 0.2], ["a", "b", "c"], threshold)
        write_sheet([row], threshold, pictures, tmp_path / "sheet.png")
        bars[threshold] = max(x for x in dark_columns(tmp_path / "sheet.png") if x > 108)
    assert bars[0.3] - bars[0.5] == 96


@pytest.mark.slow
def test_a_set_is_indexed_calibrated_searched_and_drawn(tmp_path: Path, tiny_bundle: ModelBundle) -> None:
    """Every query of the other labels is answered with the threshold in force, and the counts add up."""
    found = run_set("blobs", iter(blobs(120)), tmp_path, tiny_bundle.path, "fpir=20%", tmp_path / "sheets")
    assert sum(found["test"]["outcomes"].values()) == len(found["rows"])
    assert found["test"]["n_queries"] + found["test"]["n_absent"] == len(found["rows"])
    assert set(found["by_view"]) == {"small", "large"}
    with Image.open(tmp_path / "sheets/examples-blobs.png") as sheet:
        assert sheet.width < 1000
