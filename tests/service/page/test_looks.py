"""Every place, and what is busiest in it, on a desk and on a telephone, in every look.

The desk is the demo without keys, the telephone the photos of a shop with a key. What a flow comes by is for
everybody at every width and in both colours: read by all, within the window, pressed by a finger.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browsers import findings, fits, settle, small_targets
from tests.service.page.conftest import ADMIN, OpenPlace, Served, Shot
from tests.service.page.test_jobs import failures, jobs_of, running
from tests.waiting import wait_until
from vicinal.service.jobs.records import JobProgress

pytestmark = pytest.mark.slow

SCHEMES = ("light", "dark")
# Whose walk looks at which widths: together they are all.
WIDTHS = {"desk": (1280, 1920), "phone": (360,)}
WALKS = [("desk", "demo"), ("phone", "shop_with_keys")]
EXPECTED = ("400", "401", "404", "409", "422", "500")


@dataclass(frozen=True)
class Walk:
    """A person at a screen, with what is served."""

    served: Served
    page: Page
    widths: tuple[int, ...]
    shot: Shot
    is_by_touch: bool
    has_keys: bool

    def go(self, place: str) -> None:
        """To a place, in whose address `{g}` is the gallery."""
        self.page.goto(f"{self.served.url}/#/{place.format(g=self.served.gallery)}")
        expect(self.page.locator("main h1, main .fault").first).to_be_visible()

    def press(self, what: str | Locator, role: Any = "button") -> None:
        """By its name, or where there are more."""
        if isinstance(what, str):
            what = (self.dialog if self.dialog.count() else self.page).get_by_role(
                role, name=what, exact=True
            )
        if self.is_by_touch:
            what.tap()
        else:
            what.click()

    @property
    def dialog(self) -> Locator:
        """What is open before all else."""
        return self.page.get_by_role("dialog")

    def call(self, method: str, path: str, **options: Any) -> Any:
        """As `Served.call`, of a path in which `{g}` is the gallery."""
        return self.served.call(method, f"v1/{path.format(g=self.served.gallery)}", **options)

    def look(self, name: str) -> None:
        """What is shown now is for everybody in every look, and is kept as a picture."""
        found = {}
        for width in self.widths:
            self.page.set_viewport_size({"width": width, "height": 800 if width < 640 else 900})
            for scheme in SCHEMES:
                self.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
                settle(self.page)
                wrong = small_targets(self.page)
                if width == self.widths[0]:
                    # In the other scheme only colours are others.
                    rules = () if scheme == SCHEMES[0] else ("color-contrast",)
                    wrong = [*findings(self.page, *rules), *wrong]
                found[name, width, scheme] = wrong if fits(self.page) else [*wrong, "wider than the window"]
                self.shot(self.page, name)
        assert {one: wrong for one, wrong in found.items() if wrong} == {}


@pytest.fixture(params=WALKS, ids="-".join)
def walk(request: pytest.FixtureRequest, shot: Shot) -> Walk:
    screen, name = request.param
    served: Served = request.getfixturevalue(name)
    # After what is served: what begins last ends first, and pages are closed before their server is.
    open_place: OpenPlace = request.getfixturevalue("open_place")
    widths, has_keys = WIDTHS[screen], name.endswith("with_keys")
    page = open_place(served.url, "key", width=widths[0], key=ADMIN if has_keys else None, expects=EXPECTED)
    return Walk(served, page, widths, shot, is_by_touch=screen == "phone", has_keys=has_keys)


def problem(status: int, detail: str, **members: Any) -> dict[str, Any]:
    """What a server answers that refuses something."""
    body = {"type": "urn:vicinal:problem:x", "detail": detail, **members}
    return {"status": status, "content_type": "application/problem+json", "body": json.dumps(body)}


def choose(page: Page, label: str, files: Any) -> None:
    page.get_by_label(label, exact=True).set_input_files(files)


def changed(page: Page, path: str, change: Callable[[Any], Any]) -> None:
    """From now on an answer of the server is another one."""
    page.route(path, lambda route: route.fulfill(json=change(route.fetch().json())))


def test_galleries(walk: Walk) -> None:
    page = walk.page
    walk.go("galleries")
    known = walk.call("GET", "galleries/{g}")
    card = page.get_by_role("listitem").filter(has=page.get_by_role("heading", name=walk.served.gallery))
    expect(card).to_contain_text(f"{known['n_items']} photos · {known['n_labels']} labels")
    expect(card).to_contain_text(known["promise_in_short"])
    if known["standing"]["word"] != "holds":
        expect(card).to_contain_text(known["standing"]["sentence"])
    expect(card.locator("img")).to_have_count(4)
    walk.look("galleries")
    words = ("unsure", "broken", "drifting", "never_measured", "by_hand", "unusable")
    sentence = "Of 24 new photos of things that you have 11 were found, and 21 were promised."

    def more(body: Any) -> Any:
        (one,) = body["galleries"]
        others = [
            {**one, "name": f"{word}-{'gallery' * (n + 1)}", "standing": {"word": word, "sentence": sentence}}
            for n, word in enumerate(words)
        ]
        return {**body, "galleries": [one, *others], "problems": {"torn": "its file active.json is damaged"}}

    changed(page, "**/v1/galleries", more)
    page.reload()
    expect(page.locator(".galleries-card")).to_have_count(8)
    walk.look("galleries-many")
    page.unroute("**/v1/galleries")
    changed(page, "**/v1/galleries", lambda body: {**body, "galleries": []})
    page.reload()
    expect(page.get_by_role("heading", level=1)).to_have_text("Make your first gallery")
    walk.look("galleries-none")


OTHER_PLACES = {
    "make": ("galleries?make=1", "main h1"),
    "add": ("g/{g}/add", "main h1"),
    "review": ("g/{g}/review", ".review-question"),
    "calibrate-figures": ("g/{g}/calibrate?view=figures", ".calibrate-worst"),
    "calibrate-check": ("g/{g}/calibrate?view=check", "main h1"),
    "calibrate-history": ("g/{g}/calibrate?view=history", "main h1"),
    "nowhere": ("nowhere", "main"),
}


def test_other_places(walk: Walk) -> None:
    for name, (place, shown) in OTHER_PLACES.items():
        walk.go(place)
        expect(walk.page.locator(shown).first).to_be_visible()
        walk.look(name)


def test_photos_of_a_gallery(walk: Walk) -> None:
    page = walk.page
    walk.go("g/{g}")
    item = page.locator(".gallery-item")
    expect(item.first.locator("img")).to_be_visible()
    walk.look("gallery")
    walk.press("Choose several")
    walk.press(item.nth(0))
    walk.press(item.nth(2))
    expect(page.get_by_text("2 chosen")).to_be_visible()
    walk.look("gallery-several")
    walk.press("Label")
    expect(walk.dialog.locator(".chip").first).to_be_visible()
    walk.look("gallery-label")
    page.keyboard.press("Escape")
    walk.press("Remove")
    walk.look("gallery-remove")


def test_one_photo(walk: Walk) -> None:
    page = walk.page
    walk.go("g/{g}")
    walk.press(page.locator(".gallery-item").first)
    expect(walk.dialog.get_by_role("link", name="Search with it")).to_be_visible()
    walk.look("item")
    walk.press("Change")
    expect(walk.dialog.locator(".chip").first).to_be_visible()
    walk.look("item-label")
    walk.press("Leave it")
    walk.press("Add a detail")
    page.get_by_label("What it is about").fill("price")
    page.get_by_label("Value").fill("12.5")
    walk.look("item-detail")
    walk.press(walk.dialog.last.get_by_role("button", name="Save"))
    expect(page.get_by_role("button", name="Change price")).to_be_visible()


def test_versions_names_and_storage(walk: Walk) -> None:
    page = walk.page
    item = walk.call("GET", "galleries/{g}/items?size=1")["items"][0]["id"]
    walk.call("PATCH", "galleries/{g}/item", params={"id": item}, json={"label": "another"})
    walk.go("g/{g}")
    page.get_by_label("Find by label or name").fill("nothing such")
    expect(page.get_by_role("heading", name="Nothing has")).to_be_visible()
    walk.look("gallery-nothing")
    walk.go("g/{g}?view=versions")
    walk.press("Make a version of it")
    expect(page.locator(".gallery-versions li")).to_have_count(2)
    walk.look("gallery-versions")
    walk.press("Search this one")
    walk.look("gallery-back")
    walk.press("Search it")
    expect(page.locator(".gallery-versions li").last).to_contain_text("searched now")
    walk.go("g/{g}?view=names")
    page.get_by_label("Another name").fill("live")
    walk.press("Add it")
    expect(page.locator(".gallery-names")).to_contain_text("live")
    page.get_by_label("Another name").fill("Not A Name")
    expect(page.get_by_text("Small letters, digits, dashes")).to_be_visible()
    walk.look("gallery-names")
    walk.go("g/{g}?view=storage")
    expect(page.locator(".gallery-uses")).to_contain_text("MB")
    walk.look("gallery-storage")
    walk.press("Delete this gallery")
    walk.look("gallery-delete")


def test_names_that_are_taken(walk: Walk) -> None:
    page = walk.page
    walk.go("g/{g}/add")
    page.locator("input[type=file][multiple]").first.set_input_files(walk.served.made.queries[7])
    page.get_by_label("What do they show?").fill("a thing")
    walk.look("add-chosen")
    taken = {"place": 0, "type": "urn:vicinal:problem:item-exists", "reason": "it is taken"}
    answer = {"added": [], "unchanged": [], "skipped": [], "refused": [taken]}
    page.route("**/items", lambda route: route.fulfill(json=answer))
    walk.press("Add 1 photo")
    expect(page.get_by_role("region", name="Names that are taken")).to_be_visible()
    walk.look("add-taken")


def search_for(walk: Walk, verdict: str) -> None:
    """Search with the first photo that is answered so."""
    for photo in chain(walk.served.made.queries, walk.served.made.absent):
        files = {"image": (photo.name, photo.read_bytes(), "image/jpeg")}
        if walk.call("POST", "galleries/{g}/search", files=files)["verdict"] == verdict:
            break
    choose(walk.page, "Photo to search with", photo)
    expect(
        walk.page.locator(f".search-verdict.{verdict.replace('match', 'yes').replace('no_yes', 'no')}")
    ).to_be_visible()
    expect(walk.page.locator(".search-found")).to_have_attribute("aria-busy", "false")


def test_searching(walk: Walk) -> None:
    page = walk.page
    walk.go("g/{g}/search")
    expect(page.get_by_role("heading", name="Or try it with a photo of this gallery")).to_be_visible()
    walk.look("search")
    search_for(walk, "unsure")
    walk.look("search-unsure")
    search_for(walk, "no_match")
    walk.press("We do not have it")
    expect(page.locator(".search-asking")).to_contain_text("You said that the gallery does not have it.")
    walk.look("search-no-match")
    search_for(walk, "match")
    walk.press(page.locator(".search-result").first.get_by_role("button", name="Right"))
    expect(page.locator(".notice").last).to_contain_text("Noted: this is it.")
    walk.look("search-match")


def test_filtering_sorting_and_copies(walk: Walk) -> None:
    page = walk.page
    items = walk.call("GET", "galleries/{g}/items?size=300")["items"]
    photo = walk.served.made.queries[1]
    own = [one for one in items if one["label"] == photo.parent.name]
    for number, item in enumerate(own):
        metadata = {"price": 10 * number, "on sale": number % 2 == 0}
        walk.call("PATCH", "galleries/{g}/item", params={"id": item["id"]}, json={"metadata": metadata})
    for copy in ("first copy", "second copy"):
        sent = {"image": (f"{copy}.jpg", photo.read_bytes(), "image/jpeg")}
        walk.call("POST", "galleries/{g}/items", files=sent, data={"id": copy, "label": photo.parent.name})
    walk.go("g/{g}/search")
    choose(page, "Photo to search with", photo)
    show = page.get_by_role("button", name="Show 1 copy")
    walk.press(show)
    expect(page.locator(".search-result .tag").first).to_have_text("a copy")
    walk.look("search-copies")
    walk.press("Filter")
    page.get_by_label("Condition 1: what").select_option("price")
    page.get_by_label("Condition 1: how").select_option("is between")
    page.get_by_label("Condition 1: value").fill("10")
    page.get_by_label("Condition 1: upper value").fill("500")
    walk.press("Add a condition")
    page.get_by_label("Condition 2: what").select_option("on sale")
    page.get_by_label("Condition 2: value").select_option("yes")
    walk.look("search-filter")
    walk.press("Use this filter")
    expect(page.locator(".search-verdict")).to_contain_text("The filter leaves")
    page.get_by_label("Order").select_option("price: highest first")
    expect(page.locator(".search-found")).to_have_attribute("aria-busy", "false")
    walk.look("search-filtered")
    walk.press("Change the filter")
    walk.press("Write it as text")
    page.get_by_label("Filter", exact=True).fill("price < 3")
    walk.look("search-filter-text")
    walk.press("Use this filter")
    expect(page.get_by_role("alert")).to_contain_text("metadata.price")
    walk.look("search-refused")


def test_reviewing_a_list(walk: Walk) -> None:
    page = walk.page
    walk.go("g/{g}/review?shown=all")
    marks = page.get_by_role("checkbox")
    for place in (1, 2):
        walk.press(marks.nth(place))
    expect(page.get_by_role("region", name="Answer for all that are marked")).to_contain_text("2 marked")
    walk.look("review-all")
    walk.press(page.get_by_role("button", name="I can't tell"))
    expect(page.locator(".notice").last).to_contain_text("kept for 2 searches")
    walk.press(page.get_by_role("button", name=re.compile("say what it is")).first)
    expect(walk.dialog.locator(".review-candidate img").first).to_be_visible()
    walk.look("review-one")
    page.keyboard.press("Escape")
    # What the other looks answered may make a match a wrong one.
    changed(page, "**/searches?shown=wrong*", lambda body: {**body, "searches": [], "next": None})
    walk.press("Wrong matches", "tab")
    expect(page.get_by_role("heading", name="No match was called wrong")).to_be_visible()
    walk.look("review-wrong")
    changed(page, "**/answers/next?*", lambda body: {**body, "questions": []})
    walk.press("Next question", "tab")
    expect(page.get_by_role("heading", name="There is nothing left to ask about")).to_be_visible()
    walk.look("review-end")


def test_pairs(walk: Walk) -> None:
    page, labels = walk.page, {}
    for one in walk.call("GET", "galleries/{g}/items?size=1000")["items"]:
        labels[one["id"]] = one["label"]
    path = "admin/galleries/{g}/labelling"
    state = walk.call("POST", path, json={"target": "precision=90%"})
    walk.go("g/{g}/pairs?target=precision%3D90%25")
    expect(page.locator(".pairs-photos img")).to_have_count(2)
    walk.look("pairs")
    n_answers = 0
    # How many it takes follows from what the other looks did with the gallery.
    while n_answers < 39 or (state["estimate"] is None and n_answers < 150):
        (first, second), number = state["questions"][0]["items"], state["questions"][0]["number"]
        body = {"number": number, "same": labels[first] == labels[second]}
        state = walk.call("POST", f"{path}/answers", json=body)
        n_answers += 1
    page.reload()
    (first, second) = state["questions"][0]["items"]
    walk.press(page.get_by_role("button", name="Same" if labels[first] == labels[second] else "Different"))
    expect(page.locator(".head [role=status]")).to_have_text(f"{n_answers + 1} answers")
    expect(page.locator(".pairs-known h2")).to_contain_text("Of 100 matches, about")
    walk.look("pairs-known")
    walk.press("Finish and use this threshold")
    expect(page.locator(".pairs-done")).to_contain_text("This rests on answers about")
    walk.look("pairs-done")


def slide(page: Page, score: float) -> None:
    with page.expect_response("**/dry_run"):
        page.get_by_role("slider").evaluate(
            "(one, to) => { one.value = to; one.dispatchEvent(new Event('input', {bubbles: true})); }", score
        )


def test_calibrating(walk: Walk) -> None:
    page = walk.page
    walk.go("g/{g}/calibrate")
    expect(page.locator(".uplot canvas")).to_be_visible()
    walk.look("calibrate")
    slide(page, 0.45)
    expect(page.locator(".calibrate-moved img").first).to_be_visible()
    walk.look("calibrate-moved")
    page.locator(".calibrate-sides").scroll_into_view_if_needed()
    walk.look("calibrate-sides")
    walk.press("Use this score")
    walk.look("calibrate-use")
    walk.press("Use it")
    expect(page.locator(".calibrate-kept")).to_contain_text("Set by hand")
    walk.look("calibrate-by-hand")


def test_comparing_and_calibrating_again(walk: Walk) -> None:
    page = walk.page
    jobs = jobs_of(walk.served)
    body = {"target": "fpir=20%", "activate": False}
    job = walk.call("POST", "admin/galleries/{g}/calibrations", json=body)
    wait_until(lambda: jobs.get(job["id"]).state == "succeeded")
    walk.go("g/{g}/calibrate?view=history")
    walk.press("Compare")
    expect(page.locator(".calibrate-pair .card")).to_have_count(2)
    walk.look("calibrate-compare")
    walk.go("g/{g}/calibrate?view=history")
    walk.press(page.get_by_role("button", name="Calibrate again"))
    page.get_by_label("Of 100 matches, at least … are right: number").fill("100")
    page.get_by_label("Measured with").select_option("New photos")
    walk.look("calibrate-new")


def test_doubles(walk: Walk) -> None:
    page = walk.page
    for n, photo in enumerate(walk.served.made.queries[:2]):
        for copy in ("", " again"):
            sent = {"image": (photo.name, photo.read_bytes(), "image/jpeg")}
            walk.call(
                "POST", "galleries/{g}/items", files=sent, data={"id": f"folder {n}/{photo.stem}{copy}.jpg"}
            )
    walk.go("g/{g}/doubles")
    page.get_by_label("Also changed copies").uncheck()
    walk.press("Look for doubles")
    groups = page.locator(".doubles-group")
    expect(groups.first).to_be_visible()
    walk.look("doubles")
    page.get_by_label("Of each group keep").select_option("folder")
    page.get_by_text("Folders that are never touched").click()
    walk.press(page.locator(".doubles-rule details .chip").first)
    expect(page.locator(".doubles-photo .tag").filter(has_text="never touched").first).to_be_visible()
    for box in groups.first.get_by_role("checkbox").all():
        box.check()
    expect(groups.first).to_contain_text("No photo of this group would be left")
    walk.look("doubles-rule")
    walk.press(groups.first.locator(".doubles-look").last)
    expect(walk.dialog.locator("img")).to_have_count(2)
    walk.look("doubles-compare")
    walk.press("Done")
    walk.press("Delete ticked")
    walk.look("doubles-delete")
    walk.press(walk.dialog.get_by_role("button", name=re.compile("^Delete ")))
    expect(page.locator(".notice")).to_contain_text("deleted.")


def test_jobs(walk: Walk) -> None:
    page, jobs, gallery = walk.page, jobs_of(walk.served), walk.served.gallery
    walk.go("jobs")
    expect(page.get_by_role("heading", name="No job yet")).to_be_visible()
    walk.look("jobs-none")
    walk.press("Start a job")
    for kind in ("Look for doubles", "Check what was promised", "Build again"):
        walk.dialog.get_by_label("Job").select_option(kind)
        walk.look(f"jobs-start-{kind.split()[0].lower()}")
    walk.press("Start")
    expect(page.get_by_role("link", name="Show the photos")).to_be_visible()
    for summary in page.locator("main summary").all():
        walk.press(summary)
    expect(page.locator(".jobs-log li").first).to_be_visible()
    walk.look("job-done")
    progress = JobProgress(total=300, done=155, failed=145, failures=tuple(failures(20)))
    failed = running(jobs, gallery, progress=progress)
    jobs.finish(failed, state="failed", problem="145 of 300 images cannot be used: too many")
    walk.go(f"jobs/{failed.id}")
    expect(page.locator(".jobs-failures li")).to_have_count(20)
    walk.look("job-failed")
    job = running(jobs, gallery)
    walk.go("jobs")
    expect(page.locator(".jobs-under-way .progress")).to_contain_text("120 of 400")
    walk.look("jobs")
    walk.press("Start a job")
    walk.press("Start")
    expect(page.get_by_role("alert")).to_contain_text("Another job works on this gallery.")
    walk.look("jobs-conflict")
    walk.press("Show that job", "link")
    walk.press("Cancel this job")
    walk.look("job-cancel")
    walk.press("Cancel the job")
    expect(page.get_by_role("button", name="Stopping…")).to_be_disabled()
    assert jobs.get(job.id).cancel_requested
    jobs.finish(jobs.get(job.id), state="cancelled")


def test_keys(walk: Walk) -> None:
    page = walk.page
    walk.go("key")
    expect(page.get_by_role("heading", level=1)).to_have_text(
        "Your key" if walk.has_keys else "No key is needed"
    )
    walk.look("key")
    changed(
        page, "**/v1/me", lambda body: {**body, "name": "guest", "scopes": ["search"], "galleries": ["one"]}
    )
    walk.go("g/{g}/calibrate")
    page.reload()
    expect(page.locator("main")).to_contain_text("it needs the right to run galleries")
    walk.look("forbidden")
    page.unroute("**/v1/me")
    refused = problem(401, "this key is none", type="urn:vicinal:problem:unauthorized")
    page.route("**/v1/me", lambda route: route.fulfill(**refused))
    page.reload()
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in with a key")
    page.get_by_label("Key", exact=True).fill("wrong")
    walk.press("Use this key")
    expect(page.get_by_role("alert")).to_have_text("The server does not know this key.")
    walk.look("sign-in")


def test_faults(walk: Walk) -> None:
    """What cannot be read says so in each place, and what else is there stays in order."""
    page = walk.page
    page.route(
        re.compile(r"/v1/(admin/|galleries/\w+/|jobs|aliases)"),
        lambda route: route.fulfill(**problem(500, "the disk cannot be read")),
    )
    for place in (
        "g/{g}",
        "g/{g}?view=storage",
        "g/{g}/review",
        "g/{g}/pairs",
        "g/{g}/calibrate",
        "g/{g}/doubles",
        "jobs",
    ):
        walk.go(place)
        expect(page.get_by_role("alert").first).to_contain_text("The disk cannot be read.")
        walk.look(f"fault-{re.sub('[^a-z]+', '-', place.replace('{g}', ''))}")
