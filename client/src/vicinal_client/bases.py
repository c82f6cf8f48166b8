"""Base of the models of answers."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

_FINAL_STATES = ("succeeded", "failed", "cancelled")


class Model(BaseModel):
    """An answer, or a part of one; members that it does not type are kept in `model_extra`."""

    model_config = ConfigDict(frozen=True, extra="allow")


class Ending(Model):
    """A model of something that ends, as its state says."""

    state: str = "queued"

    @property
    def is_final(self) -> bool:
        """Say whether nothing will change any more."""
        return self.state in _FINAL_STATES
