"""Kinds of jobs: all that a worker can do."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.galleries.change_notices import announce_change
from vicinal.service.jobs import JobKind
from vicinal.service.operations import Operation, calibrate, check, duplicates, fit, reindex
from vicinal.service.redis_link import RedisLink
from vicinal.service.surfaces.jobs import OperationJob
from vicinal.service.tasks.comparison_job import COMPARE, ComparisonJob

OPERATIONS: tuple[Operation[Any, Any], ...] = (
    calibrate.OPERATION,
    check.OPERATION,
    duplicates.OPERATION,
    fit.OPERATION,
    reindex.OPERATION,
)


@dataclass(frozen=True)
class JobKinds:
    """One of each kind, over the same bundles."""

    compare: ComparisonJob
    duplicates: DuplicatesJob
    operations: dict[str, OperationJob]

    @classmethod
    def of(cls, bundles: ServedBundles, link: RedisLink | None) -> JobKinds:
        """All kinds."""
        announce = partial(announce_change, link)
        return cls(
            compare=ComparisonJob(bundles),
            duplicates=DuplicatesJob(bundles.settings),
            operations={one.name: OperationJob(one, bundles, announce) for one in OPERATIONS},
        )

    def by_name(self) -> dict[str, JobKind]:
        """The kinds by the names that job records carry."""
        return {
            COMPARE: self.compare,
            DUPLICATES: self.duplicates,
            **self.operations,
        }
