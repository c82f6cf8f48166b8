"""Matcher: from images, embeddings or items to the matches above the one threshold, or none."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from indexer.errors import BundleMismatchError, ItemNotFoundError
from indexer.gallery import Gallery
from indexer.snapshot import Snapshot
from models.decoding import ImageSource
from models.embedder import Embedder
from models.similarity import FloatArray, as_embeddings
from service.answers import Answer, Candidate, Threshold
from service.calibration_store import CalibrationRecord, CalibrationStore
from service.errors import RequestError
from service.pipeline import Pipeline, RerankChoice, choose_pipeline
from service.scorer import ScoredCandidates, Scorer

__all__ = ["Matcher"]

# Matches are counted among this many candidates, whatever the limit of the answer.
_N_CANDIDATES = 100
# A calibration is stale when more than this share of the items has changed since.
_STALE_SHARE = 0.2


@dataclass(frozen=True)
class _Call:
    """What all answers of one call have in common."""

    pipeline: Pipeline
    threshold: Threshold
    limit: int
    include_candidates: bool
    milliseconds: dict[str, float]


class Matcher:
    """Searches one version of a gallery.

    Args:
        gallery: The gallery.
        embedder: Embedder of the service's bundle.
        pipeline: What `auto` stands for.
        snapshot: The version to search; the active one when None.

    Raises:
        BundleMismatchError: The version was embedded with another bundle.
    """

    def __init__(
        self,
        gallery: Gallery,
        embedder: Embedder,
        pipeline: Pipeline | None = None,
        *,
        snapshot: Snapshot | None = None,
    ) -> None:
        self.gallery = gallery
        self.embedder = embedder
        self.pipeline = pipeline or Pipeline()
        self.snapshot = snapshot or gallery.snapshot()
        self.calibrations = CalibrationStore(gallery.calibrations_path)
        self._changed_since: dict[int, float] = {}
        expected, actual = embedder.bundle.fingerprint, self.snapshot.manifest.bundle
        if expected != actual:
            raise BundleMismatchError(gallery.name, expected, actual)

    def search(
        self,
        *,
        images: Sequence[ImageSource] | None = None,
        embeddings: npt.ArrayLike | None = None,
        item_ids: Sequence[str] | None = None,
        limit: int = 10,
        threshold: float | None = None,
        rerank: RerankChoice = "auto",
        include_candidates: bool = False,
    ) -> list[Answer]:
        """Answer each query.

        Args:
            images: Paths, encoded bytes or PIL images.
            embeddings: (d,) or (n, d) numbers, normalized or not.
            item_ids: Items of the gallery; each is searched for as if it were not in it.
            limit: Most matches, and most candidates, an answer holds.
            threshold: Score to decide by, in [0, 1], in place of the calibrated one.
            rerank: `auto` for the service's pipeline, `off` or `contextual`.
            include_candidates: Also list the best candidates below the threshold.

        Returns:
            One answer a query, in order.

        Raises:
            RequestError: Not exactly one kind of query, or an option is out of range.
            ImageError: An image cannot be used.
            EmbeddingError: An embedding has the wrong length or holds no numbers.
            ItemNotFoundError: There is no such item.
        """
        _check_options(limit, threshold, [images, embeddings, item_ids])
        milliseconds: dict[str, float] = {}
        queries, excluded = self._queries(images, embeddings, item_ids, milliseconds)
        scorer = Scorer(self.snapshot, choose_pipeline(self.pipeline, rerank))
        scored = scorer.score(queries, max(limit, _N_CANDIDATES), excluded=excluded)
        milliseconds.update({stage: 1e3 * spent for stage, spent in scored.seconds.items()})
        started = time.perf_counter()
        decided_by = self._threshold(scorer.pipeline, threshold)
        call = _Call(scorer.pipeline, decided_by, limit, include_candidates, milliseconds)
        answers = [self._answer(scored, row, call) for row in range(len(queries))]
        milliseconds["answer"] = 1e3 * (time.perf_counter() - started)
        return answers

    def _queries(
        self,
        images: Sequence[ImageSource] | None,
        embeddings: npt.ArrayLike | None,
        item_ids: Sequence[str] | None,
        milliseconds: dict[str, float],
    ) -> tuple[FloatArray, list[npt.NDArray[np.int64]] | None]:
        started = time.perf_counter()
        if item_ids is not None:
            positions = [self._position(item_id) for item_id in item_ids]
            return self.snapshot.embeddings[positions], [np.array([position]) for position in positions]
        if embeddings is not None:
            return as_embeddings(embeddings, self.snapshot.manifest.dim), None
        decoded = [self.embedder.decode(image) for image in images or ()]
        milliseconds["decode"] = 1e3 * (time.perf_counter() - started)
        started = time.perf_counter()
        embedded = self.embedder.finish(self.embedder.infer([self.embedder.prepare(i) for i in decoded]))
        milliseconds["embed"] = 1e3 * (time.perf_counter() - started)
        return embedded, None

    def _position(self, item_id: str) -> int:
        try:
            return self.snapshot.position(item_id)
        except KeyError as error:
            raise ItemNotFoundError(self.gallery.name, item_id) from error

    def _threshold(self, pipeline: Pipeline, given: float | None) -> Threshold:
        if given is not None:
            return Threshold(given, "request", reason="the threshold was given with the request")
        record = self.calibrations.active(pipeline)
        if record is None:
            return Threshold(reason=f"gallery '{self.gallery.name}' has no calibration for '{pipeline.key}'")
        if record.bundle != self.snapshot.manifest.bundle:
            return Threshold(reason=f"calibration {record.id} was made with bundle {record.bundle}")
        stale = self._staleness(record)
        return Threshold(
            value=record.threshold,
            source="by_hand" if record.source == "by_hand" else "calibration",
            target=str(record.target) if record.target else None,
            calibration=record.id,
            state="none" if record.source == "by_hand" else "stale" if stale else "true",
            reason="the threshold was set by hand" if record.source == "by_hand" else stale,
        )

    def _staleness(self, record: CalibrationRecord) -> str | None:
        share = self._share_changed_since(record.version)
        if share <= _STALE_SHARE:
            return None
        return f"{share:.0%} of the items have changed since calibration {record.id}: calibrate again"

    def _share_changed_since(self, version: int) -> float:
        if version == self.snapshot.manifest.version:
            return 0.0
        if version not in self._changed_since:
            self._changed_since[version] = self.gallery.share_changed(version, self.snapshot.manifest.version)
        return self._changed_since[version]

    def _answer(self, scored: ScoredCandidates, row: int, call: _Call) -> Answer:
        threshold = call.threshold.value
        n_valid = int(np.isfinite(scored.scores[row]).sum())
        n_matches = 0
        if threshold is not None:
            # The one place where a threshold is applied: on the final score, in full precision.
            n_matches = int((scored.scores[row, :n_valid] >= threshold).sum())
        n_shown = min(n_matches, call.limit)
        wants_rest = call.include_candidates or threshold is None
        n_rest = min(n_valid - n_matches, call.limit) if wants_rest else 0
        columns = [*range(n_shown), *range(n_matches, n_matches + n_rest)]
        found = self._candidates(scored, row, columns, call)
        manifest = self.snapshot.manifest
        return Answer(
            no_match=None if threshold is None else n_matches == 0,
            matches=found[:n_shown],
            candidates=found[n_shown:],
            threshold=call.threshold,
            gallery=self.gallery.name,
            version=manifest.version,
            bundle=manifest.bundle,
            pipeline=call.pipeline.key,
            milliseconds=call.milliseconds,
        )

    def _candidates(
        self, scored: ScoredCandidates, row: int, columns: list[int], call: _Call
    ) -> list[Candidate]:
        items = self.snapshot.items(scored.positions[row, columns].tolist())
        threshold = call.threshold.value
        is_contextual = call.pipeline.rerank.method == "contextual"
        return [
            Candidate(
                **item,
                rank=column + 1,
                score=float(scored.scores[row, column]),
                similarity=float(scored.similarities[row, column]),
                initial_similarity=float(scored.similarities[row, column]),
                contextual_similarity=float(scored.contextual[row, column]) if is_contextual else None,
                margin=None if threshold is None else float(scored.scores[row, column]) - threshold,
            )
            for column, item in zip(columns, items, strict=True)
        ]


def _check_options(limit: int, threshold: float | None, kinds: Sequence[object]) -> None:
    if sum(kind is not None for kind in kinds) != 1:
        raise RequestError("give exactly one of image, embedding and item_id")
    if limit < 1:
        raise RequestError(f"limit is {limit}, expected at least 1")
    if threshold is not None and not 0.0 <= threshold <= 1.0:
        raise RequestError(f"threshold is {threshold}, expected a score between 0 and 1")
