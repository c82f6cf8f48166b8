"""docs/: pages for who begins are led to, and say what the code and the figures say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_args

import pytest
from typer.main import get_command

from vicinal.calibration import Target
from vicinal.service.cli.main import app

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = get_command(app)


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["upgrading.md", "glossary.md", "how-much.md"])
def test_the_readme_leads_to_it(name: str) -> None:
    assert f"(docs/{name})" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("rate", get_args(Target.model_fields["rate"].annotation))
def test_every_rate_that_a_target_names_is_in_the_glossary(rate: str) -> None:
    listed = re.findall(r"^\| ([^|]+) \|", page("glossary.md"), re.MULTILINE)
    assert rate in {word.strip().lower() for one in listed for word in one.split(",")}


def test_the_time_for_5000_photos_is_that_of_the_measured_rate() -> None:
    measured = json.loads((ROOT / "benchmarks/results/peers_embedding.json").read_text(encoding="utf-8"))
    rate = measured["images_per_second"]["bundled model"]["Vicinal, int8"]
    assert re.search(
        rf"^\| embed, .* \| {rate:.0f} a second \|.*\| {5000 / rate:.0f} s \|$", page("how-much.md"), re.M
    )


def test_how_many_photos_of_another_day_are_enough_is_what_was_measured() -> None:
    rows = re.findall(r"^\| (\d+) \| (\d+) of 100 \| (\d+) of 100 \|$", page("how-much.md"), re.MULTILINE)
    assert [int(labels) for labels, *_ in rows] == [5, 15, 40]
    assert all(int(found) > 20 * int(wrong) for _, found, wrong in rows)


@pytest.mark.parametrize("name", ["upgrading.md", "how-much.md"])
def test_its_commands_are_commands(name: str) -> None:
    named = re.findall(r"(?:^ +|`)vicinal ((?:[a-z]+ ?)+)", page(name), re.MULTILINE)
    assert named
    unknown = [words for words in named if words.split()[0] not in COMMANDS.commands]
    assert unknown == []
