"""What the system was told of memory maps of this process."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

__all__ = ["is_read_at_random"]

_SMAPS = Path("/proc/self/smaps")


def is_read_at_random(array: npt.NDArray[np.generic]) -> bool:
    """Whether the system expects reads of an array's memory here and there, and reads nothing around them."""
    if not _SMAPS.exists():
        pytest.skip("/proc/self/smaps tells what was advised; it is Linux's")
    address, is_inside = array.ctypes.data, False
    for line in _SMAPS.read_text().splitlines():
        if bounds := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            is_inside = int(bounds[1], 16) <= address < int(bounds[2], 16)
        elif is_inside and line.startswith("VmFlags:"):
            # `rr`: random read advise (proc(5)).
            return "rr" in line.split()
    raise AssertionError("the array lies in no mapping")
