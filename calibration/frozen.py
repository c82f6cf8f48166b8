"""Base of settings, manifests and records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, model_validator


class Frozen(BaseModel):
    """A model that does not change, and refuses keys that it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Recorded(Frozen):
    """A part of a record; of those of former releases it passes over what nothing looks at any more."""

    former_keys: ClassVar[tuple[str, ...]] = ()

    @model_validator(mode="before")
    @classmethod
    def _without_former(cls, fields: Any) -> Any:
        if isinstance(fields, Mapping):
            return {key: value for key, value in fields.items() if key not in cls.former_keys}
        return fields
