"""Labels as numbers: as numpy numbers them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vicinal.calibration.label_codes import label_codes


# Text of numpy has no NUL at its end.
@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=4)))
def test_labels_are_numbered_as_numpy_numbers_them(labels: list[str]) -> None:
    names, codes = label_codes(labels)
    expected = np.unique(np.array(labels, dtype=np.str_), return_inverse=True)
    assert (names.tolist(), codes.tolist()) == tuple(one.tolist() for one in expected)
    assert names.dtype == object
