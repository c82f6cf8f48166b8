"""Models: what they read is what the API document says is sent; and they take more than that."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, ValidationError

from client.generate import MODELS
from tests.client.openapi import SCHEMAS, example
from vicinal_client import models
from vicinal_client.models import Answer, Job, JobProgress, Limits, Readiness

SCHEMA_OF = {model: SCHEMAS[schema] for schema, model in MODELS.items()}


@pytest.mark.parametrize("name", models.__all__)
def test_a_model_reads_an_example_and_keeps_what_it_does_not_know(name: str) -> None:
    model: type[BaseModel] = getattr(models, name)
    sent = example(SCHEMA_OF[name]) | {"of_a_newer_server": [1]}
    read = model.model_validate(sent)
    assert read.model_extra is not None
    assert read.model_extra["of_a_newer_server"] == [1]
    with pytest.raises(ValidationError, match="frozen"):
        setattr(read, next(iter(model.model_fields)), None)


def test_defaults_that_stand_for_what_an_older_server_leaves_out() -> None:
    """They are the server's own."""
    sent = SCHEMAS["Job"]["properties"]
    assert {name: Job.model_fields[name].default for name in ("state", "revision", "attempt")} == {
        name: sent[name]["default"] for name in ("state", "revision", "attempt")
    }
    assert JobProgress().model_dump() == JobProgress.model_validate(sent["progress"]["default"]).model_dump()
    readiness = {name: one for name, one in example(SCHEMAS["ReadinessBody"]).items() if name != "limits"}
    assert Readiness.model_validate(readiness).limits == Limits()


def test_a_choice_that_is_new_is_no_error() -> None:
    sent = example(SCHEMAS["Answer"])
    sent["threshold"]["state"] = sent["pipeline_source"] = "something new"
    assert Answer.model_validate(sent).threshold.state == "something new"
