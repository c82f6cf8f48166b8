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
    """Operation, as the surfaces take it: `require` refuses before it waits, `keep` keeps a job's result,
    `told` says it. A job that `goes_on` is tried again; `clean` removes what it kept for that.
    """

    name: str
    request: type[Asked]
    run: Callable[[Place, Asked, Progress], Made]
    require: Callable[[Place, Asked], None] = _nothing
    keep: Callable[[Place, Made], None] | None = None
    told: Callable[[Place, Made], dict[str, Any]] = _fields_of
    clean: Callable[[Place, Job], None] = _nothing
    goes_on: bool = False
