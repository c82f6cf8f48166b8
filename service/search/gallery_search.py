"""Search of a gallery: from images, embeddings or items to the matches above the one threshold, or none."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from operator import attrgetter
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
from cachetools import LRUCache, cachedmethod

from vicinal.calibration.arrays import FloatArray, Floats, Ints
from vicinal.calibration.rates.guarantees import StrangerScores
from vicinal.indexer.errors import BundleMismatchError, ItemNotFoundError
from vicinal.indexer.filters import Filter
from vicinal.indexer.filters.order import Order
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.views.selection import Selection
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.indexer.views.view import GalleryView
from vicinal.models.decoding import ImageSource
from vicinal.models.embedder import Embedder
from vicinal.models.similarity import as_embeddings
from vicinal.refine.context_refiner import ContextRefiner
from vicinal.service.checked_calls import checked_options
from vicinal.service.errors import RequestError
from vicinal.service.request_fields import PipelineChoice, SearchOptions
from vicinal.service.search.answers import (
    Answer,
    Candidate,
    ExplainedRefinement,
    Explainer,
    Explanation,
    FoundGroup,
    Threshold,
    ThresholdsInForce,
    Verdict,
    stage_devices,
)
from vicinal.service.search.copies import copies_among
from vicinal.service.search.group_scores import GroupedCandidates
from vicinal.service.search.item_groups import BuiltGroups, ItemGroups
from vicinal.service.search.item_spaces import OpenedRefiner, is_excluded, open_refiner
from vicinal.service.search.pipeline import (
    ActivePipeline,
    Pipeline,
    PipelineSource,
    PipelineStore,
    choose_pipeline,
    service_pipeline,
)
from vicinal.service.search.scorer import N_DECIDED_CANDIDATES, ScoredCandidates, Scorer

# Filters whose selections are kept, and keys that items are grouped by.
_MOST_SELECTIONS = 8
_MOST_KEYS = 8
# Nearest items whose labels an unsure answer tells of.
_N_NEAREST = 12
# Photos of a group in an answer.
_MOST_PHOTOS = 4


@dataclass(frozen=True)
class EmbeddedImages:
    """Embedder's results for the images of a call."""

    rows: FloatArray  # (n, d) float32, L2-normalized
    milliseconds: dict[str, float]  # by stage


@dataclass(frozen=True)
class _Call:
    """Settings that all answers of one call have in common."""

    pipeline: Pipeline
    threshold: Threshold
    asked: SearchOptions
    n_searched: int
    milliseconds: dict[str, float]
    pipeline_source: Literal["request"] | PipelineSource
    strangers: StrangerScores | None
    groups: ItemGroups | None = None
    left_out: Sequence[list[str]] = ()


@dataclass(frozen=True)
class _Shown:
    """Decision on one query, and what its answer shows."""

    verdict: Verdict | None
    n_valid: int
    n_matches: int
    n_shown: int  # Places of matches; those behind are below the threshold
    places: list[int]  # Of items, or of groups
    columns: list[list[int]]  # Candidates of each place


# Name of the key that each query came with, where there are any.
Askers = Sequence[str | None] | None


class DifferentItems(Protocol):
    """Items that persons called different from a picture."""

    def of(self, queries: FloatArray, view: GalleryView, askers: Askers = None) -> list[Ints] | None:
        """Positions of those of each query, (B, d) initial embeddings; None where there are none for any."""


class GallerySearch:
    """Searches one state of a gallery; `service.measuring.matcher` says what by."""

    def __init__(
        self,
        gallery: Gallery,
        embedder: Embedder,
        view: GalleryView,
        thresholds: ThresholdsInForce,
        pipeline: Pipeline | None = None,
        *,
        refiner: ContextRefiner | None = None,
    ) -> None:
        self.gallery = gallery
        self.embedder = embedder
        self._default = pipeline or service_pipeline(Pipeline(), embedder.bundle)
        self.pipeline_store = PipelineStore(gallery.path)
        self._refiner = refiner
        self.different: DifferentItems | None = None
        self._refinements: dict[tuple[bool, int], OpenedRefiner | None] = {}
        self.view = view
        self._thresholds = thresholds
        self._selections: LRUCache[Any, Selection] = LRUCache(_MOST_SELECTIONS)
        self._groups: LRUCache[Any, ItemGroups] = LRUCache(_MOST_KEYS)
        # What a built version's items are grouped by; shared by all of its states.
        self._built_groups: dict[str, BuiltGroups] = {}
        self._lock = threading.Lock()
        expected, actual = embedder.bundle.fingerprint, self.snapshot.manifest.bundle
        if expected != actual:
            raise BundleMismatchError(gallery.name, expected, actual)

    @property
    def snapshot(self) -> Snapshot:
        """The version under the view, as it was built."""
        return self.view.snapshot

    @property
    def active_pipeline(self) -> ActivePipeline:
        """Pipeline that `auto` stands for, and why."""
        return self.pipeline_store.resolve(self._default, self.embedder.bundle)

    @property
    def pipeline(self) -> Pipeline:
        """Pipeline that `auto` stands for."""
        return self.active_pipeline.pipeline

    @property
    def is_group_open(self) -> bool:
        """Tell whether no settings and no comparison chose what is decided: items, or groups of them."""
        return self._default.group is None and self.active_pipeline.source != "comparison"

    def keep_of(self, other: GallerySearch) -> None:
        """Keep what the search of another state has found out, as far as it holds for this one."""
        self.pipeline_store = other.pipeline_store
        self.different = other.different
        if self.snapshot is other.snapshot:
            self._refinements = other._refinements
            self._built_groups = other._built_groups

    @property
    def refiner(self) -> ContextRefiner | None:
        """Refiner of the bundle, opened when it is first needed; None where it has none."""
        if self._refiner is None and self.embedder.bundle.manifest.refiner is not None:
            self._refiner = ContextRefiner(self.embedder.bundle)
        return self._refiner

    def refinement(self, pipeline: Pipeline) -> OpenedRefiner | None:
        """Refinement of a pipeline on this version, None when it refines nothing."""
        refine = pipeline.refine
        if refine.sides == "off":
            return None
        key = refine.of_gallery, refine.steps
        if key not in self._refinements:
            self._refinements[key] = open_refiner(pipeline, self.refiner, self.gallery.name, self.snapshot)
        return self._refinements[key]

    def prepare(self) -> None:
        """Refine the items that were added since the version was built, so that no search has to."""
        refinement = self.refinement(self.pipeline)
        if refinement is not None and refinement.space is not None:
            refinement.space.view(self.view)

    def search(
        self,
        *,
        images: Sequence[ImageSource] | None = None,
        embeddings: npt.ArrayLike | None = None,
        item_ids: Sequence[str] | None = None,
        embedded: EmbeddedImages | None = None,
        asked: SearchOptions | None = None,
        without: Sequence[str] | None = None,
        askers: Askers = None,
        **options: Any,
    ) -> list[Answer]:
        """Answer each query, in order.

        Args:
            images: Paths, encoded bytes or PIL images.
            embeddings: (d,) or (n, d) numbers, normalized or not.
            item_ids: Items of the gallery; each is searched for as if it were not in it.
            embedded: Images that were embedded before, by the matcher's embedder.
            asked: How to search, where that was looked at before.
            without: Items that count as not in the gallery; where it is given, even empty, nothing is left
                out because a person called it different.
            askers: Name of the key that each query came with: what that alone called different is left out.
            **options: Those of `SearchOptions`: `limit` (of matches and of candidates, or of groups of each),
                `threshold`, `refine`, `steps`, `rerank`, `group_by`, `filter` (which changes no score:
                see docs/serving.md), `sort_by`, `include_candidates` and `explain`.

        Raises:
            RequestError: Not exactly one kind of query, an option is out of range, or no item can be grouped.
            ImageError: An image cannot be used.
            EmbeddingError: An embedding has the wrong length or holds no numbers.
            ItemNotFoundError: There is no such item.
            FilterError: The filter cannot be used.
            RefinerNotFoundError: Refinement was asked for, and the bundle has no refiner.
            RefinementError: The refiner has fewer steps.
            GalleryNotRefinedError: The gallery's items were never refined so.
        """
        kinds = [images, embeddings, item_ids, embedded]
        if sum(kind is not None for kind in kinds) != 1:
            raise RequestError("give exactly one of image, embedding and item_id")
        asked = asked or checked_options(SearchOptions, options)
        condition = None if asked.filter is None else Filter.of(asked.filter)
        milliseconds: dict[str, float] = {} if embedded is None else embedded.milliseconds
        default = self.active_pipeline
        pipeline = self._named(default.pipeline, asked)
        named_by = default.source if pipeline == default.pipeline else "request"
        scorer = Scorer(self.view, pipeline, self.refinement(pipeline))
        groups = None if pipeline.group is None else self.groups(pipeline.group.by)
        if embedded is not None:
            queries, items = embedded.rows, None
        else:
            queries, items = self._queries(images, embeddings, item_ids, milliseconds)
        excluded = None if items is None else [items[i : i + 1] for i in range(len(items))]
        if without is not None:
            gone = self.view.positions(without)
            own = [gone[:0]] * len(queries) if excluded is None else excluded
            excluded = [np.union1d(one, gone[gone >= 0]) for one in own]
        selection = None
        if condition is not None:
            started = time.perf_counter()
            selection = self.selection(condition)
            milliseconds["filter"] = 1e3 * (time.perf_counter() - started)
        n_wanted = max(asked.limit, N_DECIDED_CANDIDATES)
        known = self.different if without is None else None
        different = None if known is None else known.of(queries, self.view, askers)
        n_fetched = n_wanted + max(map(len, different or ()), default=0)
        scored = scorer.score(queries, n_fetched, excluded=excluded, selection=selection, items=items)
        milliseconds.update({stage: 1e3 * spent for stage, spent in scored.seconds.items()})
        started = time.perf_counter()
        pipeline, decided_by = self._threshold_of(pipeline, asked.threshold, selection)
        n_searched = len(self.view if selection is None else selection)
        strangers = self._thresholds.strangers(decided_by)
        left_out: Sequence[list[str]] = ()
        if different is not None:
            # The threshold of groups says nothing of one item.
            lowest = None if groups is not None else decided_by.value
            scored, left_out = self._without(scored, different, n_wanted, lowest or 0.0)
            own = [one[:0] for one in different] if excluded is None else excluded
            excluded = [np.union1d(one, out) for one, out in zip(own, different, strict=True)]
        call = _Call(
            pipeline, decided_by, asked, n_searched, milliseconds, named_by, strangers, groups, left_out
        )
        grouped = None
        if groups is not None and pipeline.group is not None:
            table = groups.table(
                scored, excluded=excluded, selection=selection, group=pipeline.group, queries=queries
            )
            grouped = table.scored()
        answers = self._answers(scored, grouped, call)
        milliseconds["answer"] = 1e3 * (time.perf_counter() - started)
        if not asked.explain:
            return answers
        # GPUs cannot select.
        searched_on = scorer.space.device if selection is None else "cpu"
        devices = stage_devices(searched_on, self.embedder.runs_on)
        devices = {stage: devices.get(stage, "cpu") for stage in milliseconds}
        started = time.perf_counter()
        refined = self._refined(scorer, pipeline, queries, scored, items)
        milliseconds["explain"] = 1e3 * (time.perf_counter() - started)
        pairs = zip(answers, refined, strict=True)
        return [replace(one, explanation=Explanation(devices, way)) for one, way in pairs]

    def _refined(
        self,
        scorer: Scorer,
        pipeline: Pipeline,
        queries: FloatArray,
        scored: ScoredCandidates,
        items: Ints | None,
    ) -> Sequence[ExplainedRefinement | None]:
        """The way of each query through the refiner; None without one."""
        if self.refiner is None:
            return [None] * len(queries)
        n_steps, is_used = pipeline.refine.steps or self.refiner.n_steps, pipeline.refine.of_query
        explainer = Explainer(self.view, scorer.space, self.refiner, n_steps, is_used)
        return explainer.explain_all(queries, scored.positions, items)

    def chosen(self, choice: PipelineChoice) -> Pipeline:
        """The pipeline that a request names, with the form of group score that is in force for it."""
        named = self._named(self.pipeline, choice)
        if named.group is None:
            return named
        # Refused where nothing can be grouped.
        self.groups(named.group.by)
        return self._thresholds.with_form(named)

    def _named(self, default: Pipeline, choice: PipelineChoice | SearchOptions) -> Pipeline:
        return choose_pipeline(
            default,
            choice.rerank,
            refine=choice.refine,
            steps=choice.steps,
            group_by=choice.group_by,
            bundle=self.embedder.bundle,
        )

    # While the view lasts, a key groups the same items.
    @cachedmethod(attrgetter("_groups"), lock=attrgetter("_lock"))
    def groups(self, by: str) -> ItemGroups:
        """Groups of the items of the view, by `label` or a metadata key."""
        built = self._built_groups.get(by) or BuiltGroups.of(self.snapshot, by)
        groups = ItemGroups(self.view, built)
        # Only what groups something, so that there are no more than the items have keys.
        self._built_groups[by] = built
        return groups

    def _threshold_of(
        self, pipeline: Pipeline, threshold: float | None, selection: Selection | None
    ) -> tuple[Pipeline, Threshold]:
        """Threshold of a request, or the one in force, and the pipeline with the form of score it is of."""
        if threshold is None:
            in_force = self._thresholds.in_force(pipeline, selection)
            return self._thresholds.with_form(pipeline, in_force), in_force
        reason = "the threshold was given with the request"
        given = Threshold(threshold, source="request", state="by_hand", reason=reason)
        return self._thresholds.with_form(pipeline), given

    def _queries(
        self,
        images: Sequence[ImageSource] | None,
        embeddings: npt.ArrayLike | None,
        item_ids: Sequence[str] | None,
        milliseconds: dict[str, float],
    ) -> tuple[FloatArray, Ints | None]:
        """(B, d) initial embeddings, and (B,) positions of those that are items."""
        if item_ids is not None:
            positions = np.array([self._position(item_id) for item_id in item_ids], dtype=np.int64)
            vectors = self.view.vectors(positions)
            for place in np.flatnonzero(self.view.is_dead(positions)):
                raise ItemNotFoundError(self.gallery.name, item_ids[int(place)])
            return vectors, positions
        if embeddings is not None:
            return as_embeddings(embeddings, self.snapshot.manifest.dim), None
        return self.embedder.embed_queries(images or (), milliseconds), None

    def _position(self, item_id: str) -> int:
        try:
            return self.view.position(item_id)
        except KeyError as error:
            raise ItemNotFoundError(self.gallery.name, item_id) from error

    # While the view lasts, a filter selects the same items.
    @cachedmethod(attrgetter("_selections"), lock=attrgetter("_lock"))
    def selection(self, filter: Filter) -> Selection:
        """Items that a filter leaves."""
        return self.view.select(self.gallery.table.matching(self.view.revision, filter), filter)

    def _without(
        self, scored: ScoredCandidates, different: list[Ints], n: int, lowest: float
    ) -> tuple[ScoredCandidates, list[list[str]]]:
        """The first n candidates that nobody called different from their query, with the same scores; and the
        ids of the others of each query from the lowest score on.
        """
        is_out = is_excluded(scored.positions, different) & (scored.positions >= 0)
        is_told = is_out & (scored.scores >= lowest)
        told = [scored.positions[row, one] for row, one in enumerate(is_told)]
        return scored.without(is_out, n), [[one["id"] for one in self.view.items(part)] for part in told]

    def threshold(self, pipeline: Pipeline | None = None) -> Threshold:
        """Threshold that decides a search without further options."""
        return self._thresholds.in_force(pipeline or self.pipeline)

    def _answers(
        self, scored: ScoredCandidates, grouped: GroupedCandidates | None, call: _Call
    ) -> list[Answer]:
        """Answer to each query; items are read for all at once, which costs little more than for one."""
        all_shown = [self._shown(scored, grouped, row, call) for row in range(len(scored.positions))]
        columns = [[column for part in one.columns for column in part] for one in all_shown]
        positions = [scored.positions[row, own] for row, own in enumerate(columns)]
        items = iter(self.view.items(np.concatenate(positions)) if positions else ())
        found = [
            self._candidates(scored, row, own, list(islice(items, len(own))), call)
            for row, own in enumerate(columns)
        ]
        rows = zip(all_shown, found, strict=True)
        return [self._answer(scored, grouped, row, *one, call) for row, one in enumerate(rows)]

    def _shown(
        self, scored: ScoredCandidates, grouped: GroupedCandidates | None, row: int, call: _Call
    ) -> _Shown:
        scores = (scored if grouped is None else grouped).scores[row]
        n_valid, n_matches, verdict = _decided(scores, call.threshold)
        n_shown = min(n_matches, call.asked.limit)
        wants_rest = call.asked.include_candidates or call.threshold.value is None
        n_rest = min(n_valid - n_matches, call.asked.limit) if wants_rest else 0
        shown = self._sorted(scored, grouped, row, n_matches, call)[:n_shown]
        places = [*shown, *range(n_matches, n_matches + n_rest)]
        if grouped is None or call.groups is None:
            columns = [[place] for place in places]
        else:
            codes = call.groups.of_items(scored.positions[row, :N_DECIDED_CANDIDATES])
            order, wanted = np.argsort(codes, kind="stable"), grouped.codes[row, places]
            ends = (np.searchsorted(codes[order], wanted, side).tolist() for side in ("left", "right"))
            columns = [order[a : min(b, a + _MOST_PHOTOS)].tolist() for a, b in zip(*ends, strict=True)]
        return _Shown(verdict, n_valid, n_matches, n_shown, places, columns)

    def _answer(
        self,
        scored: ScoredCandidates,
        grouped: GroupedCandidates | None,
        row: int,
        shown: _Shown,
        found: list[Candidate],
        call: _Call,
    ) -> Answer:
        scores, manifest = (scored if grouped is None else grouped).scores[row], self.snapshot.manifest
        verdict, n_valid, n_shown = shown.verdict, shown.n_valid, shown.n_shown
        groups = None if grouped is None else self._found_groups(grouped, row, shown, found, call)
        n_best = sum(map(len, shown.columns[:n_shown]))
        return Answer(
            no_match=None if verdict is None else shown.n_matches == 0,
            verdict=verdict,
            reason=self._reason(scored, grouped, row, call) if verdict == "unsure" else None,
            p_value=call.strangers.p_value(float(scores[0])) if call.strangers and n_valid else None,
            top_score=float(scores[0]) if n_valid else None,
            left_out=call.left_out[row] if call.left_out else [],
            matches=found[:n_best],
            candidates=found[n_best:],
            threshold=call.threshold,
            gallery=self.gallery.name,
            version=manifest.version,
            revision=self.view.revision,
            n_searched=call.n_searched,
            bundle=manifest.bundle,
            pipeline=call.pipeline.key,
            milliseconds=call.milliseconds,
            pipeline_source=call.pipeline_source,
            groups=None if groups is None else groups[:n_shown],
            candidate_groups=None if groups is None else groups[n_shown:],
        )

    def _sorted(
        self, scored: ScoredCandidates, grouped: GroupedCandidates | None, row: int, n: int, call: _Call
    ) -> list[int]:
        """Places of the n matches in the order that was asked for."""
        if call.asked.sort_by is None or not n:
            return list(range(n))
        best = np.arange(n) if grouped is None else grouped.best[row, :n]
        positions = scored.positions[row, best]
        sequences = self.view.sequences(positions).tolist()
        return Order.parse(call.asked.sort_by).sorted(self.view.items(positions), sequences)

    def _reason(
        self, scored: ScoredCandidates, grouped: GroupedCandidates | None, row: int, call: _Call
    ) -> str:
        """Say what speaks for the best candidate of an unsure answer: its label's share and lead."""
        columns = np.flatnonzero(np.isfinite(scored.scores[row, :N_DECIDED_CANDIDATES])).tolist()
        labels = [one["label"] for one in self.view.items(scored.positions[row, columns])]
        if grouped is None:
            scores, label = scored.scores[row, columns], labels[0]
            others = scores[[one != label for one in labels]]
        else:
            # Not always that of the nearest item.
            scores, label = grouped.scores[row], labels[columns.index(int(grouped.best[row, 0]))]
            others = scores[1:][np.isfinite(scores[1:])]
        nearest, best = labels[:_N_NEAREST], float(scores[0])
        name = "without a label" if label is None else label
        said = f"{nearest.count(label)} of the {len(nearest)} nearest are {name}"
        said += f", {(call.threshold.value or 0.0) - best:.3f} below the threshold"
        if len(others):
            said += f"; the next {'product' if grouped else 'label'} is {best - float(others[0]):.3f} lower"
        return said

    def _found_groups(
        self, grouped: GroupedCandidates, row: int, shown: _Shown, found: list[Candidate], call: _Call
    ) -> list[FoundGroup]:
        if call.groups is None:
            return []
        items, groups = iter(found), []
        for place, part in zip(shown.places, shown.columns, strict=True):
            photos, score = list(islice(items, len(part))), float(grouped.scores[row, place])
            groups.append(
                FoundGroup(
                    group=call.groups.name(int(grouped.codes[row, place])),
                    label=photos[0].label,
                    rank=place + 1,
                    score=score,
                    margin=None if call.threshold.value is None else score - call.threshold.value,
                    n_items=int(grouped.sizes[row, place]),
                    items=photos,
                )
            )
        return groups

    def _candidates(
        self,
        scored: ScoredCandidates,
        row: int,
        columns: list[int],
        items: list[dict[str, Any]],
        call: _Call,
    ) -> list[Candidate]:
        copies = self._copies(scored.positions[row], columns) if call.asked.mark_copies else {}
        # The threshold of groups says nothing of one item.
        threshold = call.threshold.value if call.groups is None else None
        is_contextual = call.pipeline.rerank.method != "off"
        values = (scored.scores, scored.similarities, scored.initial_similarities, scored.contextual)
        numbers = (one[row, columns].tolist() for one in values)
        return [
            Candidate(
                **item,
                rank=column + 1,
                score=score,
                similarity=similarity,
                initial_similarity=initial,
                contextual_similarity=contextual if is_contextual else None,
                margin=None if threshold is None else score - threshold,
                copy_of=copies.get(column),
            )
            for column, item, score, similarity, initial, contextual in zip(
                columns, items, *numbers, strict=True
            )
        ]

    def _copies(self, positions: Ints, columns: list[int]) -> dict[int, str]:
        """Id of the better item that the item of a column is a copy of, by those columns that are copies."""
        best_first = sorted(columns)
        first = copies_among(self.view, self.gallery.table, positions[best_first])
        found = {column: best_first[one] for column, one in zip(best_first, first, strict=True) if one >= 0}
        ids = [one["id"] for one in self.view.items(positions[list(found.values())])]
        return dict(zip(found, ids, strict=True))


def _decided(scores: Floats, threshold: Threshold) -> tuple[int, int, Verdict | None]:
    """Candidates, matches and verdict of a query: the one place where a threshold is applied, unrounded."""
    n_valid = int(np.isfinite(scores).sum())
    if threshold.value is None:
        return n_valid, 0, None
    n_matches = int((scores[:n_valid] >= threshold.value).sum())
    if n_matches:
        return n_valid, n_matches, "match"
    is_unsure = n_valid and threshold.unsure_from is not None and scores[0] >= threshold.unsure_from
    return n_valid, 0, "unsure" if is_unsure else "no_match"
