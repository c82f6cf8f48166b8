"""`vicinal train-refiner`: from embeddings or images to a bundle that refines, and its errors."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.service.types import Fail, Run
from vicinal.models.bundle import ModelBundle, default_bundle_path

pytest.importorskip("torch")
pytest.importorskip("pytorch_metric_learning")
pytest.importorskip("onnxscript")

from vicinal.refine.context_refiner import ContextRefiner

QUICK = ["--set", "optimizer.steps=3", "--set", "search.n_queries=16"]
SMALL = ["--folds", "0", "--set", "validation.share=0.4", *QUICK]


def write_embeddings(path: Path, n_classes: int = 40, dim: int = 24, seed: int = 0) -> Path:
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(n_classes), 6)
    np.savez(
        path,
        embeddings=rng.normal(size=(n_classes, dim))[labels] + rng.normal(size=(len(labels), dim)),
        labels=labels,
    )
    return path


@pytest.fixture
def copied(tiny_bundle: ModelBundle, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_bundle.path, tmp_path / "bundle"))


@pytest.fixture
def embeddings(tmp_path: Path) -> Path:
    return write_embeddings(tmp_path / "embeddings.npz")


def test_embeddings_make_a_refiner_in_the_bundle(run: Run, copied: Path, embeddings: Path) -> None:
    output = run("train-refiner", "--bundle", copied, "--embeddings", embeddings, *SMALL).stdout
    bundle = ModelBundle.open(copied)
    assert ContextRefiner(bundle).n_steps == 1
    assert bundle.manifest.refiner.fingerprint in output
    assert "Verdict: refine" in output
    assert "48 queries with a mate and 96 without" in " ".join(output.split())


@pytest.mark.usefixtures("no_graph")
def test_output_is_a_copy_and_the_bundle_stays_as_it_is(
    run: Run, copied: Path, embeddings: Path, tmp_path: Path
) -> None:
    options = ("--embeddings", embeddings, "--output", tmp_path / "refined", *SMALL, "--json")
    section = json.loads(run("train-refiner", "--bundle", copied, *options).stdout)
    assert ModelBundle.open(copied).manifest.refiner is None
    refined = ModelBundle.open(tmp_path / "refined").manifest.refiner
    assert refined.fingerprint == section["fingerprint"]
    assert refined.training["recipe"]["optimizer"]["steps"] == 3
    assert set(refined.validation) == {"off", "gallery", "query", "both", "rerank", "queries"}
    card = (tmp_path / "refined" / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert "Refiner: `gated`" in card
    assert "on a part of its classes, held out" in card


@pytest.mark.usefixtures("no_graph")
def test_validation_classes_can_be_given(run: Run, copied: Path, embeddings: Path, tmp_path: Path) -> None:
    validation = write_embeddings(tmp_path / "validation.npz", n_classes=20, seed=1)
    options = ("--embeddings", embeddings, "--validation", validation, *SMALL, "--json")
    section = json.loads(run("train-refiner", "--bundle", copied, *options).stdout)
    assert section["training"]["classes"] == 40
    assert section["validation"]["queries"] == {"n_known": 60.0, "n_absent": 120.0}
    assert "on other classes" in (copied / "MODEL_CARD.md").read_text(encoding="utf-8")


@pytest.mark.usefixtures("no_graph")
def test_images_make_a_refiner(run: Run, copied: Path, catalog: Path, tmp_path: Path) -> None:
    """The data sets of a recipe are embedded with the bundle."""
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(f'[[datasets]]\nkind = "folder"\nroot = "{catalog.name}"\n', encoding="utf-8")
    settings = ("batches.batch_size=16", "refiner.n_steps=1", "refiner.n_heads=2")
    small = [*SMALL, *(word for setting in settings for word in ("--set", setting))]
    options = ("--data", recipe, "--data-root", catalog.parent, *small, "--json")
    section = json.loads(run("train-refiner", "--bundle", copied, *options).stdout)
    assert section["training"]["datasets"] == [catalog.name]
    assert (section["training"]["classes"], section["training"]["items"]) == (6, 36)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ((), "say what to train on: --gallery NAME, --embeddings FILE, or --data"),
        (("--embeddings", "{folder}/absent.npz"), "there is no file"),
        (("--data", "{folder}/absent.toml"), "absent.toml"),
        (("--embeddings", "{folder}/short.npz"), "the embeddings have 8 dimensions, bundle 'tiny' makes 24"),
        (("--embeddings", "{folder}/few.npz"), "hold out a larger share of the classes"),
        (
            (
                *("--embeddings", "{folder}/embeddings.npz"),
                *("--set", "refiner.form=attention", "--set", "refiner.n_heads=5"),
            ),
            "n_heads 5 does not divide",
        ),
        (("--embeddings", "{folder}/embeddings.npz", "--set", "refiner.heads=2"), "did you mean 'n_heads'"),
        (
            ("--embeddings", "{folder}/embeddings.npz", "--output", "{folder}"),
            "exists: choose another --output",
        ),
    ],
)
def test_what_cannot_work_is_said_in_one_line(
    fail: Fail, copied: Path, embeddings: Path, tmp_path: Path, options: Any, named: str
) -> None:
    write_embeddings(tmp_path / "short.npz", dim=8)
    write_embeddings(tmp_path / "few.npz", n_classes=6)
    filled = [one.format(folder=tmp_path) for one in options]
    assert named in fail("train-refiner", "--bundle", copied, *SMALL, *filled)
    assert ModelBundle.open(copied).manifest.refiner is None


def test_embeddings_and_data_sets_exclude_each_other(
    fail: Fail, copied: Path, embeddings: Path, tmp_path: Path
) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('[[datasets]]\nkind = "folder"\nroot = "photos"\n', encoding="utf-8")
    line = fail("train-refiner", "--bundle", copied, "--data", recipe, "--embeddings", embeddings)
    assert "the recipe has [[datasets]], and --embeddings was given" in line


def test_classes_are_not_validated_on_that_were_trained_on(
    fail: Fail, copied: Path, catalog: Path, tmp_path: Path
) -> None:
    recipe, folder = tmp_path / "recipe.toml", f'kind = "folder"\nroot = "{catalog}"\n'
    recipe.write_text(f"[[datasets]]\n{folder}\n[[validation_datasets]]\n{folder}", encoding="utf-8")
    line = fail("train-refiner", "--bundle", copied, "--data", recipe, *SMALL)
    assert "10 classes are trained and validated on" in line


N_LABELS = 24


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 labels of six photos in regions of four, so that neighbors help; and five photos without a label."""
    root = tmp_path_factory.mktemp("photos")
    for label in range(N_LABELS):
        (root / f"label {label}").mkdir()
        base = np.random.default_rng(label // 4).integers(30, 226, (5, 5, 3))
        coarse = base + np.random.default_rng([1, label]).integers(-60, 61, (5, 5, 3))
        for view in range(6):
            noise = np.random.default_rng([label, view]).integers(-70, 71, (5, 5, 3))
            pixels = np.clip(coarse + noise, 0, 255).astype(np.uint8)
            Image.fromarray(pixels).resize((40, 40)).save(root / f"label {label}" / f"{view}.png")
    for number in range(5):
        image = Image.linear_gradient("L").convert("RGB").resize((40, 40))
        image.paste((9 * number, 200, 30), (0, 0, 40, 30))
        image.save(root / f"{number}.png")
    return root


@pytest.fixture
def shop(run: Run, photos: Path, no_graph: None) -> str:
    run("index", photos, "--gallery", "shop")
    return "shop"


def test_a_gallery_makes_a_refined_copy_of_its_bundle(
    run: Run, shop: str, tiny_bundle: ModelBundle, tmp_path: Path
) -> None:
    printed = json.loads(run("train-refiner", "--gallery", shop, *QUICK, "--json").stdout)
    copy = tmp_path / "data" / "bundles" / "tiny-shop"
    assert printed["bundle"] == str(copy)
    assert ModelBundle.open(copy).manifest.refiner.fingerprint == printed["fingerprint"]
    assert ModelBundle.open(tiny_bundle.path).manifest.refiner is None
    counts = printed["gallery"]
    assert (counts["n_items"], counts["n_labels"], counts["n_unlabelled"]) == (6 * N_LABELS, N_LABELS, 5)
    assert printed["training"]["classes"] == N_LABELS
    # Two draws: half of a label's photos as queries with a mate, and all as queries without.
    assert printed["validation"]["queries"] == {"n_known": 3.0 * N_LABELS, "n_absent": 6.0 * N_LABELS}
    gain = printed["validation"]["gain_over_present"]
    assert gain["fnir_low"] <= gain["fnir_after"] - gain["fnir_before"] <= gain["fnir_high"]


def test_what_changed_is_said_in_words_with_commands_that_work_in_their_order(
    run: Run, shop: str, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vicinal.service.cli.bundles.train_refiner._finds_more", lambda _section: True)
    monkeypatch.setattr("vicinal.training.refiner.cross_fitting.choose_sides", lambda _figures: "both")
    monkeypatch.setattr("vicinal.training.refiner.validation.choose_sides", lambda _figures: "both")
    output = run("train-refiner", "--gallery", shop, *QUICK).stdout
    assert f"Learned from {6 * N_LABELS} photos with {N_LABELS} labels of gallery shop." in output
    assert "left out: 5 photos without a label" in output
    assert "at the same rate of wrong matches: 5 in 100" in output
    assert "measured on labels that the refiner never saw" in output
    refine, calibrate, compare, serve = (
        shlex.split(line)[1:] for line in output.splitlines() if line.startswith("  vicinal ")
    )
    names = [refine[:2], calibrate[0], compare[0], serve[0]]
    assert names == [["gallery", "refine"], "calibrate", "compare", "serve"]
    run(*refine)
    run(*calibrate)
    # Of all photos it takes minutes.
    run(*compare, "--max-queries", 4)
    query, bundle = ["search", photos / "0.png", "--gallery", shop, "--json"], serve[1:]
    refined, as_before = (json.loads(run(*query, *more).stdout) for more in (bundle, []))
    assert (refined["threshold"]["state"], as_before["threshold"]["state"]) == ("current", "none")
    assert refined["pipeline"].startswith("refine=both")
    assert as_before["pipeline"].startswith("rerank=")


def test_a_refiner_that_does_not_help_says_that_nothing_needs_doing(
    run: Run, shop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vicinal.training.refiner.cross_fitting.choose_sides", lambda _figures: "off")
    monkeypatch.setattr("vicinal.training.refiner.validation.choose_sides", lambda _figures: "off")
    output = run("train-refiner", "--gallery", shop, *QUICK).stdout
    assert "Verdict: refine nothing." in output
    assert "Nothing needs doing" in output
    assert "vicinal gallery refine" not in output


def test_a_copy_is_replaced_only_when_that_is_asked_for(
    run: Run, fail: Fail, shop: str, tmp_path: Path
) -> None:
    output = ["train-refiner", "--gallery", shop, *QUICK, "--output", tmp_path / "copy"]
    run(*output)
    assert "exists: choose another --output, or replace it with --overwrite" in fail(*output)
    run(*output, "--overwrite", "--set", "seed=1")
    recipe = ModelBundle.open(tmp_path / "copy").manifest.refiner.training["recipe"]
    assert recipe["seed"] == 1


def test_a_folder_that_is_no_bundle_is_never_overwritten(fail: Fail, shop: str, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    options = ["--gallery", shop, *QUICK, "--output", tmp_path / "mine", "--overwrite"]
    assert "is no bundle and is not overwritten" in fail("train-refiner", *options)
    assert (tmp_path / "mine" / "letter.txt").exists()


def test_the_bundle_that_ships_is_never_written(fail: Fail, embeddings: Path) -> None:
    line = fail("train-refiner", "--bundle", default_bundle_path(), "--embeddings", embeddings, *QUICK)
    assert "ships with Vicinal and stays as it is: name a folder for a copy with --output" in line


def test_too_few_labels_are_refused_with_the_number_that_is_needed(fail: Fail, data_dir: Path) -> None:
    line = fail("train-refiner", "--gallery", "shoes", *QUICK)
    assert "10 labels have two items or more, and at least 20 are needed" in line


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--embeddings", "{embeddings}"), "--gallery is all that is learned from"),
        (("--folds", "0"), "give --folds 2 or more"),
        (("--folds", "1"), "folds is 1, expected 0 or at least 2"),
    ],
)
def test_what_does_not_go_with_a_gallery_is_refused(
    fail: Fail, shop: str, embeddings: Path, options: Any, named: str
) -> None:
    filled = [one.format(embeddings=embeddings) for one in options]
    assert named in fail("train-refiner", "--gallery", shop, *filled)


@pytest.mark.usefixtures("no_graph")
def test_embeddings_are_cross_fitted_as_well(run: Run, copied: Path, embeddings: Path) -> None:
    output = run("train-refiner", "--bundle", copied, "--embeddings", embeddings, "--folds", 2, *QUICK).stdout
    assert "120 queries with a mate and 240 without" in " ".join(output.split())
    assert "measured on labels that the refiner never saw" in output
