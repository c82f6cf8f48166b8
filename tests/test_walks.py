"""Whoever follows an image query or a calibration through the code opens a limited number of files."""

from __future__ import annotations

import numpy as np
import pytest

from tests.walks import WALKS, Walk, prepare
from vicinal.calibration import Target
from vicinal.models.similarity import normalize
from vicinal.service.settings import Settings

pytestmark = pytest.mark.slow

# From its options to its record a calibration is the same for whoever asked; the job adds the queue and the
# worker, the command the opening of a gallery, and both put the record in force. What a server opens asks
# whether its files were found damaged, and what it serves of an item is cut where that is too large. A call
# that begins a job is noted. A calibration asks whether a GPU compares its pairs, and one class keeps records
# of all kinds. The options of a source know the rules of its ids, pixels of any kind are read beside the
# decoding, and one hears of progress. Re-ranking is tried first, unless another record in force rests on how
# that is done. A server hands what it answered to who keeps searches, and a search asks what persons called
# different. What is measured holds nothing that was set aside. A
# calibration keeps its points.
MOST_FILES = {
    "an image query over HTTP": 32,
    "an addition over HTTP": 36,
    "an index": 42,
    "a calibration": 41,
    "a calibration job": 71,
    "a calibration command": 64,
}


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return prepare(tmp_path_factory.mktemp("walks"))


@pytest.mark.parametrize("name", WALKS)
def test_a_walk_passes_few_files(name: str, settings: Settings) -> None:
    files = WALKS[name](settings)
    assert any(path.startswith(("service/search/", "service/operations/")) for path in files)
    assert len(files) <= MOST_FILES[name], "\n".join(files)


def test_a_walk_begins_and_ends_where_it_says() -> None:
    """Negative control: calls before and after do not count."""
    walk = Walk(Target.parse, Target.parse)
    with walk.watching():
        normalize(np.ones((1, 2)))
        Target.parse("fpir=5%")
        normalize(np.ones((1, 2)))
    assert walk.files == ["calibration/targets.py"]
