"""Answers of the server as frozen models; what they do not type is kept in `model_extra`.

Made from `openapi.json` by `client/generate.py`: `make openapi`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from vicinal_client.bases import Ending, Model

__all__ = [
    "Activation",
    "ActivePipeline",
    "AddedItem",
    "AddedSearch",
    "Addition",
    "Alias",
    "AliasList",
    "Answer",
    "BatchAnswer",
    "BroughtBack",
    "Calibration",
    "CalibrationHistory",
    "CalibrationRecord",
    "CalibrationSummary",
    "Candidate",
    "CompactionState",
    "Comparison",
    "DecidedSearches",
    "DeletedSearches",
    "Deletion",
    "Disagreement",
    "ExplainedRefinement",
    "Explanation",
    "FoundGroup",
    "FoundItem",
    "Gallery",
    "GalleryCalibration",
    "GalleryList",
    "GalleryState",
    "GivenAnswer",
    "GivenAnswers",
    "Item",
    "ItemPage",
    "Job",
    "JobFailure",
    "JobList",
    "JobProgress",
    "KeptCandidate",
    "KeptSearch",
    "KeptSearchPage",
    "KnownAnswers",
    "LabelCount",
    "LabelList",
    "Limits",
    "MetadataKey",
    "MetadataKeyList",
    "MetadataValue",
    "PassedSearch",
    "Rates",
    "Readiness",
    "RefusedAnswer",
    "RefusedItem",
    "RemovedItem",
    "Rights",
    "SearchAdditions",
    "SearchAnswer",
    "SearchQuestion",
    "SearchQuestions",
    "SentItem",
    "SetAsideItem",
    "SetAsideList",
    "Standing",
    "StorageUse",
    "TakenBack",
    "Target",
    "Threshold",
    "Variant",
    "Version",
    "VersionList",
    "WrongMatch",
]


class Activation(Model):
    """Change of what is in force: `activate`, or `roll_back` to what was in force before.

    Attributes:
        kind: One of `activate`, `roll_back`.
    """

    kind: str
    pipeline: str
    calibration: str
    at: datetime | None


class ActivePipeline(Model):
    """Pipeline that `auto` stands for in the searches of a gallery.

    Attributes:
        version: The version that is searched.
        source: One of `settings`, `comparison`, `calibration`.
        comparison: The comparison that it comes from.
        calibration: The calibration that decides its searches.
        since: When it was put in force.
        threshold: What decides its searches.
        state: One of `current`, `stale`, `broken`, `default`, `by_hand`, `none`.
        reason: Why a pipeline that was chosen is not used.
    """

    version: int
    pipeline: str
    source: str
    comparison: str | None
    calibration: str | None
    since: datetime | None
    threshold: float | None
    state: str
    reason: str | None


class SentItem(Model):
    """Image or embedding of a request, and the id that it has or would have got.

    Attributes:
        place: Its place in the request, from 0.
    """

    place: int
    id: str
    filename: str | None


class AddedItem(SentItem):
    """An item that is in the gallery now.

    Attributes:
        replaced: Whether there was an item of this id before.
    """

    replaced: bool


class AddedSearch(Model):
    """Search that became an item."""

    search_id: str
    item_id: str
    label: str


class RefusedItem(SentItem):
    """An image or embedding that is not in the gallery, and why.

    Attributes:
        type: Problem type, as if it had been sent alone.
    """

    type: str
    reason: str


class Addition(Model):
    """Outcome for the images or embeddings that were sent.

    Attributes:
        unchanged: Those that were there already under their id.
        skipped: Those whose id belongs to another one, with `skip`.
        n_items: Items in the gallery now.
        revision: State of the gallery that holds them; searches see it from now on.
    """

    added: list[AddedItem]
    unchanged: list[SentItem]
    skipped: list[SentItem]
    refused: list[RefusedItem]
    n_items: int
    revision: int


class Alias(Model):
    """Alias of a gallery.

    Attributes:
        gallery: Name of the gallery that it stands for.
    """

    alias: str
    gallery: str


class AliasList(Model):
    """All aliases."""

    aliases: list[Alias]


class Candidate(Model):
    """Scored item.

    Attributes:
        rank: From 1.
        score: Final score in [0, 1]; the threshold is applied to this.
        similarity: Cosine of the embeddings that were matched.
        initial_similarity: Cosine of the embeddings before refinement.
        contextual_similarity: How alike the neighborhoods are: the share of common neighbors; null when off.
        margin: Score minus threshold; null without one.
        copy_of: Better item of the answer that shows almost the same picture; null where there is none, or
            `mark_copies` was not asked for.
    """

    id: str
    label: str | None
    metadata: dict[str, Any]
    uri: str
    rank: int
    score: float
    similarity: float
    initial_similarity: float
    contextual_similarity: float | None
    margin: float | None
    copy_of: str | None = None


class Threshold(Model):
    """Threshold that an answer was decided by.

    Attributes:
        value: Lowest accepted score; null when there is no calibration and none was given.
        unsure_from: Lowest score of an answer that is unsure rather than no match; null where the calibration
            draws one line.
        source: One of `calibration`, `by_hand`, `request`, `bundle`, `none`.
        target: The rate that the threshold holds, such as `FPIR 5 %`.
        calibration: Id of the calibration record.
        state: `current`: calibrated for this pipeline, bundle and gallery; `stale`: it was, but the gallery
            has changed; `broken`: new photos were tried, and what was promised does not hold; `default`: the
            bundle's own, which was not measured on this gallery; `by_hand`: somebody chose it, here or with
            the request; `none`: there is none.
        reason: Why the state is not `current`.
        note: What else to know of the rate: what a filter means for it, or that searches have drifted.
        drift: `strong`: searches no longer look like the calibration's queries, so that its rates may not
            hold; the threshold still decides.
    """

    value: float | None
    unsure_from: float | None
    source: str
    target: str | None
    calibration: str | None
    state: str
    reason: str | None
    note: str | None
    drift: str | None


class FoundGroup(Model):
    """Scored group of items, such as a product, with its best photos.

    Attributes:
        group: Its label or value of the metadata key; null for an item without one, alone.
        label: Label of its best photo.
        rank: From 1.
        score: Score of the group in [0, 1]; the threshold is applied to this.
        margin: Score minus threshold; null without one.
        n_items: Items of it that could be found: those that fulfil the filter.
        items: Its best photos, at most 4, best first; they have no margin of their own.
    """

    group: str | None
    label: str | None
    rank: int
    score: float
    margin: float | None
    n_items: int
    items: list[Candidate]


class ExplainedRefinement(Model):
    """The way of a query's embedding through the refiner.

    Attributes:
        refiner: Fingerprint of the refiner.
        is_used: Whether the search refined the query; if not, this is what would become of it.
        cosines: Cosine of the embedding before refinement to that after 0, 1, … steps.
        candidate: Id of the best candidate.
    """

    refiner: str
    is_used: bool
    cosines: list[float]
    candidate: str | None


class Explanation(Model):
    """Explanation of what a search did with a query.

    Attributes:
        devices: What each stage of the search ran on: `cpu`, the GPUs of the index, or the provider of ONNX
            Runtime that embeds, with its GPU. Beside a GPU, items that were added since are the processor's.
            The neighbors that `refine` takes are found where `search` says.
        refinement: What the refiner does with the query; null where the bundle has none.
    """

    devices: dict[str, str]
    refinement: ExplainedRefinement | None


class Answer(Model):
    """Answer to one query.

    Attributes:
        no_match: Null when there is no threshold to decide by.
        verdict: `match`: something reaches the threshold; `unsure`: the best score lies so little below it
            that the calibration cannot tell; `no_match`: neither. Null when there is no threshold.
        reason: What speaks for a match, where the verdict is `unsure`; else null.
        p_value: Share of labels that the gallery lacks whose queries would score as high, as the calibration
            measured it; null without one.
        left_out: Items that score as high as a match, and were left out: a person said that they are not what
            this very picture shows. With groups, all such items that were considered.
        matches: Items whose score reaches the threshold, best first; with groups, the photos of the groups
            that do, group by group.
        candidates: Best items below the threshold: on request, or when there is no threshold; with groups,
            the photos of such groups.
        version: The built version that was searched.
        revision: The state of its live changes that was searched; answers with one are of one state.
        n_searched: Number of items that could have been matches.
        pipeline_source: What named it: the request, a comparison or calibration that put it in force for the
            gallery, or the settings. One of `settings`, `comparison`, `calibration`.
        milliseconds: Time by stage; in a batch, of the whole batch.
        groups: Groups whose score reaches the threshold, best first; null where every item is decided by
            itself.
        candidate_groups: Best groups below the threshold, as `candidates`; null without groups.
        explanation: Null unless asked for with `explain`.
        search_id: Id of the search where it is kept, to say later what was right; else null.
    """

    no_match: bool | None
    verdict: str | None
    reason: str | None
    p_value: float | None
    left_out: list[str]
    matches: list[Candidate]
    candidates: list[Candidate]
    threshold: Threshold
    gallery: str
    version: int
    revision: int
    n_searched: int
    bundle: str
    pipeline: str
    pipeline_source: str
    milliseconds: dict[str, float]
    groups: list[FoundGroup] | None
    candidate_groups: list[FoundGroup] | None
    explanation: Explanation | None
    search_id: str | None


class BatchAnswer(Model):
    """Answers in the order of the queries."""

    answers: list[Answer]


class BroughtBack(Model):
    """Item that is found again.

    Attributes:
        n_items: Items in the gallery now.
    """

    id: str
    n_items: int


class GalleryCalibration(Model):
    """The calibration in use."""

    id: str
    target: str | None
    threshold: float
    rates: dict[str, float | None] | None


class Rates(Model):
    """Error rates at the threshold; None where there was nothing to measure it on.

    Attributes:
        far: Share of negative pairs accepted.
        frr: Share of positive pairs rejected.
        fpir: Share of queries without a mate that get any match.
        fnir: Share of queries with a mate that get none of their mates.
        hit_rate_1: Share of queries with a mate whose best candidate is one; no threshold involved.
    """

    far: float | None
    frr: float | None
    fpir: float | None
    fnir: float | None
    hit_rate_1: float | None


class CalibrationSummary(Model):
    """Record of the history.

    Attributes:
        source: One of `leave_one_out`, `queries`, `searches`, `answers`, `by_hand`.
        rates: Null for a threshold set by hand.
        bundle: Fingerprint of the bundle: scores of two bundles cannot be compared.
        is_active: Whether searches with its pipeline use it.
        state: What answers decided by it say; null where it is not in force. One of `current`, `stale`,
            `broken`, `default`, `by_hand`, `none`.
        reason: Why the state is not `current`.
    """

    id: str
    created_at: datetime
    source: str
    target: str | None
    threshold: float
    rates: Rates | None
    pipeline: str
    bundle: str
    version: int
    n_items: int
    is_active: bool
    state: str | None = None
    reason: str | None


class CalibrationHistory(Model):
    """Records of a gallery, newest first, and what was in force when.

    Attributes:
        activations: Oldest first.
    """

    calibrations: list[CalibrationSummary]
    activations: list[Activation]


class Target(Model):
    """Target that the threshold must hold.

    Attributes:
        rate: `far` (share of negative pairs accepted), `frr` (share of positive pairs rejected), `fpir`
            (share of queries without a mate that get any match), `fnir` (share of queries with a mate that
            get none of theirs), `precision` (share of the returned matches that are mates, over queries with
            and without a mate), or `utility` (within the calibration range of OPIS).
        value: For an error rate the highest that is allowed, in (0, 0.5]. For `precision` the lowest that is
            allowed, in [0.5, 1). For `utility` the share of the classes, the worst ones, whose mean utility
            shall be largest, in (0, 1].
        sure: How surely an FPIR or FNIR is held for labels that nobody has seen: a confidence in (0, 1), or
            `mean`, which holds it in the mean over them (`calibration.rates.guarantees`). None counts the
            trials and leaves what unseen labels will show to the interval.
    """

    rate: str
    value: float
    sure: float | str | None = None


class CalibrationRecord(Model):
    """Threshold, what it was measured on, and what it holds for.

    Attributes:
        source: `leave_one_out` over the gallery, labelled `queries`, answers to `searches` that a service
            kept, `answers` about pairs of photos, or set `by_hand`.
        target: The rate that was asked for; None when set by hand.
        threshold: Lowest accepted final score, in full precision.
        bundle: Fingerprint of the bundle.
        version: Gallery version that was searched.
        n_items: Its size; FPIR grows with the gallery.
        n_with_mate: Queries with a mate.
        n_without_mate: Queries without; in leave-one-out each query again, with its label taken out.
        n_labels: Labels among the queries.
        warnings: What could make the rates too good.
    """

    id: str
    created_at: datetime
    source: str
    target: Target | None
    threshold: float
    rates: Rates | None
    bundle: str
    version: int
    n_items: int
    n_with_mate: int = 0
    n_without_mate: int = 0
    n_labels: int = 0
    warnings: list[str] = Field(default_factory=list)


class Calibration(Model):
    """Record, and how it stands to the gallery as it is.

    Attributes:
        is_active: Whether searches with its pipeline use it.
        state: What answers decided by it say; `none`: it is of another bundle or gallery. One of `current`,
            `stale`, `broken`, `default`, `by_hand`, `none`.
        reason: Why the state is not `current`.
        last_check: Whether what it promised held for new photos, when that was tried last.
    """

    record: CalibrationRecord
    is_active: bool
    active_since: datetime | None
    state: str
    reason: str | None
    last_check: dict[str, Any] | None = None


class CompactionState(Model):
    """State of a gallery's live changes: how far they are from being a new version.

    Attributes:
        state: In the server that answers. One of `idle`, `due`, `running`.
        n_changes: What searches carry along because of live changes.
        version: Version that this server made last.
        problem: Why its last attempt failed.
    """

    state: str
    n_changes: int
    version: int | None
    problem: str | None


class Variant(Model):
    """A version of the gallery, with its bundle, searched with one pipeline.

    Attributes:
        bundle: Fingerprint of the version's bundle.
        problem: Why it cannot be put in force; None when it can.
    """

    version: int
    bundle: str
    problem: str | None


class Comparison(Model):
    """Several variants of a gallery on the same queries; never changed.

    Attributes:
        id: Its name, that of its job.
        n_with_mate: Those with a mate in every variant.
        variants: The present one first.
        recommended: Number of the variant to use.
    """

    id: str
    created_at: datetime
    gallery: str
    n_queries: int
    n_with_mate: int
    n_labels: int
    variants: list[Variant]
    recommended: int
    reason: str
    warnings: list[str]


class FoundItem(Model):
    """Best item of a label or group, with the score that decides."""

    id: str
    label: str | None
    score: float


class WrongMatch(Model):
    """Account of what a match that was called wrong rests on, by today's gallery.

    Attributes:
        score: Best score of its label, or of its group, today; null where it is no candidate.
        carrier: The item without which this would be no match of that label; null where there is none.
        score_without: Best score of the label, or of its group, without the item; null where none is left.
        verdict_without: What would be answered without the item. One of `match`, `unsure`, `no_match`.
        best_without: The best item then, whatever its label.
        n_right: Other kept searches, of the newest, that it decided, and rightly.
        n_wrong: Other kept searches that it decided, and wrongly.
        n_untold: Other kept searches that it decided, of which nobody says so.
        sentence: All of it in a sentence or two.
    """

    item_id: str
    label: str | None
    score: float | None
    threshold: float | None
    carrier: FoundItem | None
    score_without: float | None
    verdict_without: str | None
    best_without: FoundItem | None
    n_right: int
    n_wrong: int
    n_untold: int
    sentence: str


class DecidedSearches(WrongMatch):
    """The same, and which searches these are.

    Attributes:
        right: Ids of kept searches.
    """

    right: list[str]
    wrong: list[str]
    untold: list[str]


class DeletedSearches(Model):
    """Outcome of a deletion of kept searches.

    Attributes:
        deleted: Searches that are gone, with their pictures and answers.
    """

    deleted: int


class Deletion(Model):
    """Outcome of a deletion.

    Attributes:
        removed: Items that are gone; an id that was sent twice counts once.
        n_items: Items in the gallery now.
        revision: State of the gallery without them; searches see it from now on.
    """

    removed: int
    n_items: int
    revision: int


class SearchAnswer(Model):
    """Answer of a person to a kept search.

    Attributes:
        number: By which it can be taken back.
        kind: `item` or `label`: this is it; `absent`: the gallery lacks it; `unsure`: it cannot be told;
            `wrong`: the match `item_id` is not it, which says nothing of the others.
        label: With `item` the label that the item had when this was said.
        by: Name of the key that said it, or of who used the command.
    """

    number: int
    search_id: str
    kind: str
    item_id: str | None
    label: str | None
    by: str
    at: datetime


class Disagreement(Model):
    """Search of which two persons say what cannot both hold."""

    search_id: str
    answers: list[SearchAnswer]


class Standing(Model):
    """Standing of a gallery's promise: how far it can be relied on.

    Attributes:
        word: `holds`: measured, and nothing speaks against it; `unsure`: the gallery has changed since;
            `broken`: new photos were tried, and it does not hold; `drifting`: searches are other ones than
            then; `never_measured`; `by_hand`: somebody chose the threshold; `unusable`: its record cannot be
            used.
        sentence: The same for people, with what would help.
    """

    word: str
    sentence: str


class Gallery(Model):
    """Gallery as it is.

    Attributes:
        aliases: Further names that it is reached by.
        version: The built version that is searched.
        revision: The state of its live changes.
        graph_staleness: Share of the items that changed since the neighbor lists of all items were made.
        threshold: What searches without further options are decided by, and whether it holds; null when the
            calibration cannot be used.
        promise: Sentences on what the threshold lets expect: first how many matches are right, how many
            things are found and how many strangers get a match, or what a check found broken. Empty without a
            calibration.
        calibration_problem: Why the calibration cannot be used.
        promise_in_short: One line on how many matches are right and how many things are found, as measured.
        standing: How far that can be relied on.
        changed_at: When what is searched changed last.
        takes: What items are made of. One of `images`, `embeddings`.
        kept_searches: Searches that are kept to be asked about; null where their file cannot be read.
        kept_searches_bytes: What these take on the disk.
    """

    name: str
    aliases: list[str] = Field(default_factory=list)
    version: int
    revision: int
    n_items: int
    n_labels: int
    graph_staleness: float
    dim: int
    index: str
    bundle: str
    bundle_name: str
    calibration: GalleryCalibration | None
    threshold: Threshold | None = None
    promise: list[str]
    calibration_problem: str | None
    promise_in_short: str | None = None
    standing: Standing | None = None
    changed_at: datetime | None = None
    takes: str = "images"
    kept_searches: int | None
    kept_searches_bytes: int


class GalleryList(Model):
    """All galleries.

    Attributes:
        galleries: Those that can be searched.
        problems: Why each of the others cannot be searched, by name.
    """

    galleries: list[Gallery]
    problems: dict[str, str] = Field(default_factory=dict)


class GalleryState(Model):
    """State of a gallery: whether it can be searched, and how searches without further options are made.

    Attributes:
        problem: Why not; null when it can.
        bundle: Fingerprint of the bundle that it is searched with; null when it cannot be.
        calibration: Whether the threshold of searches without further options is calibrated. One of
            `current`, `stale`, `broken`, `default`, `by_hand`, `none`.
        calibration_reason: Why it is not `current`.
    """

    name: str
    problem: str | None
    bundle: str | None
    calibration: str = "none"
    calibration_reason: str | None = None


class GivenAnswer(SearchAnswer):
    """An answer that is kept, and what it comes to.

    Attributes:
        sentence: What is known by now.
        disagrees: What another person said of it that cannot hold too; or null.
        note: What to know of the search: that it is of an older version, say.
        why: What a match that was just called wrong rests on; null for any other answer.
    """

    sentence: str
    disagrees: str | None
    note: str | None
    why: WrongMatch | None


class RefusedAnswer(Model):
    """Answer that could not be kept.

    Attributes:
        place: Its place in what was sent, from 0.
        type: Problem type, as an answer of the service would carry it.
    """

    place: int
    type: str
    reason: str


class GivenAnswers(Model):
    """Outcome of each of several answers.

    Attributes:
        given: In the order in which they were sent; null for one that was refused.
        sentence: What is known by now.
    """

    given: list[GivenAnswer | None]
    refused: list[RefusedAnswer]
    sentence: str


class Item(Model):
    """Item of a gallery."""

    id: str
    label: str | None
    uri: str
    metadata: dict[str, Any]


class ItemPage(Model):
    """Page of items.

    Attributes:
        next: Cursor of the next page; null at the end.
        n_items: Items on all pages.
    """

    items: list[Item]
    next: str | None
    n_items: int | None = None


class JobFailure(Model):
    """File that could not be used, and why."""

    id: str
    path: str
    reason: str


class JobProgress(Model):
    """Progress of a job.

    Attributes:
        stage: What it does at the moment; None before it starts.
        stage_done: Finished units of that stage.
        stage_total: All units of that stage.
        total: Items of the source.
        done: Items that this attempt finished.
        failed: Items that cannot be used.
        skipped: Items that an earlier attempt had finished.
        rate: Units of the stage a second, in this attempt; None before the first.
        seconds_left: Estimate for the stage.
        failures: The first files that cannot be used.
    """

    stage: str | None = None
    stage_done: int = 0
    stage_total: int = 0
    total: int = 0
    done: int = 0
    failed: int = 0
    skipped: int = 0
    rate: float | None = None
    seconds_left: float | None = None
    failures: list[JobFailure] = Field(default_factory=list)


class Job(Ending):
    """Job as it is recorded.

    Attributes:
        kind: What it does, such as `reindex`.
        gallery: The gallery it works on; one job a gallery.
        cancel_requested: Whether somebody wants it cancelled; filled in when a record is read.
        revision: Grows by one with every change of the record.
        attempt: How often it was begun; more than once when a worker died.
        problem_type: Stable type of that problem, as an answer would carry it.
        problem_members: What else a program can read of it.
    """

    id: str
    kind: str
    gallery: str
    request: dict[str, Any]
    cancel_requested: bool = False
    revision: int = 0
    attempt: int = 0
    progress: JobProgress = JobProgress()
    problem: str | None = None
    problem_type: str | None = None
    problem_members: dict[str, Any] = Field(default_factory=dict)
    result: dict[str, Any] | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None


class JobList(Model):
    """Jobs, newest first."""

    jobs: list[Job]


class KeptCandidate(Model):
    """Candidate of a kept search, or of a question."""

    id: str
    label: str | None
    score: float


class KeptSearch(Model):
    """A kept search, and what was said of it.

    Attributes:
        verdict: What was answered to it. One of `match`, `unsure`, `no_match`.
        calibration: Id of the calibration that decided it.
        candidates: As they were found, best first.
        has_picture: False for a ready embedding.
        drawn_at: When it was drawn to be asked about; null where not.
        item_id: Item that it became; null where it became none.
        note: Why its answer does not count, or counts with other scores.
    """

    id: str
    at: datetime
    verdict: str | None
    threshold: float | None
    calibration: str | None
    pipeline: str
    bundle: str
    version: int
    revision: int
    candidates: list[KeptCandidate]
    has_picture: bool
    drawn_at: datetime | None
    item_id: str | None
    answers: list[SearchAnswer]
    note: str | None


class KeptSearchPage(Model):
    """Page of kept searches.

    Attributes:
        next: Cursor of the next page; null at the end.
    """

    searches: list[KeptSearch]
    next: str | None


class KnownAnswers(Model):
    """Sum of what answers to the kept searches of a gallery say so far, of drawn ones alone.

    Attributes:
        n_kept: Kept searches.
        n_drawn: Of these, drawn to be asked about.
        n_answered: Of these, answered.
        n_known: Answered ones that show what the gallery has.
        n_absent: Answered ones that show what the gallery lacks.
        n_unsure: Answered ones of which it cannot be told.
        n_disagreed: Answered ones of which two persons say different things.
        n_labels: Labels of those that show what the gallery has.
        n_wrong: Single matches that were called wrong, of any search.
        n_twice: Searches that two answers say what they are, of two persons or one.
        n_otherwise: Of these, those whose two answers differ.
        notes: Answers that count in no rate, and why.
        fnir: Share of the searches for what the gallery has that miss it at the threshold in force, with a 95
            % interval; null without such answers, or without a threshold.
        fpir: Share of the searches for what it lacks that get a match, with a 95 % interval; or null.
        sentence: All of it in words.
    """

    gallery: str
    n_kept: int
    n_drawn: int
    n_answered: int
    n_known: int
    n_absent: int
    n_unsure: int
    n_disagreed: int
    n_labels: int
    n_wrong: int
    n_twice: int
    n_otherwise: int
    disagreements: list[Disagreement]
    notes: list[str]
    fnir: dict[str, Any] | None
    fpir: dict[str, Any] | None
    sentence: str


class LabelCount(Model):
    """A label of a gallery."""

    label: str
    n_items: int


class LabelList(Model):
    """Labels of a gallery."""

    labels: list[LabelCount]


class Limits(Model):
    """Limits of one request, as the settings of these names say.

    Attributes:
        max_batch: Most images or queries.
        max_embeddings: Most ready embeddings of one addition.
    """

    max_image_bytes: int = 32 * 2**20
    max_request_bytes: int = 256 * 2**20
    max_batch: int = 64
    max_embeddings: int = 1000
    max_limit: int = 1000


class MetadataValue(Model):
    """A value of a metadata key.

    Attributes:
        n: Items that have it.
    """

    value: str | float
    n: int


class MetadataKey(Model):
    """A key of the metadata, and what its values are like.

    Attributes:
        field: Its name as filters and `sort_by` write it, such as `metadata.price`.
        n_items: Items that have a value.
        kinds: Values of each kind, as filters take them: a text that is a plain number is a number, and one
            that begins with a day, such as `2026-01-31`, is a date.
        low: Least number.
        high: Largest number.
        first_day: Earliest day.
        last_day: Latest day.
        n_values: Different values, of at most 1000.
        values: Values that most items have, `true` and `false` as texts; long ones are left out.
    """

    field: str
    n_items: int
    kinds: dict[str, int]
    low: float | None
    high: float | None
    first_day: str | None
    last_day: str | None
    n_values: int
    values: list[MetadataValue]


class MetadataKeyList(Model):
    """Keys of a gallery's metadata.

    Attributes:
        keys: Those that most items have first, at most 200.
        n_looked_at: Items that were looked at; of a large gallery some from everywhere.
    """

    keys: list[MetadataKey]
    n_looked_at: int


class PassedSearch(Model):
    """Search that became no item, and why."""

    search_id: str
    reason: str


class Readiness(Model):
    """Readiness: whether searches can be answered, and by what.

    Attributes:
        bundle: Fingerprint of the bundle of the settings. Null, as are the next three, while it is not open:
            every gallery holds ready embeddings, and nothing has needed it.
        provider: Execution provider of ONNX Runtime that is really in use.
        galleries: None without an API key, where keys are asked for.
        home: How far this replica is behind its home; null without one.
    """

    ready: bool
    reasons: list[str]
    bundle: str | None
    provider: str | None
    galleries: list[GalleryState]
    home: dict[str, Any] | None = None
    limits: Limits = Limits()


class RemovedItem(Model):
    """Item that is gone, so that its search is a query again."""

    item_id: str


class Rights(Model):
    """Rights of the key of a call.

    Attributes:
        asks_for_keys: Whether calls need a key; without, everybody may do all.
        name: The key's name, as changes are noted under; null without keys.
        scopes: Scopes of calls that it may make; `admin` has `search` in it.
        galleries: Galleries that it is for; null for all.
    """

    asks_for_keys: bool
    name: str | None
    scopes: list[str]
    galleries: list[str] | None


class SearchAdditions(Model):
    """Searches that became items, and confirmed ones that did not.

    Attributes:
        n_waiting: Confirmed searches of labels that have as many as were asked for.
    """

    added: list[AddedSearch]
    passed: list[PassedSearch]
    n_waiting: int = 0


class SearchQuestion(Model):
    """Kept search that a person is asked about: what is it?

    Attributes:
        has_picture: False for a ready embedding.
        verdict: What is answered to it today. One of `match`, `unsure`, `no_match`.
        candidates: Best item of each label that is found today, best first; an item without a label alone.
        is_again: Whether somebody has said what it is: some are asked about twice.
        note: What to know of the search: that it is of an older version, say.
    """

    search_id: str
    at: datetime
    has_picture: bool
    verdict: str | None
    threshold: float | None
    candidates: list[KeptCandidate]
    is_again: bool
    note: str | None


class SearchQuestions(Model):
    """Searches to ask about next.

    Attributes:
        sentence: What is known by now.
    """

    questions: list[SearchQuestion]
    sentence: str


class SetAsideItem(Model):
    """Item that is set aside.

    Attributes:
        by: Name of the key, or of who used the command.
        bundle: Fingerprint of the bundle that embedded it.
    """

    id: str
    label: str | None
    uri: str
    metadata: dict[str, Any]
    reason: str
    by: str
    at: datetime
    bundle: str


class SetAsideList(Model):
    """Items that are set aside."""

    items: list[SetAsideItem]


class StorageUse(Model):
    """Bytes of a gallery on the disk, by what they are for.

    Attributes:
        bytes: All of it.
        table_bytes: Items with their small pictures and embeddings.
        versions_bytes: Files that versions are searched by.
        calibrations_bytes: Records of calibrations.
        searches_bytes: Searches that are kept, and answers to them.
        free_bytes: What is free on that disk.
    """

    bytes: int
    table_bytes: int
    versions_bytes: int
    calibrations_bytes: int
    searches_bytes: int
    other_bytes: int
    free_bytes: int


class TakenBack(Model):
    """Sum of what is known without an answer that was taken back."""

    sentence: str


class Version(Model):
    """Version of a gallery.

    Attributes:
        kind: Made by an `index` job or by a `compaction`.
        revision: State of its live changes, which is searched when it is active.
        n_items: Items when it was built; null when its files are damaged.
        derived_bytes: Size of its own files.
        table_bytes: Size of the files in the item table that it refers to.
        own_table_bytes: Size of those that no other version refers to.
        comparison: Its newest comparison with another, in one line.
    """

    version: int
    created_at: datetime
    kind: str
    is_active: bool
    revision: int
    n_items: int | None
    n_labels: int | None
    index: str | None
    bundle: str | None
    derived_bytes: int
    table_bytes: int
    own_table_bytes: int
    comparison: str | None = None


class VersionList(Model):
    """All versions of a gallery, newest first."""

    versions: list[Version]
