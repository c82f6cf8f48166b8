"""Kinds of jobs: all that a worker can do."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.galleries.change_notices import announce_change
from vicinal.service.jobs import JobKind
from vicinal.service.operations import Operation, check, reindex
from vicinal.service.redis_link import RedisLink
from vicinal.service.surfaces.jobs import OperationJob
from vicinal.service.tasks.calibration_job import CALIBRATE, CalibrationJob
from vicinal.service.tasks.comparison_job import COMPARE, ComparisonJob
from vicinal.service.tasks.duplicates_job import DUPLICATES, DuplicatesJob
from vicinal.service.tasks.fit_job import FIT, FitJob

OPERATIONS: tuple[Operation[Any, Any], ...] = (check.OPERATION, reindex.OPERATION)


@dataclass(frozen=True)
class JobKinds:
    """One of each kind, over the same bundles."""

    calibrate: CalibrationJob
    compare: ComparisonJob
    duplicates: DuplicatesJob
    fit: FitJob
    operations: dict[str, OperationJob]

    @classmethod
    def of(cls, bundles: ServedBundles, link: RedisLink | None) -> JobKinds:
        """All kinds."""
        announce = partial(announce_change, link)
        return cls(
            calibrate=CalibrationJob(bundles, announce),
            compare=ComparisonJob(bundles),
            duplicates=DuplicatesJob(bundles.settings),
            fit=FitJob(bundles),
            operations={one.name: OperationJob(one, bundles, announce) for one in OPERATIONS},
        )

    def by_name(self) -> dict[str, JobKind]:
        """The kinds by the names that job records carry."""
        return {
            CALIBRATE: self.calibrate,
            COMPARE: self.compare,
            DUPLICATES: self.duplicates,
            FIT: self.fit,
            **self.operations,
        }
