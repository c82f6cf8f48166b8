"""Marks: the file in a data folder that names its home, and the one in a home that says which it is."""

from __future__ import annotations

import json
from pathlib import Path

from vicinal.calibration.frozen import Frozen
from vicinal.indexer.errors import HomeError
from vicinal.indexer.storage.home.stores import MARK, HomeStore
from vicinal.models.configs.sealed_json import BrokenSealError, sealed, unsealed

FOLDER = "mirror"


class Mark(Frozen):
    """Address and identity of the home of a data folder, and name of the replica that it belongs to."""

    home: str
    identity: str
    replica: str


def mark_path(data_dir: Path) -> Path:
    """Path of the mark in a data folder."""
    return data_dir / FOLDER / MARK


def mark_in(data_dir: Path) -> Mark | None:
    """The mark in a data folder; None where it is no mirror."""
    try:
        return Mark.model_validate_json(unsealed(mark_path(data_dir).read_bytes()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise HomeError(
            f"'{mark_path(data_dir)}' is damaged: bring it back from a backup, or remove its folder and "
            "join the home again"
        ) from error


def identity_in(store: HomeStore) -> str | None:
    """Identity of the home in a store; None for one that has none yet."""
    stored = store.get(MARK)
    try:
        return None if stored is None else str(json.loads(unsealed(stored))["identity"])
    except (BrokenSealError, KeyError, ValueError) as error:
        raise HomeError(f"'{MARK}' of home '{store.address}' is damaged") from error


def give_identity(store: HomeStore, identity: str) -> None:
    """Let a store be the home of an identity."""
    store.put(MARK, sealed(json.dumps({"identity": identity, "format": 2})))
