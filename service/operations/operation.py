"""Operation: a request and what carries it out, whoever asks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic import BaseModel

from vicinal.service.operations.place import Progress

if TYPE_CHECKING:
    from vicinal.service.jobs.records import Job
    from vicinal.service.operations.place import Place

Asked = TypeVar("Asked", bound=BaseModel)
Made = TypeVar("Made")


def _nothing(*_: Any) -> None:
    pass


def _fields_of(_: Any, made: Any) -> dict[str, Any]:
    return dict(made.model_dump(mode="json"))


@dataclass(frozen=True)
class Operation(Generic[Asked, Made]):
    """An operation, as the surfaces take it.

    Attributes:
        run: Does it. In a job that runs again after the death of its worker it does nothing twice.
        require: Refuses what cannot work before it waits in the queue.
        keep: Keeps what a job has made, where `run` does not; others are given it.
        told: What the result of a job says; all that a model holds by default.
        clean: Removes what a job kept for another attempt, when there will be none.
        goes_on: Whether a job goes on where the attempt before was, and is tried again while that holds the
            gallery.
    """

    name: str
    request: type[Asked]
    run: Callable[[Place, Asked, Progress], Made]
    require: Callable[[Place, Asked], None] = _nothing
    keep: Callable[[Place, Made], None] | None = None
    told: Callable[[Place, Made], dict[str, Any]] = _fields_of
    clean: Callable[[Place, Job], None] = _nothing
    goes_on: bool = False
