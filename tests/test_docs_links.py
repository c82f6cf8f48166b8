"""README, ARCHITECTURE and docs/*.md: every file that they link to or name is there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    *(
        ROOT / name
        for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
    ),
    ROOT / "client" / "README.md",
    ROOT / "deploy" / "README.md",
    *(ROOT / "docs").glob("*.md"),
]
FOLDERS = (
    "benchmarks",
    "calibration",
    "client",
    "deploy",
    "docs",
    "indexer",
    "models",
    "recipes",
    "refine",
    "service",
    "tests",
    "training",
)
_LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")
_NAMED = re.compile(rf"`((?:{'|'.join(FOLDERS)})/[\w./-]+\.\w+)")
# Inside of a folder that the page speaks of, a module is named by the end of its path.
_MODULE = re.compile(r"`((?:\w+/)*\w+\.py)`")


def missing(text: str, folder: Path) -> Iterator[str]:
    """Links from the page's folder and names of files from the root of the repository that lead nowhere."""
    modules = "".join(
        f"/{path.relative_to(ROOT)}\n" for top in FOLDERS for path in (ROOT / top).rglob("*.py")
    )
    yield from (link for link in _LINK.findall(text) if not (folder / link).exists())
    yield from (name for name in _NAMED.findall(text) if not (ROOT / name).exists())
    yield from (name for name in _MODULE.findall(text) if f"/{name}\n" not in modules)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_what_a_page_names_is_there(page: Path) -> None:
    assert list(missing(page.read_text(encoding="utf-8"), page.parent)) == []


def test_a_name_that_leads_nowhere_is_noticed() -> None:
    """Negative control."""
    text = "[a](docs/nowhere.md) [b](README.md) [c](https://x.org) `settings.py` `docs/gone.md` `gone.py`"
    assert list(missing(text, ROOT)) == ["docs/nowhere.md", "docs/gone.md", "gone.py"]
