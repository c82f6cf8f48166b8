"""Real shop photos: leave-one-out without visits promises more than photos of another visit show."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.conftest import SHARED
from tests.service.types import WriteGallery
from vicinal.calibration import Target
from vicinal.calibration.arrays import FloatArray
from vicinal.models.similarity import normalize
from vicinal.service.measuring.calibrator import Calibrator
from vicinal.service.measuring.queries import LabelledQueries
from vicinal.service.measuring.visits import Visits
from vicinal.service.search.pipeline import Pipeline, Rerank
from vicinal.training.datasets.layouts.protocol import ProtocolConfig

pytestmark = pytest.mark.slow

OFF = Pipeline(rerank=Rerank(method="off"))


def histogram(content: bytes) -> FloatArray:
    """Square roots of an 8 x 8 x 8 color histogram."""
    with Image.open(io.BytesIO(content)) as image:
        pixels = np.asarray(image.convert("RGB").reduce(2)).reshape(-1, 3) // 32
    cells = pixels @ np.array([64, 8, 1])
    return np.sqrt(np.bincount(cells, minlength=512) / len(cells)).astype(np.float32)


@pytest.fixture(scope="module")
def photos() -> tuple[FloatArray, list[str], list[dict[str, object]]]:
    """Photos of seven products from two visits to the shop: the official halves of the set."""
    root = Path(os.environ.get("VICINAL_TEST_DATA", SHARED / "data")) / "grocery"
    if not root.is_dir():
        pytest.skip(f"grocery photos not found at {root} (VICINAL_TEST_DATA)")
    config = ProtocolConfig(kind="protocol", root=root, split="calibration", roles=("gallery", "query"))
    rows = config.rows()
    with config.open() as read:
        embeddings = normalize(np.stack([histogram(read(row)) for row in rows]))
    visits = [{"visit": "test" if row.path.startswith("test/") else "train"} for row in rows]
    return embeddings, [row.label for row in rows], visits


def test_leave_one_out_without_visits_promises_more(
    write_gallery: WriteGallery, photos: tuple[FloatArray, list[str], list[dict[str, object]]]
) -> None:
    embeddings, labels, metadata = photos
    snapshot = write_gallery(embeddings, labels, metadata=metadata)
    visits = Visits.of(snapshot, "visit")
    queries = LabelledQueries.leave_one_out(snapshot, visits)
    record = Calibrator(snapshot, OFF, visits=visits).measure(queries, Target(rate="fpir", value=0.1)).record
    found = record.evidence.visits
    assert found.promised["hit_rate_1"] > found.shown["hit_rate_1"] + 0.1
    assert found.shown["fnir"] > found.promised["fnir"] + 0.1
    # The truth without a calibrator: the nearest photo of the other visit.
    similarities = embeddings @ embeddings.T
    visit = np.array([one["visit"] for one in metadata])
    similarities[visit[:, None] == visit] = -1.0
    nearest = np.array(labels)[similarities.argmax(axis=1)]
    assert found.shown["hit_rate_1"] == pytest.approx(np.mean(nearest == np.array(labels)), abs=5e-3)
