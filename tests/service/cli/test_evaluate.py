"""`vicinal evaluate`: what it prints and writes, and its errors."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.service.types import Fail, Run
from vicinal.models.bundle import ModelBundle
from vicinal.training.evaluation import retrieval_metrics


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """Embeddings of five labels and of one that is absent."""
    rng = np.random.default_rng(0)
    labels = np.arange(48) % 6
    roles = np.where(labels == 5, "absent", np.where(np.arange(48) < 24, "gallery", "query"))
    embeddings = rng.normal(size=(6, 8))[labels] + 0.8 * rng.normal(size=(48, 8))
    np.savez(tmp_path / "stored.npz", embeddings=embeddings, labels=labels, roles=roles)
    return tmp_path / "stored.npz"


@pytest.mark.slow
def test_class_folders_give_a_table(run: Run, catalog: Path, tiny_bundle: ModelBundle) -> None:
    output = run("evaluate", "--data", f"folder:{catalog}").stdout
    assert tiny_bundle.fingerprint in output
    rows = ("R@1", "R@8", "MAP@R", "mAP", "mAP@1000", "NMI", "OPIS", "10 %-OPIS", "gallery images")
    assert [row for row in rows if f" {row} " not in output] == []
    assert "if all classes were equal" in output


def test_ready_embeddings_are_measured_by_their_roles(run: Run, stored: Path) -> None:
    result = json.loads(run("evaluate", "--embeddings", stored, "--json", "--k", 3, "--k", 1).stdout)
    with np.load(stored) as arrays:
        embeddings, labels, roles = (arrays[name] for name in ("embeddings", "labels", "roles"))
    query, gallery = roles == "query", roles == "gallery"
    expected = retrieval_metrics(
        embeddings[query],
        labels[query],
        gallery_embeddings=embeddings[gallery],
        gallery_labels=labels[gallery],
        ks=(1, 3),
    )
    figures = result["tests"][0]["figures"]
    assert result["bundle"] is None
    assert {k: figures[f"hit_rate_{k}"] for k in (1, 3)} == expected.hit_rate
    assert figures["map_at_1000"] == expected.map_at_1000
    assert 0.0 < figures["auroc"] <= 1.0


ERRORS = {
    "nothing to measure on": ([], "say what to measure on"),
    "unknown layout": (["--data", "birds:x"], "'birds:x' is no data set"),
    "missing folder": (["--data", "folder:nowhere"], "there is no folder 'nowhere'"),
    "missing bundle": (["nowhere", "--data", "folder:."], "is no model bundle"),
    "embeddings that are none": (["--embeddings", "words.txt"], "is no .npz file"),
    "no two images of a label": (["--embeddings", "alone.npz"], "no query has a mate"),
    "an embedding of zeros": (["--embeddings", "zero.npz"], "embedding 1 is zero"),
}


@pytest.mark.parametrize(("arguments", "reason"), ERRORS.values(), ids=ERRORS.keys())
def test_an_error_is_one_line(fail: Fail, tmp_path: Path, arguments: list[str], reason: str) -> None:
    (tmp_path / "words.txt").write_text("words", encoding="utf-8")
    np.savez(tmp_path / "alone.npz", embeddings=np.eye(3), labels=[0, 1, 2])
    np.savez(tmp_path / "zero.npz", embeddings=np.diag([1.0, 0.0]), labels=[0, 0])
    assert reason in fail("evaluate", *arguments)


def test_without_scikit_learn_the_extra_is_named_before_anything_is_read(
    fail: Fail, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    assert "pip install " in fail("evaluate", "--data", "folder:nowhere")
