"""Tests to measure on, from the command line and from a TOML file."""

from __future__ import annotations

from pathlib import Path

import pytest

from vicinal.models.errors import ConfigError
from vicinal.training.datasets.layouts.folder import FolderConfig
from vicinal.training.datasets.layouts.manifest import ManifestConfig
from vicinal.training.datasets.layouts.protocol import ProtocolConfig
from vicinal.training.evaluation.config import load_tests, parse_test

RECIPES = Path(__file__).resolve().parents[3] / "recipes"


def test_a_protocol_is_measured_with_all_roles_of_its_test_part() -> None:
    expected = ProtocolConfig(
        kind="protocol", root=Path("dogs"), split="test", roles=("gallery", "query", "absent")
    )
    assert parse_test("protocol:dogs").dataset == expected


@pytest.mark.parametrize(
    ("text", "name", "dataset"),
    [
        ("folder:a/birds", "birds", FolderConfig(kind="folder", root=Path("a/birds"))),
        (
            "manifest:a/m.csv",
            "a",
            ManifestConfig(kind="manifest", root=Path("a"), file=Path("m.csv")),
        ),
        ("manifest:a", "a", ManifestConfig(kind="manifest", root=Path("a"))),
    ],
)
def test_a_data_set_is_named_by_kind_and_folder(text: str, name: str, dataset: object) -> None:
    test = parse_test(text)
    assert (test.name, test.dataset) == (name, dataset)


@pytest.mark.parametrize(
    ("text", "split", "reason"),
    [
        ("photos", None, "is no data set: write KIND:ROOT"),
        ("folder:", None, "is no data set"),
        ("birds:photos", None, "the kind one of protocol, folder"),
        ("demo_catalog:photos", None, "is no data set"),
        ("folder:photos", "test", "has no parts"),
        ("cub200:photos", None, r"recipes/convert\.py makes a manifest"),
    ],
)
def test_a_data_set_that_is_none_is_refused(text: str, split: str | None, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        parse_test(text, split=split)


def test_the_tests_of_a_recipe_are_read(tmp_path: Path) -> None:
    tests = load_tests(RECIPES / "characters.toml", data_root=tmp_path)
    assert [(one.name, one.dataset.root) for one in tests] == [
        ("omniglot-test", tmp_path / "omniglot"),
        ("grocery-test", tmp_path / "grocery"),
    ]


def test_a_test_may_have_ranks_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "tests.toml"
    path.write_text(
        '[[tests]]\nname = "sop"\nks = [1, 10]\ndataset = { kind = "manifest", root = "SOP" }\n',
        encoding="utf-8",
    )
    (test,) = load_tests(path, data_root=tmp_path)
    assert (test.ks, test.dataset.root) == ((1, 10), tmp_path / "SOP")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("tests = [", "is not TOML"),
        ('name = "x"', r"has no \[\[tests\]\]"),
        ("tests = []", r"has no \[\[tests\]\]"),
        ("tests = [3]", "tests"),
        ('[[tests]]\nname = "a"\n', "dataset: Field required"),
        ('[[tests]]\nname = "a"\ndataset = 3\n', "dataset"),
        ('[[tests]]\nname = "a"\ndataset = { kind = "birds", root = "x" }\n', "dataset"),
        ('[[tests]]\nname = "a"\nks = [0]\ndataset = { kind = "folder", root = "x" }\n', "ks.0"),
        ('[[tests]]\nname = "a"\ndataset = { kind = "sop", root = "x" }\n', r"recipes/convert\.py sop ROOT"),
    ],
)
def test_a_file_without_tests_that_work_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "tests.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=reason):
        load_tests(tmp_path / "tests.toml")
