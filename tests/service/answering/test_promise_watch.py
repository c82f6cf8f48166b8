"""Promise watch: a promise that answers contradict is broken at once, everywhere, and mended by them too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from tests.service.answering.conftest import Kept
from tests.service.types import Calibrate, MakeSettings, Run
from vicinal.indexer.gallery import Gallery
from vicinal.service.answering.promise_watch import try_promise
from vicinal.service.cli import app as cli
from vicinal.service.http.app import create_app
from vicinal.service.measuring.matcher import Matcher


@pytest.fixture
def record_id(gallery: Gallery, calibrate: Calibrate) -> str:
    return calibrate(gallery)


def contradict(kept: Kept) -> list[int]:
    """Answers that name another label than the one that is found."""
    kept.store.draw([one.id for one in kept.searches])
    other = [*kept.labels[2:20], *kept.labels[:2]]
    return [
        kept.store.answer(one.id, "label", by="anna", label=label).number
        for one, label in zip(kept.searches, other, strict=False)
    ]


def state_of_threshold(matcher: Matcher) -> tuple[str, str | None]:
    found = matcher.thresholds.in_force(matcher.pipeline)
    return found.state, found.reason


def test_answers_that_contradict_a_promise_break_it_at_once(
    kept: Kept, matcher: Matcher, record_id: str
) -> None:
    contradict(kept)
    found = try_promise(matcher)
    assert found is not None
    assert (found.verdict, found.source, found.calibration) == ("broken", "searches", record_id)
    assert "of 100 searches with photos of things you have, about 0 were found (20 answers)" in found.sentence
    state, reason = state_of_threshold(matcher)
    assert state == "broken"
    assert found.sentence in reason
    assert reason.endswith("with the answers to searches by `vicinal calibrate -g shoes --answers`")


def test_answers_that_agree_hold_it_and_those_taken_back_count_no_more(
    kept: Kept, matcher: Matcher, record_id: str
) -> None:
    for number in contradict(kept):
        kept.store.take_back(number)
    kept.answer(range(4))
    contradict(kept)
    assert try_promise(matcher).verdict == "broken"
    kept.answer()
    found = try_promise(matcher)
    assert found.verdict != "broken"
    assert state_of_threshold(matcher)[0] == "current"


def test_what_labelled_photos_broke_is_not_mended_by_a_few_answers(
    kept: Kept, matcher: Matcher, record_id: str
) -> None:
    kept.answer([0, 20, 21])
    unclear = try_promise(matcher)
    assert unclear.verdict == "unclear"
    broken = unclear.model_copy(update={"verdict": "broken", "source": "queries"})
    matcher.calibrations.keep_check(broken)
    assert try_promise(matcher).verdict == "unclear"
    assert state_of_threshold(matcher)[0] == "broken"


def test_nothing_is_tried_where_nothing_was_promised_or_answered(kept: Kept, matcher: Matcher) -> None:
    kept.answer()
    assert try_promise(matcher) is None
    matcher.thresholds.set_by_hand(matcher.pipeline, 0.7)
    assert try_promise(matcher) is None


@pytest.mark.slow
def test_commands_calibrate_and_check_by_answers(run: Run, kept: Kept, record_id: str) -> None:
    contradict(kept)
    checked = CliRunner().invoke(cli, ["calibration", "check", "-g", "shoes", "--answers"])
    assert checked.exit_code == 1
    first = checked.stdout.splitlines()[0]
    assert first.startswith("What was promised does NOT hold: ")
    assert first.endswith("calibrate with these answers: vicinal calibrate --answers -g shoes")
    kept.answer()
    found = json.loads(run("calibrate", "-g", "shoes", "--answers", "--json").stdout)
    assert found["source"] == "searches"
    shown = run("gallery", "show", "shoes").stdout
    assert "This rests on answers to 44 of 44 kept searches" in shown
    again = run("calibration", "check", "-g", "shoes", "--answers").stdout
    assert again.startswith(("What was promised holds so far", "Whether what was promised"))


@pytest.mark.slow
def test_an_answer_over_http_breaks_it(
    kept: Kept, record_id: str, data_dir: Path, make_settings: MakeSettings, wait_until
) -> None:
    contradict(kept)
    app = create_app(make_settings(data_dir))
    with TestClient(app) as client:
        body = {"search_id": kept.searches[0].id, "label": "plain"}
        assert client.post("/v1/galleries/shoes/answers", json=body).status_code == 200
        address = f"/v1/admin/galleries/shoes/calibrations/{record_id}"
        wait_until(lambda: client.get(address).json()["state"] == "broken")
