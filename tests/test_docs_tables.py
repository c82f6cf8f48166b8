"""docs/: tables are those of the settings and of the configuration, and examples can be loaded."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
from pydantic import BaseModel, Field

from vicinal.models.configs.file import models_of
from vicinal.service.settings import Settings

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = {name: (DOCS / name).read_text(encoding="utf-8") for name in ("settings.md", "training.md")}
PAGE = PAGES["training.md"]


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    """The script that makes the tables."""
    spec = importlib.util.spec_from_file_location("tables", DOCS / "tables.py")
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
        if not nested or name in ("dataset", "datasets", "validation_datasets"):
            found |= {f"{prefix}{name}"} - {f"{prefix}kind"}
            continue
        inner = f"{prefix}{name}.N." if "tuple" in str(field.annotation) else f"{prefix}{name}."
        found.update(*(_paths(one, inner) for one in nested))
    return found


@pytest.mark.parametrize("name", PAGES)
def test_tables_are_up_to_date(tables: ModuleType, name: str) -> None:
    """`make docs` makes them so."""
    if name == "training.md":
        pytest.importorskip("torch")
        pytest.importorskip("pytorch_metric_learning")
    assert tables.with_tables(PAGES[name], tables.TABLES[name]()) == PAGES[name]


def test_every_setting_is_in_the_table() -> None:
    listed = set(re.findall(r"^\| `(\w+)", PAGES["settings.md"], re.MULTILINE))
    assert listed == set(Settings.model_fields)
    assert "`VICINAL_PIPELINE__RERANK__METHOD`" in PAGES["settings.md"]


def test_a_setting_without_a_description_is_noticed(tables: ModuleType) -> None:
    """Negative control."""

    class More(Settings):
        undescribed: int = Field(default=1)

    with pytest.raises(KeyError, match="undescribed"):
        tables.settings_table(More)


@pytest.mark.slow
def test_every_key_is_in_a_table() -> None:
    config = pytest.importorskip("vicinal.training.config", exc_type=ImportError)
    listed = set(re.findall(r"^\| `([\w.]+)` \|", PAGE, re.MULTILINE))
    assert _paths(config.TrainingConfig) - listed == set()
    assert {"optimizer.schedule.every", "loss.add.N.weight", "backbone.projector.dim"} <= listed


def test_a_stale_table_is_noticed(tables: ModuleType) -> None:
    """Negative control."""
    stale = PAGES["settings.md"].replace("| `8321` |", "| `8322` |")
    assert stale != PAGES["settings.md"]
    assert tables.with_tables(stale, tables.settings_table()) != stale


def test_the_example_recipe_can_be_loaded(tmp_path: Path) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "recipe.toml").write_text(example, encoding="utf-8")
    training = pytest.importorskip("vicinal.training.config", exc_type=ImportError)
    config = training.TrainingConfig.load(tmp_path / "recipe.toml")
    assert (config.loss.name, config.loss.add) == ("multi_similarity", ())


@pytest.mark.parametrize("page", ["settings.md", "training.md", "loss-costs.md"])
def test_no_table_shows_how_a_default_is_missing(page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    assert [word for word in ("PydanticUndefined", "Ellipsis", "<factory>") if word in text] == []
