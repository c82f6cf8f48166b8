"""Problem types: every error of the project has one, so that none of them is told as an internal error."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import pytest

import vicinal
from vicinal.models.errors import ImageError
from vicinal.service.errors import RecordNotFoundError, RequestError, ServiceError
from vicinal.service.problem_types import ERRORS, PREFIX, PROBLEMS, problem_type


class DanceError(ServiceError):
    """Negative control: nobody gave it a problem type."""


def modules_of_errors() -> list[str]:
    found = pkgutil.walk_packages(vicinal.__path__, "vicinal.")
    return [one.name for one in found if one.name.endswith(".errors")]


def classes_below(root: type[Exception]) -> Iterator[type[Exception]]:
    for one in root.__subclasses__():
        yield one
        yield from classes_below(one)


def classes_without_type(classes: list[type[Exception]]) -> list[str]:
    return [one.__name__ for one in classes if not any(base in PROBLEMS for base in one.__mro__)]


def test_every_error_class_has_a_problem_type() -> None:
    for name in modules_of_errors():
        importlib.import_module(name)
    bases = DanceError, RecordNotFoundError  # the second is raised by the kinds of records below it
    classes = [one for root in ERRORS for one in classes_below(root) if one not in bases]
    assert len(classes) > 40
    assert classes_without_type(classes) == []


def test_the_check_of_the_classes_sees_one_without_a_type() -> None:
    """Negative control."""
    assert classes_without_type([RequestError, DanceError]) == ["DanceError"]


@pytest.mark.slow
def test_every_module_of_errors_is_below_the_roots() -> None:
    """An error that no root catches would be a traceback on the command line."""
    modules = [importlib.import_module(name) for name in modules_of_errors()]
    classes = [
        one
        for module in modules
        for one in vars(module).values()
        if isinstance(one, type) and one.__module__ == module.__name__
    ]
    assert len(modules) == 5
    assert len(classes) > 50
    assert [one.__name__ for one in classes if not issubclass(one, ERRORS)] == []


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (RequestError("x"), "invalid-request"),
        (type("BlurredError", (ImageError,), {})("x"), "not-an-image"),
        (DanceError("x"), "internal-error"),
        (KeyError("x"), "internal-error"),
    ],
)
def test_an_error_has_the_type_of_its_nearest_base(error: Exception, kind: str) -> None:
    assert problem_type(error) == PREFIX + kind
