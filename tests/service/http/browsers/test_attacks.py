"""Pages of other sites in a real browser: a form, a script, a name that is pointed here, a frame."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.sync_api import Browser, Page

from tests.service.types import MakeSettings
from vicinal.service.http.serving.server import serving

pytestmark = pytest.mark.slow

# 8 x 8 red pixels.
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAEklEQVR4nGP8z4APMOGVHbHSAEErAQ/XoGs1AAAAAElFTkSuQmCC"
FORM = """<form method="post" enctype="multipart/form-data" action="{address}/v1/galleries/shoes/items">
<input type="file" name="image"><input name="id" value="planted"></form><script>
const bytes = Uint8Array.from(atob("{png}"), (one) => one.charCodeAt(0)), files = new DataTransfer();
files.items.add(new File([bytes], "a.png", {{ type: "image/png" }}));
document.querySelector("[type=file]").files = files.files;
document.querySelector("form").submit();
</script>"""
THUMBNAIL = "/v1/galleries/shoes/thumbnails/plain/view 0.png"
FETCH = """([path, options]) => fetch(path, options).then(
  async (answer) => [answer.status, await answer.text()], (error) => [0, error.name])"""
LOADS = """(address) => new Promise((done) => {
  const image = new Image();
  image.onload = () => done(true);
  image.onerror = () => done(false);
  image.src = address;
})"""


class Site(BaseHTTPRequestHandler):
    """Another site, with pages by their paths."""

    def __init__(self, pages: dict[str, str], *arguments: object) -> None:
        self.pages = pages
        super().__init__(*arguments)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(self.pages.get(self.path, "<p>").encode())

    def log_message(self, *_arguments: object) -> None:
        """Nothing is written."""


@pytest.fixture
def address(data_dir: Path, make_settings: MakeSettings) -> Iterator[str]:
    with serving(make_settings(data_dir)) as url:
        yield url


@pytest.fixture
def other_site(address: str) -> Iterator[str]:
    """Its page `form` sends a picture to the server as soon as it is looked at; `frame` shows the server."""
    pages = {"/form": FORM.format(address=address, png=PNG), "/frame": f'<iframe src="{address}/"></iframe>'}
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Site, pages)) as server:  # type: ignore[arg-type]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        # Another host, and so another site.
        yield f"http://localhost:{server.server_port}"
        server.shutdown()
        thread.join()


def n_items(address: str) -> int:
    n: int = httpx.get(f"{address}/v1/galleries/shoes").json()["n_items"]
    return n


def fetch(page: Page, path: str, **options: object) -> tuple[int, str]:
    """Status and text that a script of a page gets for a request; 0 and the error's name where none."""
    status, text = page.evaluate(FETCH, [path, options])
    return status, text


def test_a_form_of_another_site_adds_nothing(browser: Browser, address: str, other_site: str) -> None:
    page = browser.new_page()
    with page.expect_response("**/items") as answered:
        page.goto(f"{other_site}/form")
    assert answered.value.status == 403
    assert "cross-site" in answered.value.text()
    assert n_items(address) == 60


def test_the_same_form_of_its_own_page_does(browser: Browser, address: str) -> None:
    """Negative control: the form is whole, and what refuses it is where it comes from."""
    page = browser.new_page()
    script = FORM.format(address=address, png=PNG)
    page.route("**/livez", lambda route: route.fulfill(content_type="text/html", body=script))
    with page.expect_response("**/items") as answered:
        page.goto(f"{address}/livez")
    assert answered.value.status == 200
    assert n_items(address) == 61


@pytest.mark.parametrize("mode", ["cors", "no-cors"])
def test_a_script_of_another_site_starts_nothing(
    browser: Browser, address: str, other_site: str, mode: str
) -> None:
    page = browser.new_page()
    page.goto(other_site)
    body = json.dumps({"item_id": "plain/view 0.png"})
    for path in ("/v1/galleries/shoes/search", "/v1/admin/galleries/shoes/reindex"):
        fetch(page, address + path, method="POST", body=body, mode=mode)
    # What was asked did arrive; the browser shows such a page no status.
    assert 'vicinal_problems_total{type="cross-site"} 2.0' in httpx.get(f"{address}/metrics").text
    assert httpx.get(f"{address}/v1/jobs").json()["jobs"] == []


def test_a_script_of_another_site_reads_nothing(browser: Browser, address: str, other_site: str) -> None:
    page = browser.new_page()
    page.goto(other_site)
    assert fetch(page, f"{address}/v1/galleries") == (0, "TypeError")
    assert page.evaluate(LOADS, f"{address}{THUMBNAIL}") is False


def test_a_page_of_the_server_reads_it(browser: Browser, address: str) -> None:
    """Negative control."""
    page = browser.new_page()
    page.goto(address)
    assert fetch(page, f"{address}/v1/galleries")[0] == 200
    assert page.evaluate(LOADS, f"{address}{THUMBNAIL}") is True


@pytest.fixture
def rebound(start_browser: Callable[..., Browser]) -> Page:
    """A browser for which another site's name means this machine, as if it had been pointed here just now."""
    browser = start_browser("--host-resolver-rules=MAP evil.example 127.0.0.1")
    # The page of the other site is not the server's, and has no policy.
    return browser.new_context(bypass_csp=True).new_page()


def test_a_name_that_is_pointed_here_reads_nothing(rebound: Page, address: str) -> None:
    rebound.goto(f"http://evil.example:{urlsplit(address).port}/")
    for path in ("/v1/galleries", "/readyz", "/metrics"):
        status, text = fetch(rebound, path)
        assert status == 421
        assert "shoes" not in text


def test_a_name_that_is_allowed_reads_it(rebound: Page, data_dir: Path, make_settings: MakeSettings) -> None:
    """Negative control: the name does lead to the server."""
    with serving(make_settings(data_dir, allowed_hosts=("evil.example",))) as url:
        rebound.goto(f"http://evil.example:{urlsplit(url).port}/")
        status, text = fetch(rebound, "/v1/galleries")
    assert (status, "shoes" in text) == (200, True)


@pytest.mark.parametrize("path", ["/", "/#/g/shoes/search", "/label?gallery=shoes", "/docs"])
def test_pages_keep_their_own_policy(browser: Browser, address: str, path: str) -> None:
    page = browser.new_page()
    errors: list[str] = []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.goto(address + path)
    page.wait_for_load_state("networkidle")
    assert errors == []


def test_the_documentation_needs_no_other_server(browser: Browser, address: str) -> None:
    context = browser.new_context()
    asked: list[str] = []
    context.on("request", lambda request: asked.append(urlsplit(request.url).netloc))
    page = context.new_page()
    page.goto(f"{address}/docs")
    page.wait_for_selector(".opblock")
    assert page.locator(".opblock").count() > 40
    assert {one for one in asked if one} == {urlsplit(address).netloc}
    # A call is tried from it.
    page.locator(".opblock", has_text="/livez").first.click()
    page.get_by_role("button", name="Try it out").click()
    page.get_by_role("button", name="Execute").click()
    page.wait_for_selector(".live-responses-table")
    assert "alive" in page.locator(".live-responses-table").inner_text()
