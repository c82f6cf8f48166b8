"""Model card and notice: what a bundle is, whether it was exported, imported or trained."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vicinal.models.bundle import ModelBundle
from vicinal.training.card import write_card, write_notice

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


REFINER_TRAINING = {
    "datasets": ["shop", "letters"],
    "validation_datasets": ["dogs"],
    "items": 5590,
    "classes": 194,
    "recipe": {"validation": {"fpir": 0.05}},
}
VALIDATION = {
    "off": {"fnir": 0.25, "map_at_r": 0.85, "hit_rate_1": 0.96},
    "gallery": {"fnir": 0.23, "map_at_r": 0.88, "hit_rate_1": 0.97},
    "rerank": {"fnir": 0.24},
    "queries": {"n_known": 1248.0, "n_absent": 2730.0},
}


@pytest.fixture
def card_of_refiner(
    with_refiner: Callable[..., ModelBundle],
) -> Callable[..., str]:
    def make(form: str = "gated", **fields: Any) -> str:
        bundle = with_refiner(form=form, level=form == "gated", sides="gallery")
        section = bundle.manifest.refiner
        assert section is not None
        kept = section.model_dump(exclude={"files", "backbone_fingerprint"})
        return _card(bundle.with_refiner({**kept, **fields}))

    return make


def test_the_card_says_what_the_refiner_is_and_what_it_refines(card_of_refiner: Callable[..., str]) -> None:
    card = card_of_refiner(training=REFINER_TRAINING, validation=VALIDATION)
    assert "Refiner: `gated`, 3 steps over 4 neighbors, with softmax query expansion and a level." in card
    assert "By default the gallery is refined, and results are not re-ranked." in card
    assert "It was trained on 5,590 embeddings of 194 classes: shop, letters." in card


def test_the_card_says_on_which_classes_the_refiner_was_judged(card_of_refiner: Callable[..., str]) -> None:
    card = card_of_refiner(training=REFINER_TRAINING, validation=VALIDATION)
    assert "on other classes, of dogs, with 1,248 queries with a mate and 2,730 without" in card
    assert "| refined | FNIR at FPIR 5 % | MAP@R | R@1 |\n|---|---|---|---|\n" in card
    assert "| nothing | 0.250 | 0.850 | 0.960 |\n| **the gallery** | 0.230 | 0.880 | 0.970 |\n" in card
    assert "| rerank" not in card


def test_a_notice_names_source_and_licence(bundle_with: Callable[..., ModelBundle]) -> None:
    made = bundle_with(source="a network", licence="MIT")
    write_notice(made)
    assert "a network, licence MIT" in (made.path / "NOTICE").read_text(encoding="utf-8")
    assert "Licence and source are in `NOTICE`." in _card(made)
    ModelBundle.open(made.path)


def test_weights_of_unknown_source_have_no_notice(bundle_with: Callable[..., ModelBundle]) -> None:
    made = bundle_with()
    (made.path / "NOTICE").write_text("of an earlier export", encoding="utf-8")
    write_notice(made)
    assert not (made.path / "NOTICE").exists()
    assert "NOTICE" not in _card(made)
