"""Comparison store: comparisons beside the reports of versions, and each in one line."""

from __future__ import annotations

from pydantic import ValidationError

from vicinal.indexer.gallery import Gallery
from vicinal.service.comparisons.version_record import PairedFigure, VersionComparison
from vicinal.service.errors import ComparisonNotFoundError, ComparisonRecordError

__all__ = ["comparison_summary", "latest_comparison", "read_comparison", "save_comparison", "summary_of"]


def save_comparison(gallery: Gallery, comparison: VersionComparison) -> None:
    """Keep a comparison; it is never changed.

    Raises:
        GalleryError: There is one of its name.
    """
    text = comparison.model_dump_json(indent=2) + "\n"
    gallery.reports.save_comparison(comparison.new.version, comparison.id, text)


def read_comparison(gallery: Gallery, version: int, name: str) -> VersionComparison | None:
    """A comparison by its name; None where there is none.

    Raises:
        ComparisonRecordError: It is damaged.
    """
    path = gallery.reports.comparisons(version).get(name)
    if path is None:
        return None
    try:
        return VersionComparison.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise ComparisonRecordError(
            f"comparison '{name}' of version {version} of gallery '{gallery.name}' is damaged: compare again"
        ) from error


def latest_comparison(gallery: Gallery, version: int) -> VersionComparison:
    """The newest comparison of a version.

    Raises:
        VersionNotFoundError: There is no such version.
        ComparisonNotFoundError: It was never compared.
        ComparisonRecordError: It is damaged.
    """
    names = list(gallery.reports.comparisons(version))
    found = read_comparison(gallery, version, names[-1]) if names else None
    if found is None:
        # An unknown version is said to be one.
        gallery.columns(version, ["id"])
        raise ComparisonNotFoundError(gallery.name, version)
    return found


def summary_of(gallery: Gallery, version: int) -> str | None:
    """The newest comparison of a version in one line; None where it was never compared."""
    try:
        return latest_comparison(gallery, version).summary if gallery.reports.comparisons(version) else None
    except ComparisonRecordError as error:
        return str(error)


def comparison_summary(comparison: VersionComparison) -> str:
    """What a person wants to know first, in one line."""
    parts = [f"against {comparison.old.version}"]
    parts += _change("R@1", comparison.hit_rate) + _change("FNIR", comparison.fnir)
    flips = comparison.gallery_flips
    if flips is not None:
        parts.append(f"{100 * flips.flipped.rate:.1f} % flipped")
    parts.append("calibrated" if comparison.calibration.calibration else "not calibrated")
    if comparison.decision is not None:
        parts.append("conditions hold" if comparison.decision.activate else "conditions do not hold")
    return ", ".join(parts)


def _change(name: str, figure: PairedFigure | None) -> list[str]:
    return [] if figure is None else [f"{name} {100 * figure.new:.1f} % ({100 * figure.difference:+.1f})"]
