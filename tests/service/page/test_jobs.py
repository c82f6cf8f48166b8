"""Jobs on the page: begun, followed live, cancelled, gone on with, and what they could not use."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from tests.service.page.conftest import ADMIN, OpenPlace, Served
from vicinal.indexer.state import schema
from vicinal.service.jobs.records import Job, JobFailure, JobProgress, new_job
from vicinal.service.jobs.store import JobStore, _row

pytestmark = pytest.mark.slow


def jobs_of(served: Served) -> JobStore:
    """The jobs of a server, as a worker of another process sees them."""
    return JobStore(served.data_dir)


def running(jobs: JobStore, gallery: str = "demo", request: Any = None, **changes: Any) -> Job:
    """A job that somebody else works on: no worker of the server takes it."""
    job = new_job("reindex", gallery, request or {"source": "photos"})
    progress = JobProgress(
        stage="embed", stage_done=120, stage_total=400, total=400, done=120, seconds_left=70
    )
    told = {"state": "running", "attempt": 1, "revision": 1, "progress": progress} | changes
    with jobs.state.changing() as rows:
        row = _row(job.model_copy(update=told))
        rows.add(schema.jobs, {**row, "lease_until": rows.now() + 3600})
    return jobs.get(job.id)


def failures(n: int) -> list[JobFailure]:
    return [JobFailure(id=f"{i}", path=f"shop/<b>{i}</b>.jpg", reason="it is no image") for i in range(n)]


def test_a_job_is_begun_and_followed_with_a_key(shop_with_keys: Served, open_place: OpenPlace) -> None:
    page = open_place(shop_with_keys.url, "jobs", scheme="dark", key=ADMIN)
    expect(page.get_by_role("heading", name="No job yet")).to_be_visible()
    page.get_by_role("button", name="Start a job").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Start").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Build again")
    expect(page.get_by_role("link", name="Show the photos")).to_be_visible(timeout=30_000)
    expect(page.locator("main .tag")).to_have_text("Done")
    page.get_by_text("Log", exact=True).click()
    lines = page.locator(".jobs-log li")
    expect(lines.first).to_contain_text("Begun")
    expect(lines.last).to_contain_text("Done")
    page.get_by_role("link", name="All jobs").click()
    expect(page.locator(".jobs-past li")).to_have_count(1)
    page.get_by_label("State").select_option(label="Failed")
    expect(page.get_by_role("heading", name="No such job")).to_be_visible()


def test_progress_is_live_and_a_job_is_cancelled_and_gone_on_with(
    demo: Served, open_place: OpenPlace
) -> None:
    jobs = jobs_of(demo)
    job = running(jobs)
    page = open_place(demo.url, "jobs", expects=("422",))
    bar = page.locator(".jobs-under-way .progress")
    expect(bar).to_contain_text("Reading photos")
    expect(bar).to_contain_text("120 of 400, about 70 seconds left")
    jobs.tell(jobs.get(job.id), progress=JobProgress(stage="publish", stage_done=1, stage_total=2))
    expect(bar).to_contain_text("Making it searchable")
    page.locator(".jobs-under-way").get_by_role("link").click()
    page.get_by_role("button", name="Cancel this job").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel the job").click()
    expect(page.get_by_role("button", name="Stopping…")).to_be_disabled()
    assert jobs.get(job.id).cancel_requested
    jobs.finish(jobs.get(job.id), state="cancelled")
    page.get_by_role("button", name="Go on with it").click()
    # The source that it took is none here.
    expect(page.get_by_role("status").filter(has_text="sources")).to_be_visible()
    expect(page.locator("main .tag")).to_have_text("Cancelled")


def test_a_failed_job_says_why_and_which_files_it_could_not_use(demo: Served, open_place: OpenPlace) -> None:
    jobs, all_of_them = jobs_of(demo), failures(145)
    progress = JobProgress(total=300, done=155, failed=145, failures=tuple(all_of_them[:20]))
    job = running(jobs, progress=progress)
    jobs.keep_list(job.id, "failures", [one.model_dump() for one in all_of_them])
    jobs.finish(job, state="failed", problem="145 of 300 images cannot be used: <i>too many</i>")
    page = open_place(demo.url, f"jobs/{job.id}", width=360)
    expect(page.get_by_role("alert")).to_have_text(
        "✕It failed. 145 of 300 images cannot be used: <i>too many</i>."
    )
    listed = page.locator(".jobs-failures li")
    expect(listed).to_have_count(20)
    expect(listed.nth(3)).to_contain_text("shop/<b>3</b>.jpg")
    page.get_by_role("button", name="Show more").click()
    expect(listed).to_have_count(100)
    page.get_by_role("button", name="Show more").click()
    expect(listed).to_have_count(145)
    expect(page.get_by_role("button", name="Show more")).to_have_count(0)
