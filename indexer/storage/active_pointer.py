"""Activation: the one small file that says which state of a gallery is searched."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from vicinal.indexer.errors import GalleryError
from vicinal.indexer.storage.files import write_atomically

__all__ = ["Activation", "read_activation"]


@dataclass(frozen=True)
class Activation:
    """What is searched; every change of a gallery replaces it in one step.

    Attributes:
        version: Version whose built files are searched.
        revision: Version of the item table that is searched: the built version with its live changes.
        next_number: Counter of the table's sequences and patches; it only goes up, also when an earlier
            version is activated, so that no number ever stands for two things.
        token: New with every activation by a person or an index job; live changes and compactions keep it.
            What was begun under one token does not belong under another, even when the numbers are the same.
        revisions: Last revision of every version that was active before, by version.
        calibrated_as: Version whose own calibrations belong to what is searched; 0 for those of the gallery.
            It is replaced together with the version, so that no search sees one without the other.
        calibrated: The same of every version that was active before, by version.
    """

    version: int
    revision: int
    next_number: int
    token: str
    revisions: dict[int, int] = field(default_factory=dict)
    calibrated_as: int = 0
    calibrated: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls, version: int, next_number: int, *, revision: int | None = None, calibrated_as: int = 0
    ) -> Self:
        """A fresh activation of a version as it was built, or of a later revision of it."""
        return cls(
            version=version,
            revision=version if revision is None else revision,
            next_number=next_number,
            token=secrets.token_hex(8),
            calibrated_as=calibrated_as,
        )

    def calibration_of(self, version: int) -> int:
        """What `calibrated_as` is to be with another version: as before, or as now for a new one."""
        return (
            self.calibrated_as
            if version == self.version
            else self.calibrated.get(version, self.calibrated_as)
        )

    def changed(self, revision: int, next_number: int) -> Activation:
        """The same version after a live change."""
        return replace(self, revision=revision, next_number=next_number)

    def compacted(self, version: int) -> Activation:
        """The same items, searched in a version that was made of some of the live changes."""
        return replace(self, version=version)

    def succeeding(self, before: Activation | None) -> Activation:
        """This activation, with what the one before knew about other versions."""
        if before is None:
            return self
        known = {**before.revisions, before.version: before.revision}
        calibrated = {**before.calibrated, before.version: before.calibrated_as}
        return replace(
            self,
            next_number=max(self.next_number, before.next_number),
            revisions={v: r for v, r in known.items() if v != self.version},
            calibrated={v: c for v, c in calibrated.items() if v != self.version},
        )

    def without(self, versions: set[int]) -> Activation:
        """The same activation, not knowing some versions any more."""
        return replace(
            self,
            revisions={v: r for v, r in self.revisions.items() if v not in versions},
            calibrated={v: c for v, c in self.calibrated.items() if v not in versions},
        )

    def write(self, path: Path) -> None:
        """Put it in force."""
        write_atomically(path, json.dumps(vars(self)) + "\n")


def read_activation(path: Path) -> Activation | None:
    """What is in force, or None where nothing is.

    Raises:
        GalleryError: The file is damaged.
    """
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        return Activation(
            version=int(fields["version"]),
            revision=int(fields["revision"]),
            next_number=int(fields["next_number"]),
            token=str(fields["token"]),
            revisions=_numbers(fields["revisions"]),
            # Earlier releases knew the gallery's calibrations alone.
            calibrated_as=int(fields.get("calibrated_as", 0)),
            calibrated=_numbers(fields.get("calibrated", {})),
        )
    except FileNotFoundError:
        return None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise GalleryError(f"'{path}' is damaged: index the gallery again") from error


def _numbers(fields: dict[str, int]) -> dict[int, int]:
    return {int(version): int(number) for version, number in fields.items()}
