"""Takes the libraries of the page from npm into `service/static/vendor/`, or checks what lies there.

Each package of `versions.json` is downloaded, held to the `integrity` that stands there, and its files are
written anew with their SHA-256. `--check` compares the files with `versions.json`, offline.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import io
import json
import re
import sys
import tarfile
import urllib.request
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "service" / "static" / "vendor"
REGISTRY = "https://registry.npmjs.org"
LISTED = "versions.json"
# Maps are not shipped: without these lines a browser's tools do not ask for them.
_MAP = re.compile(rb"\n?//# sourceMappingURL=[^\n]*\n?$")


def check(folder: Path = FOLDER) -> list[str]:
    """What differs between the files of a folder and its `versions.json`; empty where nothing does."""
    listed = json.loads((folder / LISTED).read_text(encoding="utf-8"))
    wanted = {name: one["sha256"] for package in listed.values() for name, one in package["files"].items()}
    there = {one.name for one in folder.iterdir()} - {LISTED}
    faults = [f"'{name}' is missing" for name in sorted(wanted.keys() - there)]
    faults += [f"'{name}' is in no package of {LISTED}" for name in sorted(there - wanted.keys())]
    changed = (name for name in sorted(wanted.keys() & there) if _sha256(folder / name) != wanted[name])
    return [*faults, *(f"'{name}' was changed: run `make vendor`" for name in changed)]


def fetch(folder: Path = FOLDER) -> None:
    """Write all files anew, from packages whose integrity is the listed one."""
    listed = json.loads((folder / LISTED).read_text(encoding="utf-8"))
    for name, package in listed.items():
        files = _package(name, package["version"], package["integrity"])
        for written, one in package["files"].items():
            content = _MAP.sub(b"\n", files[one["from"]])
            for old, new in one.get("replace", {}).items():
                content = content.replace(old.encode(), new.encode())
            content += one.get("append", "").encode()
            (folder / written).write_bytes(content)
            one["sha256"] = _sha256(folder / written)
    (folder / LISTED).write_text(json.dumps(listed, indent=2) + "\n", encoding="utf-8")


def _package(name: str, version: str, integrity: str) -> dict[str, bytes]:
    """Files of a package by their path in it."""
    address = f"{REGISTRY}/{name}/-/{name.rpartition('/')[2]}-{version}.tgz"
    with urllib.request.urlopen(address, timeout=60) as answer:
        packed: bytes = answer.read()
    found = "sha512-" + base64.b64encode(hashlib.sha512(packed).digest()).decode()
    if found != integrity:
        sys.exit(f"{name} {version} is another package than the one that was looked at: {found}")
    files: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for member in archive:
            content: Any = archive.extractfile(member)
            if content is not None:
                files[member.name.partition("/")[2]] = content.read()
    return files


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main() -> None:
    """Check, or fetch."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="only compare the files, offline")
    if not parser.parse_args().check:
        fetch()
    if faults := check():
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    main()
