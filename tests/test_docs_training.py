"""docs/training.md: its tables are those of the configuration, and its example can be loaded."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
from pydantic import BaseModel

pytest.importorskip("torch")
pytest.importorskip("pytorch_metric_learning")

from vicinal.models.configs.file import models_of
from vicinal.models.configs.training import TrainingConfig

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE = (DOCS / "training.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def keys() -> ModuleType:
    """The script that makes the tables."""
    spec = importlib.util.spec_from_file_location("training_keys", DOCS / "training_keys.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _paths(model: type[BaseModel], prefix: str = "") -> set[str]:
    """Every key of a recipe as `--set` takes it, without those inside of data sets."""
    found = set()
    for name, field in model.model_fields.items():
        nested = models_of(field.annotation)
        if not nested or name in ("dataset", "datasets"):
            found |= {f"{prefix}{name}"} - {f"{prefix}kind"}
            continue
        inner = f"{prefix}{name}.N." if "tuple" in str(field.annotation) else f"{prefix}{name}."
        found.update(*(_paths(one, inner) for one in nested))
    return found


def test_tables_are_up_to_date(keys: ModuleType) -> None:
    """`make docs` makes them so."""
    assert keys.with_tables(PAGE) == PAGE


def test_every_key_is_in_a_table() -> None:
    listed = set(re.findall(r"^\| `([\w.]+)` \|", PAGE, re.MULTILINE))
    assert _paths(TrainingConfig) - listed == set()
    assert {"optimizer.schedule.every", "loss.add.N.weight", "backbone.projector.dim"} <= listed


def test_a_stale_table_is_noticed(keys: ModuleType) -> None:
    """Negative control."""
    stale = PAGE.replace("| `optimizer.steps` | `2000` |", "| `optimizer.steps` | `1000` |")
    assert stale != PAGE
    assert keys.with_tables(stale) != stale


def test_the_example_recipe_can_be_loaded(tmp_path: Path) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "recipe.toml").write_text(example, encoding="utf-8")
    config = TrainingConfig.load(tmp_path / "recipe.toml")
    assert [one.name for one in config.loss.add] == ["tcm"]
