"""How batches are drawn: one configuration class a sampler, told apart by `kind`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PositiveInt, model_validator

__all__ = [
    "ClassBalancedConfig",
    "GroupConfig",
    "HierarchicalConfig",
    "RandomPairsConfig",
    "SamplerConfig",
    "SourceBalancedConfig",
]


class _Sampler(BaseModel):
    """What every sampler has.

    Attributes:
        chunk_size: Images embedded at a time (multistage back-propagation): the batch then needs no more
            memory than a chunk, and one more forward pass. None embeds the batch at once.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    chunk_size: int | None = Field(None, ge=1)

    @property
    def images_per_class(self) -> int | None:
        """Images that a batch has of each of its classes; None where that differs."""
        return None

    @property
    def batch_design(self) -> dict[str, Any] | None:
        """Design that makes the balanced contrastive loss exact; None where pairs are not drawn uniformly."""
        return None


class _PerClass(_Sampler):
    batch_size: int = Field(128, ge=4)
    per_class: int = Field(4, ge=2)

    @property
    def images_per_class(self) -> int:
        """`per_class`."""
        return self.per_class

    @property
    def max_per_class(self) -> int:
        """`per_class`."""
        return self.per_class

    @property
    def smallest_class(self) -> int:
        """2, what a pair needs; a class with fewer than `per_class` images repeats some."""
        return 2

    @model_validator(mode="after")
    def _divides(self) -> _PerClass:
        _check_divides("per_class", self.per_class, self.batch_size, 1)
        return self


class ClassBalancedConfig(_PerClass):
    """Batches of `batch_size / per_class` classes, which take turns, with `per_class` images each.

    Attributes:
        batch_size: Images a batch.
        per_class: Images a class and batch; divides `batch_size`.
    """

    kind: Literal["class_balanced"] = "class_balanced"


class SourceBalancedConfig(_PerClass):
    """Class-balanced batches that take a given number of classes of each data set.

    Attributes:
        batch_size: Images a batch.
        per_class: Images a class and batch; divides `batch_size`.
        classes_per_source: Classes a batch takes of each data set, by its folder's name, or `demo` for the
            synthetic catalogs.
    """

    kind: Literal["source_balanced"] = "source_balanced"
    classes_per_source: dict[str, PositiveInt] = Field(min_length=1)

    @model_validator(mode="after")
    def _adds_up(self) -> SourceBalancedConfig:
        total = sum(self.classes_per_source.values()) * self.per_class
        if total != self.batch_size:
            raise ValueError(
                f"classes_per_source makes batches of {total} images, batch_size is {self.batch_size}: "
                f"use batch_size {total}"
            )
        return self


class HierarchicalConfig(_PerClass):
    """Batches whose halves come from two super-labels, `per_class` images of each class.

    Attributes:
        batch_size: Images a batch.
        per_class: Images a class and batch; twice of it divides `batch_size`.
    """

    kind: Literal["hierarchical"] = "hierarchical"

    @model_validator(mode="after")
    def _halves(self) -> HierarchicalConfig:
        _check_divides("twice per_class", self.per_class, self.batch_size, 2)
        return self


class GroupConfig(_Sampler):
    """Batches of `m` images of each of `n` classes, drawn anew each time and uniformly.

    Attributes:
        m: Images a class; classes with fewer are left out.
        n: Classes a batch.
    """

    kind: Literal["group"] = "group"
    m: int = Field(4, ge=2)
    n: int = Field(32, ge=2)

    @property
    def batch_size(self) -> int:
        """`m * n`."""
        return self.m * self.n

    @property
    def images_per_class(self) -> int:
        """`m`."""
        return self.m

    @property
    def max_per_class(self) -> int:
        """`m`."""
        return self.m

    @property
    def smallest_class(self) -> int:
        """`m`: images are drawn without replacement."""
        return self.m

    @property
    def batch_design(self) -> dict[str, Any]:
        """The fields of `models.losses.GroupBatch`."""
        return {"kind": self.kind, "m": self.m, "n": self.n}


class RandomPairsConfig(_Sampler):
    """Batches of pairs of images, a share of them of one class.

    Attributes:
        n_pairs: Pairs a batch.
        p: Probability that a pair is of one class.
    """

    kind: Literal["random_pairs"] = "random_pairs"
    n_pairs: int = Field(64, ge=2)
    p: float = Field(0.5, gt=0.0, lt=1.0)

    @property
    def batch_size(self) -> int:
        """Twice `n_pairs`."""
        return 2 * self.n_pairs

    @property
    def max_per_class(self) -> int:
        """All of the batch: pairs are drawn independently."""
        return self.batch_size

    @property
    def smallest_class(self) -> int:
        """2, what a positive pair needs."""
        return 2

    @property
    def batch_design(self) -> dict[str, Any]:
        """The fields of `models.losses.RandomPairs`."""
        return {"kind": self.kind, "p": self.p}


def _with_kind(fields: Any) -> Any:
    if isinstance(fields, Mapping) and "kind" not in fields:
        by_source = "classes_per_source" in fields
        return {**fields, "kind": "source_balanced" if by_source else "class_balanced"}
    return fields


# Without a kind: class-balanced, or source-balanced where `classes_per_source` says so.
SamplerConfig = Annotated[
    ClassBalancedConfig | SourceBalancedConfig | HierarchicalConfig | GroupConfig | RandomPairsConfig,
    Field(discriminator="kind"),
    BeforeValidator(_with_kind),
]


def _check_divides(what: str, per_class: int, batch_size: int, halves: int) -> None:
    unit = per_class * halves
    if batch_size % unit:
        raise ValueError(
            f"{what} {unit if halves == 1 else per_class} does not divide batch_size {batch_size}: "
            f"use {max(1, batch_size // unit) * unit}"
        )
