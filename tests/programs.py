"""Programs that some tests run: where they are, and how they come where they are missing."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable

import pytest

__all__ = ["absence", "missing_programs", "program"]

# A program's package where it has another name.
_PACKAGES = {"node": "nodejs", "promtool": "prometheus", "systemd-analyze": "systemd"}
_MISSING = re.compile(r"(\S+) is not installed \(package (\S+)\)$")


def program(name: str, *names: str) -> str:
    """Path of a program, which may have further names; the test is skipped where it is missing."""
    found = next(filter(None, map(shutil.which, (name, *names))), None)
    if found is None:
        pytest.skip(absence(name))
    return found


def absence(name: str) -> str:
    """Reason of a skip for want of a program."""
    return f"{name} is not installed (package {_PACKAGES.get(name, name)})"


def missing_programs(reasons: Iterable[str]) -> str | None:
    """One line about the programs that tests were skipped for; None where none is missing."""
    found = [match.groups() for match in map(_MISSING.search, reasons) if match]
    if not found:
        return None
    names, packages = (" ".join(sorted(set(one))) for one in zip(*found, strict=True))
    how = f"install {packages} to run them"
    if shutil.which("apt-get"):
        how = f"{'' if os.geteuid() == 0 else 'sudo '}apt-get install -y {packages}"
    return f"{len(found)} skipped for want of {names.replace(' ', ', ')}: {how}"
