"""Files of the page as they are served: modules of a place in one file, those of all places in another.

Without comments and packed together they weigh a quarter less, and a visit asks for a few files.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from graphlib import TopologicalSorter
from pathlib import Path
from posixpath import join, normpath

_FOLDER = Path(__file__).resolve().parents[1] / "static"
_SHELL, _DIGEST, _DIGITS = "index.html", "{digest}", 12
_TYPES = {".js": "text/javascript", ".css": "text/css", ".json": "application/json"}
# What `tests/service/static/test_modules.py` holds modules to: one statement each, from the start of a line.
_IMPORT = re.compile(r'^import (\{[^}]*\}|\w+) from "([^"]+)";\n', re.MULTILINE)
_LATER = re.compile(r'\bimport\("([^"]+)"\)|(?<=\bnew URL\()"([^"]+)"')
_EXPORT = re.compile(
    r"^export (?:(?=(?:async )?(?:const|function|class) (\w+))|\{([^}]*)\};\n)", re.MULTILINE
)
_COMMENT_OR_INDENT = re.compile(r"^[ \t]*(?://.*\n)?", re.MULTILINE)


@dataclass(frozen=True)
class PageFile:
    """A file of the page, as it is and packed."""

    media_type: str
    content: bytes
    packed: bytes


@dataclass(frozen=True)
class PageFiles:
    """Files of the page by path, its `shell`, and the digest of all, which stands in their addresses."""

    digest: str
    shell: str
    files: dict[str, PageFile]


def page_files(folder: Path = _FOLDER) -> PageFiles:
    """The files in a folder; they are read again when one of them was changed."""
    paths = sorted(one for one in folder.rglob("*") if one.is_file() and one.suffix != ".html")
    shell = folder / _SHELL
    return _read(folder, tuple((one, one.stat().st_mtime_ns) for one in [shell, *paths]))


@lru_cache(maxsize=2)
def _read(folder: Path, stamps: tuple[tuple[Path, int], ...]) -> PageFiles:
    (shell, _), *others = stamps
    there = {path.relative_to(folder).as_posix(): path.read_bytes() for path, _ in others}
    own = {path: there.pop(path).decode() for path in [*there] if _is_own(path)}
    hashed, files = hashlib.sha256(), dict[str, PageFile]()
    for name, content in sorted({**there, **bundled(own)}.items()):
        hashed.update(f"{name}\0{len(content)}\0".encode() + content)
        media_type = _TYPES.get(Path(name).suffix, "text/plain")
        files[name] = PageFile(media_type, content, gzip.compress(content, 9, mtime=0))
    digest = hashed.hexdigest()[:_DIGITS]
    return PageFiles(digest, shell.read_text(encoding="utf-8").replace(_DIGEST, digest), files)


def bundled(modules: Mapping[str, str]) -> dict[str, bytes]:
    """Files of modules, each as a function called once; `graphlib.CycleError` where they are a cycle."""
    needs = {path: [_at(path, named) for _, named in _IMPORT.findall(text)] for path, text in modules.items()}
    bundles, elsewhere = dict[str, str](), dict[str, set[str]]()
    for path in TopologicalSorter(needs).static_order():
        if path in modules:
            bundle = _bundle(path)
            bundles[bundle] = bundles.get(bundle, "") + _wrapped(path, modules[path])
            elsewhere.setdefault(bundle, set()).update(one for one in needs[path] if _bundle(one) != bundle)
    return {
        bundle: ("".join(_fetched(one) for one in sorted(elsewhere[bundle])) + text).encode()
        for bundle, text in bundles.items()
    }


def _is_own(path: str) -> bool:
    return path.endswith(".js") and not path.startswith("vendor/")


def _bundle(path: str) -> str:
    """Name of the file that a file comes in; it stands at the top, as its imports are relative to that."""
    folder = path.rpartition("/")[0]
    if not _is_own(path):
        return path
    return f"{folder.partition('/')[2]}.js" if folder.startswith("places/") else "main.js"


def _at(path: str, named: str) -> str:
    return normpath(join(path, "..", named))


def _name(path: str) -> str:
    return "$" + re.sub(r"\W", "_", path.removesuffix(".js"))


def _fetched(path: str) -> str:
    what = f"* as {_name(path)}" if _bundle(path) == path else f"{{ {_name(path)} }}"
    return f'import {what} from "./{_bundle(path)}";\n'


def _wrapped(path: str, text: str) -> str:
    names = ",".join(one or several for one, several in _EXPORT.findall(text))

    def taken(match: re.Match[str]) -> str:
        what = match[1].replace(" as ", ": ") if match[1].startswith("{") else f"{{ default: {match[1]} }}"
        return f"const {what} = {_name(_at(path, match[2]))};\n"

    def later(match: re.Match[str]) -> str:
        other = _at(path, match[1] or match[2])
        if match[2] or _bundle(other) == other:
            return match[0].replace(match[1] or match[2], f"./{other}")
        return f'import("./{_bundle(other)}").then((all) => all.{_name(other)})'

    text = _COMMENT_OR_INDENT.sub("", _LATER.sub(later, _IMPORT.sub(taken, _EXPORT.sub("", text))))
    return f"export const {_name(path)} = (() => {{\n{text}return {{ {names} }};\n}})();\n"
