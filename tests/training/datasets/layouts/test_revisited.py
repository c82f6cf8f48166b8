"""Revisited Oxford and Paris: ground truth by query, and pickles that are not loaded."""

from __future__ import annotations

import functools
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vicinal.models.errors import DatasetError
from vicinal.training.datasets import LabelledFile
from vicinal.training.datasets.layouts.revisited import JudgedImages, RevisitedConfig

NAMES = [f"hall_{number}" for number in range(6)]
ENTRY = {"easy": [0, 2], "hard": [3], "junk": [5], "bbx": [2.0, 3.0, 14.0, 13.0]}
CONTENT = {"imlist": NAMES, "qimlist": ["ask_1"], "gnd": [ENTRY]}


@pytest.fixture
def write_pickle(tmp_path: Path, write_images: Callable[..., None]) -> Callable[[bytes], RevisitedConfig]:
    """Writes the images and a ground truth of the given bytes."""

    def write(content: bytes) -> RevisitedConfig:
        write_images(tmp_path, (f"jpg/{name}.jpg" for name in [*NAMES, "ask_1"]))
        (tmp_path / "gnd_roxford5k.pkl").write_bytes(content)
        return RevisitedConfig(kind="roxford5k", root=tmp_path)

    return write


WritePickle = Callable[[bytes], RevisitedConfig]


def truth_of(read: JudgedImages) -> list[list[int]]:
    (one,) = read.ground_truth
    return [one.easy.tolist(), one.hard.tolist(), one.junk.tolist()]


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("as_array", [list, np.array, lambda values: np.array(values, np.int64)[None]])
def test_ground_truth_is_that_of_the_file(
    write_pickle: WritePickle, protocol: int, as_array: Callable[[list[int]], Any]
) -> None:
    entry = {name: as_array(ENTRY[name]) for name in ("easy", "hard", "junk")}
    entry["bbx"] = [np.float64(corner) for corner in ENTRY["bbx"]]
    read = write_pickle(pickle.dumps({**CONTENT, "gnd": [entry]}, protocol)).judged()
    assert truth_of(read) == [[0, 2], [3], [5]]
    assert read.files[0] == LabelledFile("jpg/ask_1.jpg", "ask_1", "query", box=(2.0, 3.0, 14.0, 13.0))
    assert read.files[3] == LabelledFile("jpg/hall_2.jpg", "hall_2", "gallery")


def test_a_pickle_of_python_2_is_read(write_pickle: WritePickle) -> None:
    """Its text is a string of bytes, the opcode S."""
    images = b"(lp1\n" + b"".join(b"S'%s'\na" % name.encode() for name in NAMES)
    entry = b"(dS'easy'\n(lI0\naI2\nasS'hard'\n(lI3\nasS'junk'\n(lI5\nasS'bbx'\n(lF2\naF3\naF14\naF13\nas"
    content = b"(dS'imlist'\n" + images + b"sS'qimlist'\n(lS'ask_1'\nasS'gnd'\n(l" + entry + b"as."
    assert truth_of(write_pickle(content).judged()) == [[0, 2], [3], [5]]


def test_an_empty_list_of_positions_is_allowed(write_pickle: WritePickle) -> None:
    """Some queries have no hard image."""
    content = {**CONTENT, "gnd": [{**ENTRY, "hard": []}]}
    assert truth_of(write_pickle(pickle.dumps(content)).judged()) == [[0, 2], [], [5]]


def test_a_query_is_cut_to_its_box_and_the_gallery_is_not(write_pickle: WritePickle) -> None:
    config = write_pickle(pickle.dumps(CONTENT))
    query, shown, *_ = config.judged().files
    with config.open() as image_of:
        assert image_of(query).size == (12, 10)
        assert image_of(shown).is_file()


@pytest.mark.parametrize(
    ("difficulty", "relevant", "ignored"),
    [("easy", [0, 2], [5, 3]), ("medium", [0, 2, 3], [5]), ("hard", [3], [5, 0, 2])],
)
def test_each_protocol_judges_as_the_paper_says(
    write_pickle: WritePickle, difficulty: str, relevant: list[int], ignored: list[int]
) -> None:
    (truth,) = write_pickle(pickle.dumps(CONTENT)).judged().ground_truth
    assert [positions.tolist() for positions in truth.judged(difficulty)] == [relevant, ignored]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"no file 'gnd_rparis6k\.pkl': get .*http://cmp"):
        RevisitedConfig(kind="rparis6k", root=tmp_path).judged()


class Calls:
    """Pickles as a call of `function`."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.reduced = (function, arguments)

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.reduced


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_that_calls_something_is_not_loaded(
    write_pickle: WritePickle, tmp_path: Path, protocol: int
) -> None:
    marker = tmp_path / "marker"
    config = write_pickle(pickle.dumps({**CONTENT, "gnd": Calls(os.mkdir, str(marker))}, protocol))
    with pytest.raises(DatasetError, match=r"refers to \w+\.mkdir"):
        config.judged()
    assert not marker.exists()


def test_plain_unpickling_would_have_called_it(tmp_path: Path) -> None:
    """Negative control of the test above."""
    pickle.loads(pickle.dumps(Calls(os.mkdir, str(tmp_path / "marker"))))
    assert (tmp_path / "marker").exists()


@pytest.mark.parametrize(
    "function", [eval, np.load, np.fromfile, functools.partial, getattr, RevisitedConfig]
)
def test_only_what_arrays_need_can_be_referred_to(
    write_pickle: WritePickle, function: Callable[..., object]
) -> None:
    with pytest.raises(DatasetError, match="which a ground truth does not need"):
        write_pickle(pickle.dumps({**CONTENT, "gnd": Calls(function, "1")})).judged()


def test_attributes_of_what_is_admitted_are_not(write_pickle: WritePickle) -> None:
    """Protocol 4 can name `ndarray.tofile`, a method of a class that is admitted."""
    content = pickle.dumps(Calls(np.ndarray.tofile, np.zeros(1), "marker"), 4)
    with pytest.raises(DatasetError, match="which a ground truth does not need"):
        write_pickle(content).judged()


@pytest.mark.parametrize("content", [b"", b"no pickle", pickle.dumps(CONTENT)[:-40]])
def test_a_damaged_file_is_named(write_pickle: WritePickle, content: bytes) -> None:
    with pytest.raises(DatasetError, match=r"gnd_roxford5k\.pkl' was not loaded"):
        write_pickle(content).judged()


@pytest.mark.parametrize(
    "content",
    [
        [],
        {},
        {**CONTENT, "imlist": [1, 2]},
        {**CONTENT, "qimlist": ["ask_1", "ask_2"]},
        {**CONTENT, "gnd": [{**ENTRY, "easy": [6]}]},
        {**CONTENT, "gnd": [{**ENTRY, "easy": [-1]}]},
        {**CONTENT, "gnd": [{**ENTRY, "easy": [0.5]}]},
        {**CONTENT, "gnd": [{**ENTRY, "bbx": [1.0, 2.0]}]},
        {**CONTENT, "gnd": [{"easy": [], "hard": [], "bbx": [0, 0, 1, 1]}]},
    ],
)
def test_a_pickle_of_another_structure_is_named(write_pickle: WritePickle, content: object) -> None:
    with pytest.raises(DatasetError, match=r"pkl' is no ground truth of roxford5k"):
        write_pickle(pickle.dumps(content)).judged()
