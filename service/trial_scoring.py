"""Trial scoring: the scores that the matcher gives to labelled queries, with the labels behind them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from calibration import Margins, NegativeSimilarities, TrialLabels, Trials
from indexer.snapshot import Snapshot
from models.similarity import FloatArray
from service.labelled_queries import LabelledQueries
from service.scorer import ScoredCandidates, Scorer, similarity_score

__all__ = ["Impostors", "Measurement", "TrialScoring"]

Bools = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.unsignedinteger]
Floats = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]
OnProgress = Callable[[int, int], None]
Element = TypeVar("Element", bound=np.generic)

_CHUNK = 64
# The matcher counts matches among this many candidates.
_N_CANDIDATES = 100
_MOST_CANDIDATES = 1024


@dataclass(frozen=True)
class Impostors:
    """Candidates of the queries without a mate.

    Attributes:
        scores: (Q, w) final scores, -inf for padding.
        groups: (Q, w) number of each candidate's label; items without a label have a number of their own.
        n_groups: Labels that each query could reach, items without a label counted like labels.
    """

    scores: Floats
    groups: Positions
    n_groups: int

    def n_reached(self, threshold: float) -> Positions:
        """(Q,) labels with a candidate that reaches the threshold."""
        reached = np.sort(np.where(self.scores >= threshold, self.groups, -1), axis=1)
        is_new = np.diff(reached, axis=1, prepend=-1) > 0
        return np.asarray(np.minimum(is_new.sum(axis=1), self.n_groups))


@dataclass(frozen=True)
class Measurement:
    """What a calibration is made from.

    Attributes:
        trials: All scores, with labels.
        hit_rate_1: Share of queries with a mate whose best candidate is one; None without such queries.
        top_scores: (n,) best score of each query, its own label in the gallery where it has one.
        impostors: Candidates of the queries without a mate.
        margins: Margins on the cosine similarity that the negative pairs imply; None without such pairs.
    """

    trials: Trials
    hit_rate_1: float | None
    top_scores: Floats
    impostors: Impostors
    margins: Margins | None


@dataclass(frozen=True)
class _Part:
    """Scores of some queries; see `Trials`, `TrialLabels` and `Impostors`."""

    mates: Floats
    mate_codes: Codes
    non_mates: Floats
    query_codes: Codes
    item_codes: Codes
    best_mates: Floats
    hits: Bools
    has_mate: Bools
    candidates: _Candidates


@dataclass(frozen=True)
class _Candidates:
    """Candidates of some queries, and what of them is an answer with a known label."""

    scores: Floats
    groups: Positions
    answer_scores: Floats
    answer_is_mate: Bools
    answer_codes: Codes

    @property
    def best(self) -> Floats:
        return self.scores[:, 0]


class TrialScoring:
    """Scores labelled queries against one snapshot, by the code that serves queries.

    Args:
        snapshot: The gallery version.
        scorer: Scorer of the pipeline on it.
        names: Sorted labels of the gallery and of all queries.
    """

    def __init__(self, snapshot: Snapshot, scorer: Scorer, names: Sequence[str]) -> None:
        self.snapshot = snapshot
        self.scorer = scorer
        self._names = np.array(names, dtype=object)
        self._numbers = {name: number for number, name in enumerate(names)}
        self._type = np.min_scalar_type(len(names))
        labels = snapshot.labels
        self._is_labelled = np.array([label is not None for label in labels], dtype=bool)
        # Each item without a label gets a number beyond those of the labels.
        spare = len(names) + np.cumsum(~self._is_labelled) - 1
        self._groups = np.array(
            [self._numbers.get(label, own) for label, own in zip(labels, spare, strict=True)], dtype=np.int64
        )
        self._similarities = NegativeSimilarities()

    def measure(self, queries: LabelledQueries, on_progress: OnProgress) -> Measurement:
        """Score every query, once with its label in the gallery and, where all have mates, once without.

        Args:
            queries: Leave-one-out queries, or labelled ones from outside.
            on_progress: Called with finished and all queries.
        """
        self._similarities = NegativeSimilarities()
        n = len(queries.labels)
        parts = []
        for rows in _chunks(n):
            parts.append(self._measure_chunk(queries, rows))
            on_progress(rows.stop, n)
        has_mate = np.concatenate([part.has_mate for part in parts])
        first = [part.candidates for part in parts]
        answers, without, chosen = first, first, ~has_mate
        is_taken_out = queries.positions is not None or bool(has_mate.all())
        if is_taken_out:
            without = [self._measure_without_label(queries, rows) for rows in _chunks(n)]
            answers, chosen = first + without, np.ones(n, dtype=bool)
        hits = np.concatenate([part.hits for part in parts])
        return Measurement(
            trials=self._trials(queries, parts, answers, (without, chosen)),
            hit_rate_1=float(hits.mean()) if len(hits) else None,
            top_scores=np.maximum(np.concatenate([one.best for one in first]), 0.0),
            impostors=Impostors(
                _stack([one.scores for one in without], np.float64(-np.inf))[chosen],
                _stack([one.groups for one in without], np.int64(-1))[chosen],
                len(np.unique(self._groups)) - is_taken_out,
            ),
            margins=self._similarities.margins(),
        )

    def _trials(
        self,
        queries: LabelledQueries,
        parts: Sequence[_Part],
        answers: Sequence[_Candidates],
        without: tuple[Sequence[_Candidates], Bools],
    ) -> Trials:
        codes = self._codes(queries.labels)
        has_mate = np.concatenate([part.has_mate for part in parts])
        best = np.concatenate([one.best for one in without[0]])[without[1]]
        return Trials(
            mate_scores=np.concatenate([part.mates for part in parts]),
            non_mate_scores=np.concatenate([part.non_mates for part in parts]),
            best_mate_scores=np.concatenate([part.best_mates for part in parts]),
            # A label that fills the whole gallery leaves nothing to be drawn to.
            best_scores_without_mate=np.where(np.isfinite(best), best, 0.0),
            answer_scores=np.concatenate([one.answer_scores for one in answers]),
            answer_is_mate=np.concatenate([one.answer_is_mate for one in answers]),
            labels=TrialLabels(
                names=self._names,
                mates=np.concatenate([part.mate_codes for part in parts]),
                non_mate_queries=np.concatenate([part.query_codes for part in parts]),
                non_mate_items=np.concatenate([part.item_codes for part in parts]),
                best_mates=codes[has_mate],
                without_mate=codes[without[1]],
                answers=np.concatenate([one.answer_codes for one in answers]),
            ),
        )

    def _measure_chunk(self, queries: LabelledQueries, rows: slice) -> _Part:
        embeddings, codes = queries.embeddings[rows], self._codes(queries.labels[rows])
        own = None if queries.positions is None else [np.array([p]) for p in queries.positions[rows]]
        scored = self.scorer.score(embeddings, _N_CANDIDATES, excluded=own)
        if (scored.contextual[:, -1] > 0.0).any():
            # The last candidate still shares neighbors, as among many duplicates: so may the next items.
            scored = self.scorer.score(embeddings, _MOST_CANDIDATES, excluded=own)
        counts = np.broadcast_to(self._is_labelled, (len(codes), len(self._groups))).copy()
        if queries.positions is not None:
            counts[np.arange(len(codes)), queries.positions[rows]] = False
        is_mate = (codes[:, None] == self._groups) & counts
        is_negative = counts & ~is_mate
        similarities = np.clip(embeddings @ np.asarray(self.snapshot.embeddings).T, -1.0, 1.0)
        self._similarities.add(similarities[is_negative])
        scores = self._all_scores(similarities, scored)
        has_mate = is_mate.any(axis=1)
        negative_rows, negative_items = np.nonzero(is_negative)
        return _Part(
            mates=scores[is_mate],
            mate_codes=codes[np.nonzero(is_mate)[0]],
            non_mates=scores[is_negative],
            query_codes=codes[negative_rows],
            item_codes=self._groups[negative_items].astype(self._type),
            best_mates=np.where(is_mate, scores, -np.inf).max(axis=1)[has_mate],
            hits=is_mate[np.flatnonzero(has_mate), scored.positions[has_mate, 0]],
            has_mate=has_mate,
            candidates=self._candidates(scored, codes),
        )

    def _measure_without_label(self, queries: LabelledQueries, rows: slice) -> _Candidates:
        """Candidates of some queries, each searched for with its label taken out of the gallery."""
        codes = self._codes(queries.labels[rows])
        gone = [np.flatnonzero(self._groups == code) for code in codes]
        return self._candidates(
            self.scorer.score(queries.embeddings[rows], _N_CANDIDATES, excluded=gone), codes
        )

    def _candidates(self, scored: ScoredCandidates, codes: Codes) -> _Candidates:
        groups = np.where(scored.positions >= 0, self._groups[scored.positions], -1)
        counted = groups[:, :_N_CANDIDATES]
        is_answer = (counted >= 0) & (counted < len(self._names))
        rows = np.nonzero(is_answer)[0]
        return _Candidates(
            scores=scored.scores,
            groups=groups,
            answer_scores=scored.scores[:, :_N_CANDIDATES][is_answer],
            answer_is_mate=counted[is_answer] == codes[rows],
            answer_codes=codes[rows],
        )

    def _all_scores(self, similarities: FloatArray, scored: ScoredCandidates) -> Floats:
        """(B, n) final score of every item: items that are no candidates share no neighbor."""
        scores = similarity_score(similarities, self.scorer.pipeline.rerank.context_weight)
        rows, columns = np.nonzero(scored.positions >= 0)
        scores[rows, scored.positions[rows, columns]] = scored.scores[rows, columns]
        return scores

    def _codes(self, labels: npt.NDArray[np.object_]) -> Codes:
        return np.array([self._numbers[label] for label in labels], dtype=self._type)


def _chunks(n: int) -> Iterator[slice]:
    for start in range(0, n, _CHUNK):
        yield slice(start, min(start + _CHUNK, n))


def _stack(blocks: Sequence[npt.NDArray[Element]], filling: Element) -> npt.NDArray[Element]:
    stacked = np.full((sum(map(len, blocks)), max(block.shape[1] for block in blocks)), filling)
    row = 0
    for block in blocks:
        stacked[row : row + len(block), : block.shape[1]] = block
        row += len(block)
    return stacked
