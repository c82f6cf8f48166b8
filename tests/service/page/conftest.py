"""The page in a real browser, over galleries that are made once: a demo catalog, and the photos of a shop.

Each page fails its test at the end if anything stood in the console, was refused by the policy, or was asked
for elsewhere. `shot` keeps what was seen in `build/pages`.
"""

from __future__ import annotations

import csv
import io
import os
import re
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import httpx
import pytest
from filelock import FileLock
from playwright.sync_api import Browser, ConsoleMessage, Page, Request

from tests.browsers import browser, start_browser
from tests.photos import draw_photo
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.index_job import index_items
from vicinal.indexer.sources import read_source, source_name
from vicinal.models.bundle import ModelBundle
from vicinal.models.demo_catalog import write_demo_catalog
from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.http.serving.server import serving
from vicinal.service.measuring.records.record import new_calibration_id
from vicinal.service.operations import Progress, calibrate
from vicinal.service.operations.place import Place
from vicinal.service.settings import SCOPES, Settings

__all__ = ["browser", "start_browser"]

ROOT = Path(__file__).resolve().parents[3]
SHOTS = ROOT / "build" / "pages"
GROCERY = ROOT.parent / "shared" / "data" / "grocery" / "calibration.zip"
ADMIN, WRITER, READER = "an-admin-key", "a-writer-key", "a-reader-key"
KEYS = {ADMIN: SCOPES, WRITER: ("search", "write"), READER: ("search",)}
N_KEPT, N_ANSWERED = 12, 4
N_SHOP, SHOP_VIEWS = 200, 5
# Notes go after 8 or 16 seconds, in which a busy machine may not come to look at them. They do go: on a phone
# they lie over buttons.
NOTES_STAY = """{
  const later = window.setTimeout.bind(window);
  const stays = (ms) => ms === 8000 || ms === 16000;
  window.setTimeout = (does, ms, ...given) => later(does, stays(ms) ? 20_000 : ms, ...given);
}"""


@dataclass(frozen=True)
class Made:
    """Data folder with one gallery, which is not to be changed, and photos to search with."""

    gallery: str
    data_dir: Path
    queries: tuple[Path, ...]
    absent: tuple[Path, ...]


@dataclass(frozen=True)
class Served:
    """A server over a copy of what was made."""

    url: str
    made: Made
    data_dir: Path

    @property
    def gallery(self) -> str:
        """Name of its gallery."""
        return self.made.gallery

    def call(self, method: str, path: str, *, key: str = ADMIN, **options: Any) -> Any:
        """What a call answers, with the key that may do all, or another one."""
        headers = {"X-API-Key": key}
        answer = httpx.request(method, f"{self.url}/{path}", headers=headers, timeout=30.0, **options)
        answer.raise_for_status()
        return answer.json() if answer.content else None


Shot = Callable[[Page, str], None]


class OpenPlace(Protocol):
    """Opens a place of the page, such as `g/demo/search?item=a`, in a window and with a key.

    Errors of the console that match one of `expects` are part of the test, such as '401'.
    """

    def __call__(
        self,
        url: str,
        place: str = "",
        *,
        width: int = 1280,
        scheme: str = "light",
        key: str | None = None,
        expects: Sequence[str] = (),
    ) -> Page: ...


@dataclass
class Watch:
    """What was wrong with pages, beside what a test expects."""

    faults: list[str] = field(default_factory=list)

    def watch(self, page: Page, url: str, expects: Sequence[str]) -> None:
        """Note what is wrong with a page from now on."""
        host = urlsplit(url).netloc

        def note(fault: str) -> None:
            if not any(re.search(one, fault) for one in expects):
                self.faults.append(fault)

        def said(message: ConsoleMessage) -> None:
            if message.type in ("error", "warning"):
                note(f"{message.type}: {message.text}")

        def asked(request: Request) -> None:
            parts = urlsplit(request.url)
            if parts.scheme in ("http", "https") and parts.netloc != host:
                note(f"asked elsewhere: {request.url}")

        page.on("console", said)
        page.on("pageerror", lambda error: note(f"error: {error}"))
        page.on("request", asked)


@pytest.fixture
def watch() -> Iterator[Watch]:
    """The faults of all pages of a test; there are none at its end."""
    made = Watch()
    yield made
    assert made.faults == []


@pytest.fixture
def open_place(browser: Browser, watch: Watch) -> Iterator[OpenPlace]:
    contexts = []

    def opened(
        url: str,
        place: str = "",
        *,
        width: int = 1280,
        scheme: str = "light",
        key: str | None = None,
        expects: Sequence[str] = (),
    ) -> Page:
        screen: Any = {
            "viewport": {"width": width, "height": 800 if width < 640 else 900},
            "color_scheme": scheme,
        }
        context = browser.new_context(**screen, has_touch=width < 640)
        contexts.append(context)
        context.add_init_script(NOTES_STAY)
        page = context.new_page()
        if key is not None:
            # Any address of the server: the tab keeps the key from there on.
            page.goto(f"{url}/livez")
            page.evaluate("(key) => sessionStorage.setItem('vicinal-api-key', key)", key)
        watch.watch(page, url, expects)
        page.goto(f"{url}/#/{place}" if place else url)
        page.wait_for_selector("main h1, main .fault")
        return page

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture
def shot() -> Shot:
    """Keeps what a page shows as `build/pages/NAME-WIDTH-SCHEME.jpg`."""

    def keep(page: Page, name: str) -> None:
        SHOTS.mkdir(parents=True, exist_ok=True)
        seen = page.evaluate(
            "[innerWidth, matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light']"
        )
        # Made in a fifth of the time that a PNG takes.
        page.screenshot(path=SHOTS / f"{name}-{seen[0]}-{seen[1]}.jpg", quality=85)

    return keep


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], None]], Path]:
    """Makes a folder once for all workers of a run."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def made(name: str, make: Callable[[Path], None]) -> Path:
        folder = shared / name
        with FileLock(shared / f"{name}.lock"):
            if not (folder / "is-made").exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                make(folder)
                (folder / "is-made").touch()
        return folder

    return made


def _settings(data_dir: Path, **changes: Any) -> Settings:
    # A job that a test says somebody works on is left alone however long it is looked at.
    patience: dict[str, Any] = {"job_heartbeat_seconds": 300.0, "max_wait_seconds": 60.0}
    return Settings(data_dir=data_dir, device="cpu", threads=1, **patience, **changes)


def _make(folder: Path, name: str, photos: Path, queries: Sequence[Path]) -> None:
    """A calibrated gallery of labelled photos, with searches that were kept and some answers to them."""
    settings = _settings(folder / "data", keep_searches=100)
    bundles = ServedBundles(settings)
    gallery = Gallery(settings.gallery_path(name), refinement=bundles.own.refinement)
    source = source_name(photos)
    index_items(gallery, read_source(photos), bundles.own.embedder, source=source, workers=1)
    options = {"activate": True, "metric": "cosine"}
    request = calibrate.CalibrateRequest(target="fpir=5%", **options)
    calibrate.run(Place(bundles, gallery, id=new_calibration_id()), request, Progress())
    with serving(settings) as url, httpx.Client(base_url=f"{url}/v1/galleries/{name}", timeout=30.0) as web:
        for number, path in enumerate(queries):
            answer = web.post("/search", files={"image": (path.name, path.read_bytes(), "image/jpeg")})
            answer.raise_for_status()
            if number < N_ANSWERED:
                said = {"search_id": answer.json()["search_id"], "label": path.parent.name}
                web.post("/answers", json=said).raise_for_status()


@pytest.fixture(scope="session")
def demo_made(made_once: Callable[[str, Callable[[Path], None]], Path]) -> Made:
    """The demo catalog: 60 products in 300 photos, and 10 products that it lacks."""

    def make(folder: Path) -> None:
        catalog = write_demo_catalog(folder / "catalog")
        _make(folder, "demo", catalog.gallery, catalog.query_images[:N_KEPT])

    folder = made_once("page-demo", make)
    queries, absent = (
        tuple(sorted((folder / "catalog" / one).rglob("*.jpg"))) for one in ("queries", "absent")
    )
    return Made("demo", folder / "data", queries, absent)


@pytest.fixture(scope="session")
def shop_made(made_once: Callable[[str, Callable[[Path], None]], Path]) -> Made:
    """200 photos of a shop, and photos to search with of what it has and of what it lacks."""

    def make(folder: Path) -> None:
        for role, path, content in _shop_photos():
            written = folder / role / path
            written.parent.mkdir(parents=True, exist_ok=True)
            written.write_bytes(content)
        assert len([*(folder / "gallery").rglob("*.jpg")]) == N_SHOP
        _make(folder, "shop", folder / "gallery", sorted((folder / "query").rglob("*.jpg"))[:N_KEPT])

    folder = made_once("page-shop", make)
    queries, absent = (tuple(sorted((folder / one).rglob("*.jpg"))) for one in ("query", "absent"))
    return Made("shop", folder / "data", queries, absent)


def _shop_photos() -> Iterator[tuple[str, str, bytes]]:
    """Role, path and content of photos; drawn ones where those of a shop are missing."""
    if not GROCERY.exists():
        for label in range(N_SHOP // SHOP_VIEWS + 5):
            for view in range(SHOP_VIEWS + 1):
                role = (
                    "absent"
                    if label >= N_SHOP // SHOP_VIEWS
                    else "query"
                    if view == SHOP_VIEWS
                    else "gallery"
                )
                stream = io.BytesIO()
                photo = draw_photo(label)
                photo.rotate(3 * view, expand=False).save(stream, "JPEG")
                yield role, f"thing {label}/{view}.jpg", stream.getvalue()
        return
    with zipfile.ZipFile(GROCERY) as archive:
        there, left = set(archive.namelist()), {"gallery": N_SHOP, "query": 40, "absent": 20}
        with (GROCERY.parent / "protocol.csv").open(encoding="utf-8", newline="") as listed:
            rows = [one for one in csv.DictReader(listed) if one["split"] == "calibration"]
        # Some of every label rather than all of the first.
        rows.sort(key=lambda one: one["path"].rpartition("_")[2])
        for row in rows:
            if row["path"] in there and left.get(row["role"], 0) > 0:
                left[row["role"]] -= 1
                # Photos of different parts of the set have the same name.
                part, *_, name = row["path"].split("/")
                yield row["role"], f"{row['label']}/{part} {name}", archive.read(row["path"])


def served_fixture(name: str, keys: Mapping[str, Sequence[str]] | None = None) -> Any:
    """A fixture that serves a copy of what the fixture `NAME_made` made, with keys or without."""

    @pytest.fixture
    def serve(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Served]:
        made: Made = request.getfixturevalue(f"{name}_made")
        folder = tmp_path / (name if keys is None else f"guarded-{name}")
        shutil.copytree(made.data_dir, folder)
        changes = {} if keys is None else {"api_keys": keys}
        with serving(_settings(folder, keep_searches=100, **changes)) as url:
            yield Served(url, made, folder)

    return serve


@pytest.fixture
def empty(tiny_bundle: ModelBundle, tmp_path: Path) -> Iterator[Served]:
    """A server without a gallery, and with a small network."""
    folder = tmp_path / "empty"
    with serving(Settings(data_dir=folder, device="cpu", threads=1, bundle=tiny_bundle.path)) as url:
        yield Served(url, Made("things", folder, (), ()), folder)


demo = served_fixture("demo")
demo_with_keys = served_fixture("demo", KEYS)
shop = served_fixture("shop")
shop_with_keys = served_fixture("shop", KEYS)
