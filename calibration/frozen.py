"""Base of settings, manifests and records."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """A model that does not change, and refuses keys that it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Recorded(Frozen):
    """A part of a record, which its seal keeps from harm: what nothing looks at any more is passed over."""

    model_config = ConfigDict(extra="ignore")
