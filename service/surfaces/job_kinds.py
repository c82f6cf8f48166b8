"""Kinds of jobs: all that a worker can do."""

from __future__ import annotations

from functools import partial
from typing import Any

from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.galleries.change_notices import announce_change
from vicinal.service.operations import Operation, calibrate, check, compare, duplicates, fit, reindex
from vicinal.service.redis_link import RedisLink
from vicinal.service.surfaces.jobs import OperationJob

OPERATIONS: tuple[Operation[Any, Any], ...] = (
    calibrate.OPERATION,
    check.OPERATION,
    compare.OPERATION,
    duplicates.OPERATION,
    fit.OPERATION,
    reindex.OPERATION,
)


def job_kinds(bundles: ServedBundles, link: RedisLink | None) -> dict[str, OperationJob]:
    """Jobs of each kind over the same bundles, by the names that job records carry."""
    announce = partial(announce_change, link)
    return {one.name: OperationJob(one, bundles, announce) for one in OPERATIONS}
