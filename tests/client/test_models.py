"""Models: what they read is what the API document says is sent; and they take more than that."""

from __future__ import annotations

from datetime import datetime

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError

from client.generate import MODELS
from tests.client.openapi import SCHEMAS, complaints, example
from vicinal_client import models
from vicinal_client.models import Answer, Candidate, Gallery, Item, Job, JobProgress, Limits, Readiness

SCHEMA_OF = {model: SCHEMAS[schema] for schema, model in MODELS.items()}


@pytest.mark.parametrize("name", models.__all__)
def test_a_model_reads_what_the_server_sends(name: str) -> None:
    model: type[BaseModel] = getattr(models, name)
    assert list(complaints(model.model_json_schema(), SCHEMA_OF[name], name)) == []


@pytest.mark.parametrize("name", models.__all__)
def test_a_model_reads_an_example_and_keeps_what_it_does_not_know(name: str) -> None:
    model: type[BaseModel] = getattr(models, name)
    sent = example(SCHEMA_OF[name]) | {"of_a_newer_server": [1]}
    read = model.model_validate(sent)
    assert read.model_extra is not None
    assert read.model_extra["of_a_newer_server"] == [1]
    with pytest.raises(ValidationError, match="frozen"):
        setattr(read, next(iter(model.model_fields)), None)


class Wrong(BaseModel):
    """Negative controls: read as `ItemBody`, which has id, label, uri and metadata."""

    model_config = ConfigDict(extra="allow")


class Unknown(Wrong):
    color: str = ""


class OtherType(Wrong):
    id: int


class NotNull(Wrong):
    label: str


class OtherValues(Wrong):
    next: list[str] | None


@pytest.mark.parametrize(
    ("model", "schema", "found"),
    [
        (Unknown, "ItemBody", ["x.color is not sent"]),
        (OtherType, "ItemBody", ["x.id may be string, integer is read"]),
        (NotNull, "ItemBody", ["x.label may be null, string is read"]),
        (OtherValues, "ItemPageBody", ["x.next may be string"]),
        (Item, "ItemBody", []),
    ],
)
def test_the_check_sees_a_wrong_model(model: type[BaseModel], schema: str, found: list[str]) -> None:
    assert list(complaints(model.model_json_schema(), SCHEMAS[schema], "x")) == found


def test_the_check_sees_what_may_be_left_out_and_what_is_inside() -> None:
    """Negative controls."""

    class Part(BaseModel):
        stage: str
        failures: list[int]

    class Whole(BaseModel):
        state: str
        progress: Part
        problem_members: dict[str, int] = {}
        created_at: datetime | None = None
        started_at: str = ""

    assert list(complaints(Whole.model_json_schema(), SCHEMAS["Job"], "job")) == [
        "job.state may be left out",
        "job.progress may be left out",
        "job.progress.stage may be left out",
        "job.progress.stage may be null, string is read",
        "job.progress.failures may be left out",
        "job.progress.failures[] may be object, integer is read",
        "job.started_at may be null, string is read",
    ]


def test_defaults_that_stand_for_what_an_older_server_leaves_out() -> None:
    """They are the server's own."""
    sent = SCHEMAS["Job"]["properties"]
    assert {name: Job.model_fields[name].default for name in ("state", "revision", "attempt")} == {
        name: sent[name]["default"] for name in ("state", "revision", "attempt")
    }
    assert JobProgress().model_dump() == JobProgress.model_validate(sent["progress"]["default"]).model_dump()
    readiness = {name: one for name, one in example(SCHEMAS["ReadinessBody"]).items() if name != "limits"}
    assert Readiness.model_validate(readiness).limits == Limits()


@pytest.mark.parametrize(
    ("state", "is_final"),
    [("queued", False), ("running", False), ("succeeded", True), ("failed", True), ("cancelled", True)],
)
def test_a_job_knows_whether_it_is_over(state: str, is_final: bool) -> None:
    assert Job(id="7", kind="fit", gallery="shop", request={}, state=state).is_final is is_final


def test_a_choice_that_is_new_is_no_error() -> None:
    sent = example(SCHEMAS["Answer"])
    sent["threshold"]["state"] = sent["pipeline_source"] = "something new"
    assert Answer.model_validate(sent).threshold.state == "something new"


def test_a_number_that_is_none_is_refused() -> None:
    for model, schema, name in ((Gallery, "GalleryBody", "n_items"), (Candidate, "Candidate", "score")):
        with pytest.raises(ValidationError):
            model.model_validate(example(SCHEMAS[schema]) | {name: "many"})
