"""Errors: one tree; a problem has its status, name and members, and a lost connection is one of ours."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import httpx
import pytest

from tests.client.conftest import Either, problem
from vicinal.service.problem_types import PROBLEMS
from vicinal_client import errors
from vicinal_client.errors import (
    AccessError,
    ConflictError,
    InvalidRequestError,
    NoAnswerError,
    NotFoundError,
    ServerError,
    TimeLimitError,
    TooManyRequestsError,
    UnreadableAnswerError,
    VicinalError,
    lost_connection,
    problem_of,
)

CLASSES = {
    400: InvalidRequestError,
    401: AccessError,
    403: AccessError,
    404: NotFoundError,
    409: ConflictError,
    408: InvalidRequestError,
    413: InvalidRequestError,
    415: InvalidRequestError,
    422: InvalidRequestError,
    429: TooManyRequestsError,
    500: ServerError,
    501: ServerError,
    503: ServerError,
    507: ServerError,
}


@pytest.mark.parametrize(("status", "kind"), sorted(set(PROBLEMS.values())))
def test_every_problem_of_the_server_has_a_class(status: int, kind: str) -> None:
    error = problem_of(problem(status, kind, "because"))
    assert (type(error), error.status, error.kind, error.detail) == (CLASSES[status], status, kind, "because")


def test_all_errors_are_in_one_tree() -> None:
    classes = [
        one for _, one in inspect.getmembers(errors, inspect.isclass) if one.__module__ == errors.__name__
    ]
    assert [one.__name__ for one in classes if not issubclass(one, VicinalError)] == []


@pytest.mark.parametrize(
    ("members", "ids"),
    [
        ({}, []),
        ({"id": "a"}, ["a"]),
        ({"ids": ["a", "b"]}, ["a", "b"]),
        ({"errors": [{"id": "a", "reason": "x"}, {"id": "b"}, {"id": "a"}]}, ["a", "b"]),
        ({"errors": [{"field": "limit", "reason": "x"}]}, []),
        ({"errors": "no list"}, []),
    ],
)
def test_a_problem_names_its_items(members: dict[str, object], ids: list[str]) -> None:
    assert problem_of(problem(409, "item-exists", **members)).item_ids == ids


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(502, text="<html>Bad Gateway</html>", headers={"content-type": "text/html"}),
        httpx.Response(502, text="{", headers={"content-type": "application/problem+json"}),
        httpx.Response(502, text="[1]", headers={"content-type": "application/problem+json"}),
        httpx.Response(502),
    ],
)
def test_a_proxy_that_answers_is_a_problem_without_a_name(answer: httpx.Response) -> None:
    error = problem_of(answer)
    assert (type(error), error.kind) == (ServerError, "")
    assert "502" in str(error)
    assert error.detail


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": " 0 "}, 0.0),
        (
            {"retry-after": "Wed, 21 Oct 2026 07:28:30 GMT", "date": "Wed, 21 Oct 2026 07:28:00 GMT"},
            30.0,
        ),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT", "date": "Wed, 21 Oct 2026 07:28:30 GMT"}, 0.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:30 GMT", "date": "today"}, None),
    ],
)
def test_when_to_come_again_is_seconds_or_a_date(headers: dict[str, str], seconds: float | None) -> None:
    assert problem_of(httpx.Response(429, headers=headers)).retry_after == seconds


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (httpx.ConnectError("refused"), NoAnswerError),
        (httpx.ReadError("reset"), NoAnswerError),
        (httpx.RemoteProtocolError("closed"), NoAnswerError),
        (httpx.ReadTimeout("late"), TimeLimitError),
        (httpx.ConnectTimeout("late"), TimeLimitError),
        (httpx.UnsupportedProtocol("no scheme"), NoAnswerError),
    ],
)
def test_errors_of_httpx_are_ours(
    raised: httpx.TransportError, expected: type[NoAnswerError], connect: Callable[..., Either]
) -> None:
    assert type(lost_connection(raised)) is expected

    def lose(_: httpx.Request) -> httpx.Response:
        raise raised

    with pytest.raises(expected) as lost:
        connect(lose, retries={"attempts": 1}).get_gallery("shop")
    assert lost.value.__cause__ is raised
    assert isinstance(lost.value, ConnectionError)


@pytest.mark.parametrize("body", ["<html>", '{"name": 3}', "null", ""])
def test_an_answer_that_is_none_is_told(body: str, connect: Callable[..., Either]) -> None:
    with pytest.raises(UnreadableAnswerError, match=r"GET /v1/galleries/shop .* no Gallery: "):
        connect(lambda _: httpx.Response(200, text=body)).get_gallery("shop")
