"""Types of arrays, one name a type of number: what an array holds is said by the name of the argument."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

AnyArray: TypeAlias = npt.NDArray[Any]
Texts: TypeAlias = npt.NDArray[np.str_]
Objects: TypeAlias = npt.NDArray[np.object_]

Mask: TypeAlias = npt.NDArray[np.bool_]
Bytes: TypeAlias = npt.NDArray[np.uint8]
# Numbers of labels in the smallest type that holds them: there can be ten million pairs.
Codes: TypeAlias = npt.NDArray[np.unsignedinteger]
ShortInts: TypeAlias = npt.NDArray[np.int32]
# Positions, counts, numbers of groups.
Ints: TypeAlias = npt.NDArray[np.int64]
# What numpy indexes with, which is as wide as an address.
Indices: TypeAlias = npt.NDArray[np.intp]
AnyInts: TypeAlias = npt.NDArray[np.integer]

# Embeddings and scores of a search.
FloatArray: TypeAlias = npt.NDArray[np.float32]
# Rates, and scores that are calibrated.
Floats: TypeAlias = npt.NDArray[np.float64]
AnyFloats: TypeAlias = npt.NDArray[np.floating]
