"""Ids, labels and metadata that hold HTML, turn the text around them or never end: they stand as text."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import Page, expect

from tests.browsers import findings, fits
from tests.service.page.conftest import OpenPlace, Served
from vicinal.service.jobs.records import JobFailure, JobProgress

pytestmark = pytest.mark.slow

MARKUP = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"
TURNED = "abc\u202egpj.exe\u2066"
LONG = "w" * 10_000
HOSTILE = f"{MARKUP} {TURNED} "
LABEL = f"<b>label</b> {TURNED} {LONG[:900]}"
# All that a person may have open of one gallery, and beside it.
PLACES = (
    "galleries",
    "g/demo",
    "g/demo/search?item={id}",
    "g/demo/add",
    "g/demo/review",
    "g/demo/pairs",
    "g/demo/calibrate",
    "g/demo/doubles",
    "jobs",
    "jobs/{job}",
)


def is_text(page: Page) -> bool:
    """Tell whether nothing of what was given became an element, and nothing ran or turns its surroundings."""
    taken: int = page.evaluate(
        """(marks) => document.querySelectorAll('img[src="x"], main script, [onerror], .jobs-one b').length
          + (document.title.includes('taken') ? 1 : 0)
          + marks.filter((one) => document.body.innerText.includes(one)).length""",
        ["\u202e", "\u2066"],
    )
    return taken == 0


def test_what_anybody_may_have_written_stands_as_text(demo: Served, open_place: OpenPlace) -> None:
    content = demo.made.queries[0].read_bytes()
    metadata = {MARKUP: HOSTILE, "long": LONG, "deep": {"<i>": [MARKUP]}}
    hostile_id = f"{MARKUP}{TURNED}.jpg"
    answer = demo.call(
        "POST",
        "v1/galleries/demo/items",
        files={"image": (f"{MARKUP}.jpg", content, "image/jpeg")},
        data={"id": hostile_id, "label": LABEL, "metadata": json.dumps(metadata)},
    )
    assert answer["refused"] == []
    job = failed_job(demo)
    page = open_place(demo.url, "galleries", width=360, expects=("404",))
    for place in PLACES:
        page.goto(f"{demo.url}/#/" + place.format(id="backpack-01/1.jpg", job=job))
        expect(page.locator("main h1").first).to_be_visible()
        expect(page.locator("main .waiting")).to_have_count(0)
        assert is_text(page), place
        assert fits(page), place
    page.get_by_role("alert").wait_for()
    expect(page.locator("main")).to_contain_text("<img src=x onerror=")
    expect(page.locator("main")).to_contain_text("\\u{202e}")
    assert findings(page) == []


def test_an_item_with_such_an_id_is_searched_with(demo: Served, open_place: OpenPlace) -> None:
    content = demo.made.queries[0].read_bytes()
    demo.call(
        "POST",
        "v1/galleries/demo/items",
        files={"image": ("a.jpg", content, "image/jpeg")},
        data={"id": f"{MARKUP}{TURNED}", "label": LABEL},
    )
    page = open_place(demo.url, "g/demo/search", width=360)
    page.locator("input[type=file]").first.set_input_files(demo.made.queries[0])
    first = page.locator(".search-result").first
    expect(first).to_contain_text("<b>label</b> abc\\u{202e}gpj.exe")
    assert is_text(page)
    assert fits(page)
    first.get_by_role("button", name="Search with").click()
    expect(page).to_have_url(re.compile("item="))
    expect(page.locator(".search-result").first).to_be_visible()
    assert is_text(page)


def failed_job(served: Served) -> str:
    """A job with hostile words in all that people read of it."""
    from tests.service.page.test_jobs import jobs_of, running

    jobs = jobs_of(served)
    failure = JobFailure(id=HOSTILE, path=f"{HOSTILE}{LONG}", reason=HOSTILE)
    progress = JobProgress(total=2, done=1, failed=1, failures=(failure,))
    job = running(jobs, "demo", {MARKUP: HOSTILE, "source": LONG})
    jobs.finish(job, state="failed", progress=progress, problem=f"{HOSTILE}{LONG}")
    return job.id
