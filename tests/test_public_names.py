"""What `import vicinal` gives: a list that changes with thought only, and documentation that runs."""

from __future__ import annotations

import doctest
import inspect

import pytest

import vicinal

NAMES = [
    "Answer",
    "Bundle",
    "CalibratedThreshold",
    "Candidate",
    "Embedder",
    "EmbeddingSource",
    "LocalGallery",
    "Matcher",
    "Opis",
    "Refiner",
    "Settings",
    "calibrate_threshold",
    "create_app",
    "open_gallery",
    "opis",
    "rerank",
]


def test_the_public_names_are_these() -> None:
    """Programs of others are built on them."""
    assert vicinal.__all__ == NAMES
    assert set(NAMES) < set(dir(vicinal))


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_is_there_and_documented(name: str) -> None:
    found = getattr(vicinal, name)
    assert inspect.getdoc(found)
    assert getattr(vicinal, name) is found


def public_methods(kind: type) -> list[str]:
    members = inspect.getmembers(kind, lambda one: inspect.isfunction(one) or isinstance(one, property))
    return [name for name, _ in members if not name.startswith("_")]


def test_what_a_gallery_can_do_is_this() -> None:
    assert public_methods(vicinal.LocalGallery) == [
        "activate",
        "add",
        "add_searches",
        "answer",
        "aside",
        "bring_back",
        "calibrate",
        "check",
        "compare",
        "delete",
        "embedder",
        "exists",
        "index",
        "items",
        "matcher",
        "name",
        "promise",
        "remove",
        "remove_added",
        "review",
        "search",
        "search_many",
        "set_aside",
        "threshold",
        "use",
        "versions",
    ]


@pytest.mark.parametrize("module", [vicinal])
def test_what_the_documentation_shows_is_true(module: object) -> None:
    found = doctest.testmod(module)  # type: ignore[arg-type]
    assert (found.failed, found.attempted > 0) == (0, True)


def test_a_wrong_example_would_be_noticed() -> None:
    """Negative control."""
    wrong = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, 0)
    runner = doctest.DocTestRunner(verbose=False)
    assert runner.run(wrong, out=lambda _: None).failed == 1
