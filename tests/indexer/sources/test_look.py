"""The look at a source says what it holds, what is left out, and which labels look wrong."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vicinal.indexer.sources import Source, SourceLook
from vicinal.indexer.sources.items import LabelSizes

LABELS = st.lists(st.none() | st.sampled_from(["a", "b", "c", "d"]))


def remarks(*labels: str | None) -> str:
    return "; ".join(SourceLook.at(labels).remarks)


@given(LABELS)
def test_counts_are_those_of_a_slow_count(labels: list[str | None]) -> None:
    look, sizes = SourceLook.at(labels), Counter(one for one in labels if one is not None)
    assert (look.n_items, look.n_labels, look.n_unlabelled) == (len(labels), len(sizes), labels.count(None))
    assert look.n_single_image_labels == sum(n == 1 for n in sizes.values())
    if look.label_sizes is not None:
        found, ordered = look.label_sizes, sorted(sizes.values())
        assert (found.min, found.max) == (ordered[0], ordered[-1])
        assert sum(n <= found.median for n in ordered) >= len(ordered) / 2
    else:
        assert not sizes


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        (["2019", "2020", "a", "a"], "2 labels are named like dates or a camera's folders: '2019', '2020'"),
        (["DCIM", "a", "a", "b"], "1 label is named like dates"),
        (["nan", "None", "a", "a"], "2 labels are written as programs write a missing value: 'nan', 'None'"),
        (["a"] * 19 + ["b"], "label 'a' holds 19 of the 20 items with a label"),
        (["a", "a", None], "there is one label only, 'a'"),
        (["a", "b", "c", None], "every item has a label of its own"),
        (
            ["Red shoe", "red  shoe", "hat", "hat"],
            "1 label is spelled in several ways: 'Red shoe' and 'red  shoe'",
        ),
    ],
)
def test_labels_that_look_wrong_are_remarked(labels: list[str | None], sentence: str) -> None:
    assert sentence in remarks(*labels)


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (["milk", "mi\u200blk"], "'milk' and 'mi\\u200blk' (ZERO WIDTH SPACE)"),
        (["mi\u200dlk", "milk"], "'milk' and 'mi\\u200dlk' (ZERO WIDTH JOINER)"),
        (
            ["Milk", "\uff2dilk"],
            "'Milk' (LATIN CAPITAL LETTER M) and '\uff2dilk' (FULLWIDTH LATIN CAPITAL LETTER M)",
        ),
        (
            ["caf\u00e9", "\u0441af\u00e9"],
            "'caf\u00e9' (LATIN SMALL LETTER C) and '\u0441af\u00e9' (CYRILLIC SMALL LETTER ES)",
        ),
        (["\u039d1", "N1"], "(GREEK CAPITAL LETTER NU)"),
        (["a b", "a\u00a0b"], "(NO-BREAK SPACE)"),
    ],
)
def test_labels_that_look_the_same_are_told_apart(labels: list[str], said: str) -> None:
    found = remarks(*labels, *labels, "hat")
    assert said in found
    assert found.startswith("2 labels look the same")


@pytest.mark.parametrize(
    "labels",
    [
        ["\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "\u0645\u06cc\u062e\u0648\u0627\u0647\u0645"],
        ["\u0915\u094d\u200d\u0937", "\u0915\u094d\u0937"],
        ["\U0001f469\u200d\U0001f4bb", "\U0001f469\U0001f4bb"],
        ["m\u00b2", "m2"],
        ["5 \u00b5m", "5 mm"],
    ],
)
def test_joiners_that_a_script_needs_and_other_signs_are_no_look_alikes(labels: list[str]) -> None:
    assert remarks(*labels, *labels) == ""


@pytest.mark.parametrize("labels", [[], [None], ["a", "a", "b", "b"], ["a"] * 8 + ["b"] * 2])
def test_labels_as_they_should_be_are_not(labels: list[str | None]) -> None:
    """Negative control."""
    assert remarks(*labels) == ""


def test_with_one_label_by_hand_nothing_is_said_of_the_labels_of_the_source() -> None:
    look = SourceLook.at(["a", "b", None], missing=["gone.jpg"], remark="labels are folders")
    labelled = look.with_one_label()
    assert (labelled.n_items, labelled.n_labels, labelled.n_unlabelled) == (3, 1, 0)
    assert labelled.n_single_image_labels == 0
    assert (labelled.label_sizes, labelled.remarks, labelled.missing) == (LabelSizes(3, 3, 3), (), "gone.jpg")
    assert look.n_unlabelled == 1


def test_files_of_a_manifest_that_do_not_exist_are_counted(tmp_path: Path) -> None:
    (tmp_path / "there.jpg").touch()
    manifest = tmp_path / "items.csv"
    manifest.write_text("path\nthere.jpg\ngone.jpg\nlost.jpg\n", encoding="utf-8")
    look = Source.open(manifest).look()
    assert (look.n_missing, look.missing) == (2, str(tmp_path / "gone.jpg"))
