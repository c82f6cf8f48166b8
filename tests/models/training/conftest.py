"""Fixtures of training runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def without_picture() -> Iterator[None]:
    """Draws no curves: the picture takes longer than a run of a few steps, and has tests of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vicinal.models.training.log.Figure.savefig", lambda *_, **__: None)
        yield
