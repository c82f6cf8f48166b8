"""Whoever follows an image query or a calibration through the code opens a limited number of files."""

from __future__ import annotations

import numpy as np
import pytest

from tests.walks import WALKS, Walk, prepare
from vicinal.calibration import Target
from vicinal.models.similarity import normalize
from vicinal.service.settings import Settings

pytestmark = pytest.mark.slow

# A calibration is the same for whoever asked.
MOST_FILES = {
    "an image query over HTTP": 33,
    "an index": 48,
    "a calibration": 46,
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
