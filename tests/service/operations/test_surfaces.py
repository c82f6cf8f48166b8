"""Surfaces: a field that is added to a request stands on each: command, body, form, job, keyword, client."""

from __future__ import annotations

import threading
from typing import Annotated, Any

import pytest
import typer
from fastapi import FastAPI
from fastapi.testclient import TestClient
from pydantic import Field, StrictInt, create_model
from typer.testing import CliRunner

from client import generate
from tests.service.types import MakeSettings
from vicinal.service.checked_calls import checked_options
from vicinal.service.errors import RequestError
from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.jobs.records import new_job
from vicinal.service.jobs.runner import JobContext
from vicinal.service.jobs.store import JobStore
from vicinal.service.operations import Operation, Progress
from vicinal.service.operations.place import Place
from vicinal.service.request_fields import CommandOption, QuerySource, RequestFields
from vicinal.service.surfaces.command_line import from_options
from vicinal.service.surfaces.jobs import OperationJob
from vicinal.service.surfaces.query_uploads import form_of


class Dig(RequestFields):
    """A toy."""

    where: str = Field("garden", description="Where to dig.")


# What a colleague would write: a line in the class.
Deeper: type[Dig] = create_model(
    "Deeper", __base__=Dig, depth=(StrictInt, Field(3, ge=1, le=9, description="How deep to dig."))
)
SURFACES = ["command", "body", "form", "job", "keyword"]


def by_command(model: type[RequestFields], fields: dict[str, Any]) -> RequestFields:
    found = []

    def dig(request: RequestFields) -> None:
        found.append(request)

    dig.__annotations__ = {"request": model}
    app = typer.Typer()
    app.command()(from_options(dig))
    words = [word for name, value in fields.items() for word in (f"--{name}", str(value))]
    result = CliRunner().invoke(app, words)
    if result.exit_code:
        raise ValueError(result.output)
    return found[0]


def by_body(model: type[RequestFields], fields: dict[str, Any]) -> RequestFields:
    found = []
    app = FastAPI()

    def dig(request: RequestFields) -> None:
        found.append(request)

    dig.__annotations__ = {"request": model}
    app.post("/")(dig)
    answer = TestClient(app).post("/", json=fields)
    if answer.status_code != 200:
        raise ValueError(answer.text)
    return found[0]


def by_form(model: type[RequestFields], fields: dict[str, Any]) -> RequestFields:
    known = form_of(model)
    if not fields.keys() <= known.keys():
        raise ValueError(f"expected {', '.join(known)}")
    return model.model_validate_strings({name: str(value) for name, value in fields.items()})


def by_keyword(model: type[RequestFields], fields: dict[str, Any]) -> RequestFields:
    return checked_options(model, fields)


@pytest.fixture
def by_job(make_settings: MakeSettings, data_dir: Any) -> Any:
    settings = make_settings(data_dir)

    def run(model: type[RequestFields], fields: dict[str, Any]) -> RequestFields:
        found = []

        def dig(place: Place, request: RequestFields, progress: Progress) -> RequestFields:
            progress("dig", 1, 1)
            found.append((place.id, request))
            return request

        job = new_job("dig", "shoes", fields)
        store = JobStore(settings.data_dir)
        store.create(job)
        context = JobContext(store.claim("w", 60.0), store, threading.Event())
        kind = OperationJob(Operation("dig", model, dig), ServedBundles(settings))
        assert kind.run(context) == model(**fields).model_dump(mode="json")
        assert context.job.progress.stage == "dig"
        ((made, request),) = found
        assert made == job.id
        return request

    return run


@pytest.fixture
def asked(request: pytest.FixtureRequest, by_job: Any) -> Any:
    ways = {"command": by_command, "body": by_body, "form": by_form, "job": by_job, "keyword": by_keyword}
    return ways[request.param]


@pytest.mark.parametrize("asked", SURFACES, indirect=True)
def test_a_field_that_is_added_stands_on_every_surface(asked: Any) -> None:
    assert asked(Deeper, {"depth": 5}) == Deeper(where="garden", depth=5)  # type: ignore[call-arg]


@pytest.mark.parametrize("asked", SURFACES, indirect=True)
def test_without_it_every_surface_refuses_it(asked: Any) -> None:
    """Negative control."""
    with pytest.raises((ValueError, RequestError)):
        asked(Dig, {"depth": 5})


@pytest.mark.parametrize("asked", SURFACES, indirect=True)
def test_its_range_holds_everywhere(asked: Any) -> None:
    with pytest.raises((ValueError, RequestError)):
        asked(Deeper, {"depth": 10})


def test_its_words_are_told_everywhere() -> None:
    app = typer.Typer()

    def dig(request: RequestFields) -> None:
        """Nothing is dug."""

    dig.__annotations__ = {"request": Deeper}
    app.command()(from_options(dig))
    told = " ".join(CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).output.split())
    assert all(word in told for word in ("--depth", "How deep to dig.", "1<=x<=9", "default: 3"))
    assert form_of(Deeper)["depth"]["description"] == "How deep to dig."
    assert Deeper.model_json_schema()["properties"]["depth"] == form_of(Deeper)["depth"]


@pytest.mark.parametrize("model", [Dig, Deeper])
def test_the_options_of_the_client_have_it(
    model: type[RequestFields], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = FastAPI()

    def dig(request: RequestFields) -> None:
        """Nothing is dug."""

    dig.__annotations__ = {"request": model}
    app.post("/", operation_id="dig")(dig)
    monkeypatch.setattr(generate, "OPTIONS", {"DigOptions": ("dig", "", set())})
    text = generate._options(app.openapi())
    assert ("    depth: int | None" in text, "depth: How deep to dig." in text) == (model is Deeper,) * 2


class Told(RequestFields):
    """What the command line says in its own words."""

    command_order = ("first",)
    near: Annotated[str | None, CommandOption("For people.", "--close", metavar="PLACE")] = Field(
        None, description="For programs."
    )
    table: Annotated[dict[str, str] | None, CommandOption(kind=str, read=lambda text: {"a": text})] = None
    hidden: Annotated[int, CommandOption(is_hidden=True)] = 1
    first: Annotated[str, CommandOption(default=...)] = "-"


def test_a_form_has_no_source_and_no_table() -> None:
    class Both(QuerySource, Told):
        pass

    assert {*form_of(Both)} == {"near", "hidden", "first"}
