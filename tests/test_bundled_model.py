"""The bundle that ships with the package: whole, small, honest about itself, good on unseen photos."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("timm")

from vicinal.models.bundle import ModelBundle, default_bundle_path
from vicinal.models.demo_catalog import make_catalog, render_view
from vicinal.models.embedder import Embedder
from vicinal.refine.context_refiner import ContextRefiner
from vicinal.training.card import write_card
from vicinal.training.config import TrainingConfig
from vicinal.training.datasets.layouts.protocol import ProtocolConfig
from vicinal.training.evaluation.config import RetrievalTest
from vicinal.training.evaluation.measurement import manifest_metrics

pytestmark = pytest.mark.slow

RECIPES = Path(__file__).resolve().parents[1] / "recipes"


@pytest.fixture(scope="module")
def bundle() -> ModelBundle:
    return ModelBundle.open(default_bundle_path())


@pytest.fixture(scope="module")
def embedder(bundle: ModelBundle) -> Embedder:
    return Embedder(bundle, device="cpu", threads=1)


def test_the_bundle_is_at_most_ten_megabytes(bundle: ModelBundle) -> None:
    assert sum(file.stat().st_size for file in bundle.path.iterdir()) <= 10_000_000


def test_the_card_names_every_measured_test(bundle: ModelBundle) -> None:
    card = (bundle.path / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert bundle.fingerprint in card
    assert all(f"| {name} |" in card for name in bundle.manifest.metrics)


def test_the_card_is_what_the_manifest_says(bundle: ModelBundle, tmp_path: Path) -> None:
    copied = ModelBundle.open(shutil.copytree(bundle.path, tmp_path / "copy"))
    write_card(copied)
    cards = [(one.path / "MODEL_CARD.md").read_text(encoding="utf-8") for one in (bundle, copied)]
    assert cards[0] == cards[1]


def test_the_recipe_in_the_bundle_is_the_one_in_the_repository(bundle: ModelBundle) -> None:
    kept = (bundle.path / "recipe.toml").read_text(encoding="utf-8")
    assert kept == (RECIPES / "vicinal-photos.toml").read_text(encoding="utf-8")


def test_a_query_embeds_the_same_alone_and_in_a_batch(embedder: Embedder) -> None:
    images = [render_view(product, 1, size=96) for product in make_catalog(0, 9)]
    alone = np.concatenate([embedder.embed([image]) for image in images])
    np.testing.assert_allclose(embedder.embed(images), alone, rtol=0, atol=1e-6)


def test_the_card_is_true(bundle: ModelBundle, embedder: Embedder, data_dir: Path) -> None:
    """Measured again, the groceries that training never saw give the numbers that the bundle states."""
    recipe = TrainingConfig.load(bundle.path / "recipe.toml", data_root=data_dir)
    (test,) = (test for test in recipe.tests if test.name == "grocery-test")
    assert manifest_metrics(embedder, test) == pytest.approx(
        bundle.manifest.metrics["grocery-test"], abs=0.005
    )


@pytest.mark.parametrize(
    ("name", "hit_rate", "map_at_r"), [("dogfacenet", 0.85, 0.65), ("grocery", 0.95, 0.8)]
)
def test_photos_that_training_never_saw_are_found(
    embedder: Embedder, data_dir: Path, name: str, hit_rate: float, map_at_r: float
) -> None:
    """On calibration classes, where a color histogram reaches R@1 .205 on dogs and .708 on groceries."""
    roles = ("gallery", "query", "absent")
    dataset = ProtocolConfig(kind="protocol", root=data_dir / name, split="calibration", roles=roles)
    measured = manifest_metrics(embedder, RetrievalTest(name=name, dataset=dataset))
    assert measured["hit_rate_1"] > hit_rate
    assert measured["map_at_r"] > map_at_r


def test_it_has_a_refiner_whose_verdict_is_to_refine(bundle: ModelBundle) -> None:
    section = bundle.manifest.refiner
    assert section is not None
    assert section.sides != "off"
    ContextRefiner(bundle)


def test_no_folder_of_the_machine_that_made_it_is_in_it(bundle: ModelBundle) -> None:
    for file in bundle.path.iterdir():
        found = re.search(rb"/(home|root|work|tmp|usr)/", file.read_bytes())
        assert found is None, f"{file.name}: {found}"
