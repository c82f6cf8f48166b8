"""Bundles on the command line: what their tests share."""

from __future__ import annotations

import pytest


@pytest.fixture
def no_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves the refiner's ONNX graph out, which takes seconds to write and which no search reads."""
    export = "vicinal.training.refiner.export"
    monkeypatch.setattr(f"{export}._write_graph", lambda _network, path: path.write_bytes(b"a placeholder"))
    monkeypatch.setattr(f"{export}._refer_to_weights", lambda *_: None)
    monkeypatch.setattr(f"{export}._check_parity", lambda *_: None)
