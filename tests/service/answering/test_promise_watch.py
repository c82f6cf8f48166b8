"""Promise watch: a promise that answers contradict is broken at once, everywhere, and mended by them too."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from tests.service.answering.conftest import Kept
from tests.service.types import Calibrate, MakeSettings, Run
from vicinal.indexer.gallery import Gallery
from vicinal.service.answering.promise_watch import PromiseWatch, try_promise
from vicinal.service.cli import app as cli
from vicinal.service.http.app import create_app
from vicinal.service.http.state import state_of
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


def test_volunteered_answers_try_nothing(kept: Kept, matcher: Matcher, record_id: str) -> None:
    kept.answer(draw=False)
    assert try_promise(matcher) is None
    record = matcher.calibrations.get(record_id)
    assert matcher.calibrations.last_check(record) is None


def test_a_running_service_tells_it_everywhere(
    kept: Kept, record_id: str, data_dir: Path, make_settings: MakeSettings, wait_until
) -> None:
    app = create_app(make_settings(data_dir))
    with TestClient(app) as client:
        state = state_of(app)
        contradict(kept)
        state.promises.answered("shoes")

        wait_until(lambda: state_of_threshold(state.galleries.matcher("shoes"))[0] == "broken")
        shown = client.get(f"/v1/admin/galleries/shoes/calibrations/{record_id}").json()
        assert shown["state"] == "broken"
        assert shown["last_check"]["source"] == "searches"


def test_a_try_that_fails_is_told_and_the_next_answer_tries_again(
    kept: Kept, matcher: Matcher, record_id: str, wait_until, caplog: pytest.LogCaptureFixture
) -> None:
    contradict(kept)
    found = [RuntimeError("gone for a moment"), matcher]

    def find(_: str) -> Matcher:
        one = found.pop(0)
        if isinstance(one, Exception):
            raise one
        return one

    with caplog.at_level(logging.WARNING), PromiseWatch(find) as watch:
        watch.answered("shoes")
        wait_until(lambda: "cannot be tried: gone for a moment" in caplog.text)
        watch.answered("shoes")
    assert state_of_threshold(matcher)[0] == "broken"


def test_what_came_before_the_end_is_tried(kept: Kept, matcher: Matcher, record_id: str) -> None:
    contradict(kept)
    watch = PromiseWatch(lambda _: matcher)
    # Nobody is told before it runs.
    watch.answered("shoes")
    with watch:
        watch.answered("shoes")
    assert state_of_threshold(matcher)[0] == "broken"


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
def test_the_command_of_reviews_says_what_an_answer_breaks(
    cli_environment: None, kept: Kept, record_id: str
) -> None:
    contradict(kept)
    answer = ["review", "-g", "shoes", "--answer", kept.searches[0].id, "label=plain", "--json"]
    said = CliRunner().invoke(cli, answer)
    assert said.exit_code == 0
    assert json.loads(said.stdout)["kind"] == "label"
    assert said.stderr.startswith("What was promised does NOT hold: ")


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


@pytest.mark.slow
def test_commands_say_what_does_not_go_together(fail, kept: Kept, record_id: str, catalog: Path) -> None:
    said = fail("calibrate", "-g", "shoes", "--answers")
    assert "no answer to a search of gallery 'shoes' can be used" in said
    assert "vicinal review" in said
    both = fail("calibrate", "-g", "shoes", "--answers", "--queries", catalog)
    assert "name one of them" in both
    both = fail("calibration", "check", "-g", "shoes", "--answers", "--queries", catalog)
    assert "name one of them" in both
    neither = fail("calibration", "check", "-g", "shoes")
    assert "name queries, or answers to kept searches" in neither


def test_a_watch_that_is_entered_twice_ends_twice() -> None:
    """As where a client in the process opens the application of a server that runs."""
    watch = PromiseWatch(lambda _: pytest.fail("nothing was answered"))
    with watch:
        first = watch._thread
        with watch:
            second = watch._thread
    assert first is not None
    assert second is not None
    first.join(10.0)
    assert [first.is_alive(), second.is_alive()] == [False, False]
