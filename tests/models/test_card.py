"""Model card and notice: what a bundle is, whether it was exported, imported or trained."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vicinal.models.bundle import ModelBundle
from vicinal.models.card import write_card, write_notice

TRAINING = {
    "datasets": ["photos, train classes"],
    "images": 1200,
    "classes": 40,
    "loss": "contextual",
    "best_step": 500,
    "batch_size": 64,
}
SPEED = {"images_per_second": 100.0, "milliseconds": 8.0, "megabytes": 14.7}


@pytest.fixture
def bundle_with(tiny_bundle: ModelBundle, tmp_path: Path) -> Callable[..., ModelBundle]:
    def make(**fields: Any) -> ModelBundle:
        path = shutil.copytree(tiny_bundle.path, tmp_path / "tiny", dirs_exist_ok=True)
        own = tiny_bundle.manifest.model_dump(exclude={"files", "refiner"})
        return ModelBundle.write(path, {**own, **fields})

    return make


def _card(bundle: ModelBundle) -> str:
    write_card(bundle)
    return (bundle.path / "MODEL_CARD.md").read_text(encoding="utf-8")


def test_the_card_of_a_trained_bundle_says_on_what_and_where_the_recipe_is(
    bundle_with: Callable[..., ModelBundle],
) -> None:
    card = _card(bundle_with(training=TRAINING, metrics={"photos-test": {"hit_rate_1": 0.9}}))
    assert "Trained on 1,200 images of 40 classes with the contextual loss" in card
    assert "- photos, train classes" in card
    assert "| photos-test | 0.900 |" in card
    assert "recipe.toml" in card


def test_the_card_of_an_exported_bundle_says_source_head_and_forms(
    bundle_with: Callable[..., ModelBundle],
) -> None:
    forms = {"float32": SPEED, "int8": {**SPEED, "mean_cosine": 0.98}}
    made = bundle_with(
        training={"head": "a classifier of 12 classes"}, source="a network", precision="int8", forms=forms
    )
    card = _card(made)
    assert "Weights: a network." in card
    assert "Its head was learnt from a classifier of 12 classes." in card
    assert "| form | images a second | ms for one | MB | agreement |\n|---|---|---|---|---|\n" in card
    assert "| **int8** | 100 | 8.0 | 14.7 | 0.9800 |" in card
    assert "rained" not in card
    assert "recipe.toml" not in card


def test_the_card_of_an_imported_bundle_names_its_file(bundle_with: Callable[..., ModelBundle]) -> None:
    card = _card(bundle_with(training={"file": "net.onnx"}, precision=None, forms={"as imported": SPEED}))
    assert "Made from `net.onnx`, as it is." in card
    assert "| as imported | 100 |" in card
    assert "None" not in card


def test_a_notice_names_source_and_licence(bundle_with: Callable[..., ModelBundle]) -> None:
    made = bundle_with(source="a network", licence="MIT")
    write_notice(made)
    assert "a network, licence MIT" in (made.path / "NOTICE").read_text(encoding="utf-8")
    assert "Licence and source are in `NOTICE`." in _card(made)
    ModelBundle.open(made.path)


def test_a_notice_of_ones_own_is_taken_as_it_is(
    bundle_with: Callable[..., ModelBundle], tmp_path: Path
) -> None:
    (tmp_path / "terms.txt").write_text("Ask first.\n", encoding="utf-8")
    made = bundle_with(source="a network")
    write_notice(made, tmp_path / "terms.txt")
    assert (made.path / "NOTICE").read_text(encoding="utf-8") == "Ask first.\n"


def test_weights_of_unknown_source_have_no_notice(bundle_with: Callable[..., ModelBundle]) -> None:
    made = bundle_with()
    (made.path / "NOTICE").write_text("of an earlier export", encoding="utf-8")
    write_notice(made)
    assert not (made.path / "NOTICE").exists()
    assert "NOTICE" not in _card(made)
