"""Leave-one-out checks: what photos of one session, and near duplicates, make look better than it is."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from vicinal.calibration import Target, Trials, UnreachableTargetError, choose_threshold, operating_curve
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.hygiene import are_same_pictures
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.service.calibrator.evidence import ERROR_RATES, Grouping
from vicinal.service.calibrator.item_groups import PhotoGroups
from vicinal.service.calibrator.trials import Measurement

__all__ = ["measure_optimism", "picture_comparison"]

Bools = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.int64]


def measure_optimism(
    groups: PhotoGroups, grouped: Measurement, ungrouped: Measurement, target: Target
) -> Grouping:
    """Compare a calibration with the one that the same queries would have given without groups.

    Args:
        groups: Groups of the items.
        grouped: What was measured with them.
        ungrouped: What was measured without.
        target: What the threshold had to hold.
    """
    try:
        threshold = choose_threshold(ungrouped.trials, target)
    except UnreachableTargetError:
        threshold = None
    return Grouping(
        column=groups.column,
        n_groups=groups.n,
        n_without_group=sum(name is None for name in groups.names),
        ungrouped_threshold=threshold,
        promised=_rates(ungrouped, threshold),
        shown=_rates(grouped, threshold),
    )


def _rates(measured: Measurement, threshold: float | None) -> dict[str, float]:
    rates = {} if threshold is None else _error_rates(measured.trials, threshold)
    if measured.hit_rate_1 is not None:
        rates["hit_rate_1"] = measured.hit_rate_1
    return rates


def _error_rates(trials: Trials, threshold: float) -> dict[str, float]:
    curve = operating_curve(trials, [threshold])
    found = {name: float(getattr(curve, name)[0]) for name in ERROR_RATES}
    return {name: rate for name, rate in found.items() if not np.isnan(rate)}


def picture_comparison(gallery: Gallery, snapshot: Snapshot) -> Callable[[Positions, Positions], Bools]:
    """A function that tells which items at pairs of positions are almost the same picture.

    The stored thumbnails of 16 x 16 pixels are read when it is called: 768 bytes an item.

    Args:
        gallery: The gallery.
        snapshot: Its version.
    """

    def compare(first: Positions, second: Positions) -> Bools:
        column = gallery.columns(snapshot.manifest.version, ["signature"])["signature"]
        pixels = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
        signatures = pixels.reshape(len(snapshot), -1)
        return are_same_pictures(signatures[first], signatures[second])

    return compare
