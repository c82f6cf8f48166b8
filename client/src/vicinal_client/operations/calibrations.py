"""Calls about calibrations and comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from vicinal_client.models import ActivePipeline, Calibration, CalibrationHistory, Comparison, Job
from vicinal_client.operations.calls import Calls, admin_path, operation
from vicinal_client.options import CalibrationOptions, ComparisonOptions, PipelineOptions
from vicinal_client.requests import Image, Vector, given
from vicinal_client.retries import Steps

__all__ = ["CalibrationCalls"]


class CalibrationCalls(Calls):
    """Calibrations of a gallery, and comparisons of its variants."""

    @operation
    def start_calibration(
        self,
        /,
        gallery: str,
        *,
        images: Sequence[Image] | None = None,
        embeddings: Sequence[Vector] | None = None,
        labels: Sequence[str] | None = None,
        **options: Unpack[CalibrationOptions],
    ) -> Steps[Job]:
        """Find the threshold for a target, in a job whose id is that of the calibration.

        Without queries every labelled item of the gallery is left out once.

        Args:
            gallery: Name of the gallery.
            images: Labelled queries as images; with `labels`.
            embeddings: Labelled queries as embeddings; with `labels`.
            labels: Label of each query; one that the gallery lacks makes a query without a mate.
            options: See `CalibrationOptions`: target, queries (a source that the server reads), activate and
                others.
        """
        return (
            yield from self._start(
                admin_path(gallery, "calibrations"),
                given(**options),
                images=images,
                embeddings=embeddings,
                labels=labels,
            )
        )

    @operation
    def list_calibrations(self, gallery: str) -> Steps[CalibrationHistory]:
        """All calibrations, newest first, and what was in force when."""
        return (yield from self._ask("GET", admin_path(gallery, "calibrations"), CalibrationHistory))

    @operation
    def get_calibration(self, gallery: str, calibration: str) -> Steps[Calibration]:
        """Read a calibration with its evidence, and whether it still holds."""
        return (yield from self._ask("GET", admin_path(gallery, "calibrations", calibration), Calibration))

    @operation
    def activate_calibration(self, gallery: str, calibration: str) -> Steps[Calibration]:
        """Use a calibration from the next search with its pipeline on."""
        path = admin_path(gallery, "calibrations", calibration, "activate")
        return (yield from self._ask("POST", path, Calibration))

    @operation
    def roll_back(self, /, gallery: str, **options: Unpack[PipelineOptions]) -> Steps[Calibration]:
        """Put the calibration in force again that was before, for the pipeline of the options."""
        path = admin_path(gallery, "calibrations", "roll_back")
        return (yield from self._ask("POST", path, Calibration, json=given(**options)))

    @operation
    def put_threshold(
        self, /, gallery: str, threshold: float, **options: Unpack[PipelineOptions]
    ) -> Steps[Calibration]:
        """Use a threshold that was chosen by hand, in [0, 1], for the pipeline of the options."""
        body = {"threshold": threshold, **given(**options)}
        return (yield from self._ask("PUT", admin_path(gallery, "threshold"), Calibration, json=body))

    @operation
    def start_comparison(
        self,
        /,
        gallery: str,
        *,
        embeddings: Sequence[Vector] | None = None,
        labels: Sequence[str] | None = None,
        **options: Unpack[ComparisonOptions],
    ) -> Steps[Job]:
        """Try variants on the same queries, in a job whose id is that of the comparison.

        Args:
            gallery: Name of the gallery.
            embeddings: Labelled queries as embeddings; with `labels`.
            labels: Label of each embedding.
            options: See `ComparisonOptions`: versions, pipelines, target, queries and others.
        """
        path = admin_path(gallery, "comparisons")
        return (yield from self._start(path, given(**options), embeddings=embeddings, labels=labels))

    @operation
    def get_comparison(self, gallery: str, comparison: str) -> Steps[Comparison]:
        """Read a comparison."""
        return (yield from self._ask("GET", admin_path(gallery, "comparisons", comparison), Comparison))

    @operation
    def activate_variant(
        self, gallery: str, comparison: str, variant: int | None = None
    ) -> Steps[ActivePipeline]:
        """Use a compared variant and its threshold from now on; the recommended one when None."""
        path = admin_path(gallery, "comparisons", comparison, "activate")
        return (yield from self._ask("POST", path, ActivePipeline, json={"variant": variant}))

    @operation
    def get_pipeline(self, gallery: str) -> Steps[ActivePipeline]:
        """Read the pipeline that searches without further options are made with."""
        return (yield from self._ask("GET", admin_path(gallery, "pipeline"), ActivePipeline))

    @operation
    def reset_pipeline(self, gallery: str) -> Steps[ActivePipeline]:
        """Let the settings of the service choose the pipeline again."""
        path = admin_path(gallery, "pipeline")
        return (yield from self._ask("DELETE", path, ActivePipeline, repeatable=True))
