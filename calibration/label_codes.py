"""Labels as numbers.

Arrays of text give every label the room of the longest, and arrays of objects are sorted slowly.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from vicinal.calibration.arrays import Ints, Objects


def label_codes(labels: Iterable[str]) -> tuple[Objects, Ints]:
    """(L,) distinct labels, sorted, and (n,) number of each label among them, as `numpy.unique` has it."""
    given = list(labels)
    names = sorted(set(given))
    numbers = {name: number for number, name in enumerate(names)}
    codes = np.fromiter((numbers[one] for one in given), np.int64, len(given))
    return np.array(names, dtype=object), codes
