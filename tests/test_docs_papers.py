"""The page of the papers' tables: the recipe keys of each row make a recipe, commands have their options."""

from __future__ import annotations

import importlib.util
import re
import shlex
import tomllib
from pathlib import Path

import pytest
from typer.main import get_command

pytest.importorskip("torch")

from vicinal.models.configs.file import checked, override
from vicinal.service.cli.main import app
from vicinal.training.config import TrainingConfig
from vicinal.training.losses.config import LossConfig
from vicinal.training.losses.registry import build_loss
from vicinal.training.refiner.config import RefinerRecipe

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "papers.md").read_text(encoding="utf-8")
RECIPE = tomllib.loads(PAGE.partition("```toml\n")[2].partition("```")[0])
FACTS = {"n_classes": 99, "dim": 8, "class_sizes": [9] * 99, "max_per_class": 8}


def _cells() -> list[tuple[str, list[str]]]:
    """Section, and the settings that belong together: those of a cell, or of its part up to a semicolon."""
    found = []
    for section in PAGE.split("\n## ")[1:]:
        for cell in re.findall(r"^\| .* \| (.*) \|$", section, re.MULTILINE):
            # Semicolons within code are none.
            for part in re.split(r"`;|, or ", cell + "`;"):
                spans = re.findall(r"`([a-z_0-9.]+=[^`]*)", part)
                if spans:
                    found.append((section.partition(":")[0].partition("\n")[0], spans))
    return found


def _commands() -> list[str]:
    lines = re.findall(r"^    (vicinal .*)$", PAGE, re.MULTILINE)
    return lines + re.findall(r"`(vicinal [^`]*)`", PAGE) + re.findall(r"`(python -m [^`]*)`", PAGE)


@pytest.mark.parametrize(("paper", "settings"), _cells(), ids=str)
def test_the_recipe_keys_of_a_row_make_a_recipe_and_its_loss(paper: str, settings: list[str]) -> None:
    if paper.startswith("ACR") and not settings[0].startswith("loss=p"):
        checked(RefinerRecipe, override({}, settings), "the row")
        return
    config = checked(TrainingConfig, override(RECIPE, settings), "the row")
    sampler = config.sampler
    loss: LossConfig = config.loss
    build_loss(loss, **FACTS, batch_design=sampler.batch_design)


def test_rows_of_every_paper_are_read() -> None:
    """Negative control: a page that is written otherwise would be passed over."""
    by_paper = [paper for paper, _ in _cells()]
    assert {paper: by_paper.count(paper) >= 5 for paper in by_paper} == dict.fromkeys(
        ["Data sets and measures, for all papers", "CSO", "RSK", "ACR", "TCM", "WCL"], True
    )
    with pytest.raises(Exception, match="unknown"):
        checked(TrainingConfig, override(RECIPE, ["loss.arguments.k=4", "augmentation.crops=1"]), "the row")


@pytest.mark.parametrize("command", _commands())
def test_the_options_of_a_command_are_known(command: str) -> None:
    words = shlex.split(command)
    if words[0] == "python":
        assert importlib.util.find_spec(words[2]) is not None
        return
    known = get_command(app).commands  # type: ignore[attr-defined]
    known[words[1]].make_context(words[1], words[2:])
