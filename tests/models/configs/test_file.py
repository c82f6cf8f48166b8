"""Configuration files: keys set anew, and errors that say where, what and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("timm")

from vicinal.models.configs.file import override, read_toml
from vicinal.models.errors import ConfigError
from vicinal.training.config import TrainingConfig

MINIMAL = """
name = "sample"
[backbone]
name = "resnet18"
[preprocessing]
input_size = 64
[[datasets]]
kind = "protocol"
root = "omniglot"
"""
FIELDS = {
    "seed": 1,
    "loss": {"name": "triplet", "add": ["tcm"]},
    "datasets": [{"kind": "folder", "root": "a"}],
}


def _refusal(tmp_path: Path, added: str, *settings: str) -> str:
    path = tmp_path / "recipe.toml"
    path.write_text(MINIMAL + added, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        TrainingConfig.load(path, settings=settings)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("setting", "changed"),
    [
        ("seed=2", {"seed": 2}),
        ("loss=contextual", {"loss": "contextual"}),
        ("loss.name=contextual", {"loss": {"name": "contextual", "add": ["tcm"]}}),
        ("loss.add=[]", {"loss": {"name": "triplet", "add": []}}),
        ("loss.add.0='arcface'", {"loss": {"name": "triplet", "add": ["arcface"]}}),
        ("datasets.0.root=b/c-d.e", {"datasets": [{"kind": "folder", "root": "b/c-d.e"}]}),
        ("licence=2024/photos", {"licence": "2024/photos"}),
        ("licence=größe", {"licence": "größe"}),
        ("optimizer.schedule.kind=cosine", {"optimizer": {"schedule": {"kind": "cosine"}}}),
        ("backbone={name='a', dim=8}", {"backbone": {"name": "a", "dim": 8}}),
        ("licence='a=b'", {"licence": "a=b"}),
        ("patience=true", {"patience": True}),
    ],
)
def test_a_setting_replaces_one_place(setting: str, changed: dict[str, Any]) -> None:
    assert override(FIELDS, [setting]) == {**FIELDS, **changed}


def test_settings_apply_in_their_order_and_leave_the_fields_alone() -> None:
    assert override(FIELDS, ["seed=2", "seed=3"])["seed"] == 3
    assert FIELDS["seed"] == 1


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("seed", "sets nothing: write key=value"),
        ("loss..name=a", "sets nothing"),
        ("seed=", "has no TOML value"),
        ("name=[a", "has no TOML value"),
        ("seed=1\nname='b'", "sets more than one key"),
        ("seed.more=1", "'more' would be inside of 1"),
        ("datasets.7.root=b", "'7' would be inside of"),
        ("datasets.root=b", "'root' would be inside of"),
    ],
)
def test_a_setting_of_another_form_is_refused(setting: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        override(FIELDS, [setting])


@pytest.mark.parametrize(
    ("added", "line"),
    [
        ("[sampler]\nbatchsize = 8", "sampler.batchsize: unknown key, did you mean 'batch_size'?"),
        (
            "[sampler]\nkind = 'group'\nn_class = 8",
            "sampler.n_class: unknown key, choose of chunk_size, kind, m, n",
        ),
        (
            "[optimizer.schedule]\nkind = 'step'\nevry = 5\nevery = 5",
            "optimizer.schedule.evry: unknown key, did you mean 'every'?",
        ),
        (
            "[[datasets]]\nkind = 'folder'\nrot = 'a'\nroot = 'b'",
            "datasets.1.rot: unknown key, did you mean 'root'?",
        ),
        ("[augmentations]", "augmentations: unknown key, did you mean 'augmentation'?"),
    ],
)
def test_unknown_key_gets_the_closest_known_one(tmp_path: Path, added: str, line: str) -> None:
    assert line in _refusal(tmp_path, added)


def test_what_is_missing_is_named_without_the_tag_of_its_kind(tmp_path: Path) -> None:
    assert "datasets.1.root: Field required" in _refusal(tmp_path, "[[datasets]]\nkind = 'folder'")


def test_a_contradiction_of_two_tables_has_no_place(tmp_path: Path) -> None:
    line = _refusal(tmp_path, "[loss]\nname = 'balanced_contrastive'")
    assert "recipe.toml': balanced_contrastive weighs pairs" in line


def test_a_folder_is_no_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_toml(tmp_path)
