"""Steps of a crash run: what is asked of a gallery, and what must be in it afterwards."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from tests.crash.pictures import N_PICTURES

__all__ = ["Held", "State", "Step", "draw_step"]

_IDS = [f"item-{number:02d}.png" for number in range(24)]
_CHANGES = ("add", "patch", "delete")


@dataclass(frozen=True)
class Held:
    """What the gallery holds of one item: the number of its picture, and the mark of its last patch."""

    picture: int
    mark: int = 0


State = dict[str, Held]


@dataclass(frozen=True)
class Step:
    """One request.

    Attributes:
        kind: `add` (also replaces), `patch`, `delete`, `compact`, `prune`, `activate`, `reindex` or `check`.
        puts: Items that are there afterwards, as they are then.
        gone: Items that are not.
        version: For `activate`.
        option: `as_built` for `activate`, `waits` for a re-index whose version is not put in force.
    """

    kind: str
    puts: dict[str, Held] = field(default_factory=dict)
    gone: tuple[str, ...] = ()
    version: int | None = None
    option: bool = False

    def after(self, before: State) -> State:
        """The gallery after the step, for one that changes items."""
        return {**{name: held for name, held in before.items() if name not in self.gone}, **self.puts}

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def draw_step(rng: np.random.Generator, state: State, versions: list[int], kinds: tuple[str, ...]) -> Step:
    """A random step.

    Args:
        rng: Decides.
        state: What the gallery holds.
        versions: Its versions.
        kinds: Kinds that may be drawn besides changes of items, which are drawn most often.
    """
    kind = str(rng.choice([*_CHANGES, *_CHANGES, *kinds]))
    if kind in ("patch", "delete") and len(state) < 4:
        kind = "add"
    if kind == "add":
        ids = rng.choice(_IDS, rng.integers(1, 4), replace=False).tolist()
        return Step(kind, {name: Held(int(rng.integers(N_PICTURES))) for name in ids})
    if kind == "patch":
        name = str(rng.choice(sorted(state)))
        return Step(kind, {name: Held(state[name].picture, int(rng.integers(1, 1000)))})
    if kind == "delete":
        return Step(kind, gone=tuple(rng.choice(sorted(state), rng.integers(1, 3), replace=False).tolist()))
    version = int(rng.choice(versions)) if kind == "activate" else None
    return Step(kind, version=version, option=bool(rng.random() < 0.3))
