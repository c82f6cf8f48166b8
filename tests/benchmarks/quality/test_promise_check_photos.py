"""Galleries and cameras of the photo check, on drawn embeddings."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.quality import promise_check_photos as check
from vicinal.calibration import RateInterval


@pytest.fixture
def photos() -> check.Photos:
    """Eight labels of four kinds that can be in a gallery, and four that never are."""
    rows = [
        (f"{kind}{number}", kind, role)
        for kind in "abcd"
        for number in range(3)
        for role in (["absent"] * 4 if number == 2 else ["gallery"] * 3 + ["query"] * 2)
    ]
    labels, kinds, roles = (np.array(one, dtype=object) for one in zip(*rows, strict=True))
    embeddings = np.random.default_rng(0).normal(size=(len(rows), 5))
    return check.Photos(labels, roles.astype(str), kinds, dict.fromkeys(check.CAMERAS, embeddings))


@pytest.mark.parametrize("seed", range(5))
def test_what_is_never_in_a_gallery_is_never_drawn_for_one(photos: check.Photos, seed: int) -> None:
    usual, alike = check.draw(photos, np.random.default_rng(seed))
    for drawn in (usual, alike):
        held = set(photos.labels[drawn.items])
        assert set(photos.roles[drawn.items]) == {"gallery"}
        for _, known, absent in drawn.worlds.values():
            assert set(photos.labels[known]) == held
            assert set(photos.roles[known]) == {"query"}
            assert not held & set(photos.labels[absent])
    assert set(usual.worlds) | set(alike.worlds) == set(check.WORLDS)


@pytest.mark.parametrize("seed", range(5))
def test_look_alikes_are_other_labels_of_the_kinds_in_the_gallery(photos: check.Photos, seed: int) -> None:
    _, drawn = check.draw(photos, np.random.default_rng(seed))
    labels = set(photos.labels[drawn.items])
    kinds = {label[0] for label in labels}
    assert len(kinds) == len(labels)
    _, _, absent = drawn.worlds["look_alikes"]
    assert {label[0] for label in photos.labels[absent]} == kinds


def found(missed: float, answered: float) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Ten photos of each of twenty labels with these shares of events."""
    labels = np.repeat(np.array([f"label {i}" for i in range(20)], dtype=object), 10)
    shares = {"fnir": missed, "fpir": answered}
    return {rate: (np.tile(np.arange(10) < round(10 * share), 20), labels) for rate, share in shares.items()}


@pytest.mark.parametrize(
    ("missed", "answered", "verdict", "is_broken"),
    [(0.3, 0.0, "held", False), (0.9, 0.0, "broken", True), (0.3, 0.8, "broken", True)],
)
def test_all_photos_tell_whether_a_promise_is_kept(
    monkeypatch: pytest.MonkeyPatch, missed: float, answered: float, verdict: str, is_broken: bool
) -> None:
    promised = {"fnir": RateInterval(0.32, 0.2, 0.46, 0.95), "fpir": RateInterval(0.05, 0.01, 0.12, 0.95)}
    monkeypatch.setattr(check, "promised_range", lambda _, rate: promised[rate])
    row = check.judge(SimpleNamespace(), found(missed, answered), 15, np.random.default_rng(0))
    assert (row["verdict"], row["broken_by_all"], row["fnir"]["n_labels"]) == (verdict, is_broken, 15)
    part = "broken" if is_broken else "kept"
    assert check.summary([row])[part] == {
        "draws": 1,
        **{one: float(one == verdict) for one in ("held", "unclear", "broken")},
    }
