"""Words: what rates, trials and spaces are called and how figures are written, on pages and in commands."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from vicinal.calibration.targets import Target
    from vicinal.indexer.hygiene import Hygiene
    from vicinal.indexer.sources import SourceLook
    from vicinal.models.bundle import ModelBundle, Noun
    from vicinal.service.measuring.drift import DriftState
    from vicinal.service.measuring.evidence import Evidence, RateEvidence, VisitEvidence
    from vicinal.service.measuring.group_trials import MetricTrial
    from vicinal.service.measuring.records.promise import PromiseCheck
    from vicinal.service.search.answers import CalibrationState
    from vicinal.service.search.pipeline import Pipeline


class RateWords(NamedTuple):
    """Trials and event of a rate: it is the share of the trials that have the event."""

    trials: str
    event: str


RATES = {
    "far": RateWords("pairs of different labels", "are accepted"),
    "frr": RateWords("pairs of one label", "are rejected"),
    "fpir": RateWords("queries without a mate", "get a match"),
    "fnir": RateWords("queries with a mate", "get none of their mates"),
    "precision": RateWords("returned matches", "are mates"),
}
SOURCES = {
    "leave_one_out": "leave one out: every labelled item searched for as if it were not in the gallery",
    "queries": "labelled queries from outside",
    "answers": "answers about pairs of photos, same or different",
    "searches": "answers to searches that were kept and drawn",
    "by_hand": "set by hand",
}
SPACES = {"initial": "initial embeddings", "refined": "refined embeddings", "final": "final scores"}
_EVIDENCE = {"copies": "equal or nearly equal pictures", "times": "capture time", "series": "file numbers"}
_NAMES = {"precision": "precision", "hit_rate_1": "R@1"}
_REFINED = {"gallery": "items", "query": "query", "both": "query and items"}
_SHOWN = 10
_LONGEST_NAME = 60
_JOINERS = "\u200c\u200d"
# Labels of about one size are worth as many.
_EVEN = 0.9
# Commands of operations, with blanks for the values that an error may give.
COMMANDS = {
    "activate": "vicinal calibration activate ID -g {gallery}",
    "activate_version": "vicinal gallery activate {gallery} {version} --data-dir {data_dir}",
    "calibrate": "vicinal calibrate -g NAME",
    "compare": "vicinal compare -g {gallery}",
    "check": "vicinal calibration check -g {gallery} --queries FOLDER",
    "duplicates": "vicinal duplicates -g {gallery}",
    "export": "vicinal export",
    "forget_fit": "vicinal fit -g {gallery} --forget",
    "import_onnx": "vicinal import",
    "index": "vicinal index SOURCE --gallery {gallery}",
    "create_key": "vicinal keys create NAME --scope admin",
    "keys_off": "vicinal keys off",
    "label": "vicinal label -g NAME",
    "label_anew": "vicinal label -g {gallery} --restart",
    "list_calibrations": "vicinal calibration list -g {gallery}",
    "refine": "vicinal gallery refine {gallery}",
    "review": "vicinal review -g NAME",
    "train_refiner": "vicinal train-refiner",
    "use_settings": "vicinal use -g {gallery} --reset",
}
# Fields whose option goes by another name.
_OPTIONS = {"setting": "--set"}


def visible(text: str) -> str:
    """Text in which controls, marks of direction and odd blanks stand as escapes; joiners stay, for emoji."""
    if text.isprintable():
        return text
    from vicinal.indexer.item_rules import readable

    return "".join(
        one if one.isprintable() or one in _JOINERS else one.encode("unicode_escape").decode()
        for one in readable(text)
    )


def rate_name(rate: str) -> str:
    """A rate's name for people."""
    return _NAMES.get(rate, rate.upper())


def shortened(name: str) -> str:
    """A name for a sentence, which a long one would fill."""
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…"


def percent(rate: float) -> str:
    """A share in [0, 1] for people."""
    return f"{100 * rate:.3g} %"


def counted(share: float) -> str:
    """A share in [0, 1] as so many of 100."""
    return f"{100 * share:.0f}"


def number_of(n: int, one: str, many: str | None = None) -> str:
    """Number of things, such as `1 item` and `2,000 items`; `many` where it is no s that is added."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def span(low: float, high: float) -> str:
    """A range of shares, such as an interval."""
    return f"{percent(low)} to {percent(high)}"


def rate_with_interval(found: RateEvidence) -> str:
    """A rate and how far it can be trusted."""
    return f"{percent(found.rate)} (95 % interval {span(found.low, found.high)})"


def labels_behind(found: RateEvidence) -> str:
    """Number of labels that a rate rests on, and what they are worth where some have most of the trials."""
    labels = number_of(found.n_labels, "label")
    if found.effective_labels < _EVEN * found.n_labels:
        labels += f" (worth {found.effective_labels:.3g} of equal size)"
    return labels


def measured_rates(evidence: Evidence) -> Iterator[tuple[str, RateWords, RateEvidence | None]]:
    """Every rate that a calibration speaks of: its name, what it counts, and it; None if not measured."""
    for name, words in RATES.items():
        yield rate_name(name), words, evidence.rates.get(name)


def visit_words(found: VisitEvidence, noun: Noun = "photo") -> str:
    """Sentence on what was kept apart, and on what a calibration would have promised without."""
    visits = number_of(found.n_visits, "visit")
    if found.by == "auto":
        joined = [f"{n:,} by {_EVIDENCE[kind]}" for kind, n in found.joined.items() if n]
        if not joined:
            return f"Nothing was found that tells which {noun}s were taken together"
        kept = f"{noun.capitalize()}s taken together were kept apart: {visits}, joined {', '.join(joined)}"
    else:
        kept = f"{noun.capitalize()}s of one {found.by} were kept apart: {visits}"
    names = [name for name in (*RATES, "hit_rate_1") if name in found.promised and name in found.shown]
    rates = ", ".join(
        f"{rate_name(name)} {percent(found.promised[name])} but shows {percent(found.shown[name])}"
        for name in names
    )
    threshold = "" if found.threshold_together is None else f" (threshold {found.threshold_together:.4f})"
    return f"{kept}. A calibration that mixes them{threshold} promises {rates}" if rates else kept


def metric_words(found: MetricTrial | None, target: Target | None, noun: Noun = "photo") -> str | None:
    """Sentence on what a trial of the gallery's own metric took, and why; None where nothing was tried."""
    if found is None:
        return None
    if found.reason is not None:
        return f"The nearest {noun} decides: {found.reason}."
    what = "strangers are answered" if target is not None and target.rate == "fnir" else f"{noun}s are missed"
    taught, nearest = counted(found.lda or 0.0), counted(found.cosine or 0.0)
    ends = f"(difference {100 * (found.low or 0.0):+.0f} to {100 * (found.high or 0.0):+.0f})"
    if found.chosen == "lda":
        first = f"Labels decide, by what they have taught: {taught} of 100 {what}"
        return f"{first}, in place of {nearest} by the nearest {noun} {ends}."
    return f"The nearest {noun} decides: {nearest} of 100 {what}, by what the labels teach {taught} {ends}."


def drift_words(found: DriftState) -> str:
    """Sentence on how far searches have drifted from a calibration's queries."""
    if found.psi is None:
        return f"unknown: {found.reason}"
    return (
        f"{found.level}: population stability index {found.psi:.3f} of {found.n_queries:,} searches (by "
        f"chance up to {found.chance_psi or 0.0:.3f}); {percent(found.no_match_now or 0.0)} of them get no "
        f"match, of the calibration's queries {percent(found.no_match_then or 0.0)}"
    )


def standing_words(
    state: CalibrationState, reason: str | None, check: PromiseCheck | None, noun: Noun = "photo"
) -> str:
    """Clause on what is known of a promise; what a check found broken is told in full before it."""
    if state == "broken":
        return "what it promised does not hold"
    if reason is not None:
        return reason
    if check is None:
        return f"nothing speaks against it, and no new {noun}s have been tried"
    if check.source == "searches":
        if check.verdict == "unclear":
            return "nothing speaks against it, and too few searches have been answered to tell"
        return f"it holds by the answers to searches up to {check.checked_at:%Y-%m-%d}"
    if check.verdict == "unclear":
        return f"nothing speaks against it, and too few new {noun}s have been tried to tell"
    return f"it held for the {noun}s that were tried on {check.checked_at:%Y-%m-%d}"


def promise_lines(found: PromiseCheck, noun: Noun = "photo") -> Iterator[str]:
    """Lines on what stands behind the sentence on a promise, rate by rate."""
    yield f"calibration {found.calibration} ({found.pipeline}), threshold {found.threshold:.4f}"
    for name, one in found.rates.items():
        of_what = noun if found.source == "queries" else "answer"
        tried = f"{number_of(one.n_trials, of_what)} of {number_of(one.n_labels, 'label')}"
        yield (
            f"{rate_name(name)} {percent(one.rate)} on {tried}, "
            f"which leave {span(one.low, one.high)} possible ({percent(one.confidence)} interval); promised "
            f"{percent(one.promised_rate)}, {span(one.promised_low, one.promised_high)}; probability that it "
            f"is not above the promise {one.p_not_worse:.3g}: {one.verdict}"
        )
    yield (
        f"a kept promise is called broken at most {percent(found.error_rate)} of the time, all rates of a "
        "check together"
    )


def search_words(pipeline: Pipeline, bundle: ModelBundle) -> str:
    """Stages of a search with a pipeline, stage by stage."""
    stages, refiner = ["nearest neighbors"], bundle.manifest.refiner
    if refiner is not None and pipeline.refine.sides != "off":
        n = refiner.architecture.n_neighbors
        stages.append(f"{_REFINED[pipeline.refine.sides]} refined by attention over {n} neighbors")
    if pipeline.rerank.method != "off":
        stages.append("re-ranked by shared neighbors")
    on = "" if pipeline.group is None else f" on each {pipeline.group.by}"
    return ", ".join([*stages, f"one threshold{on}"])


def mebibytes(n_bytes: int) -> str:
    """A size on the disk for people."""
    return f"{n_bytes / 2**20:,.1f} MiB"


def hygiene_lines(found: Hygiene) -> Iterator[str]:
    """Lines on what stands out among the items of a gallery, with an example of each, if anything does."""
    counts: list[tuple[int, str, str, Sequence[str | tuple[str, str]]]] = [
        (found.n_exact_duplicates, "exact duplicate", "", found.exact_duplicates),
        (found.n_near_duplicates, "pair", " of near duplicates", found.near_duplicates),
        (found.n_conflicting_labels, "duplicate", " with another label", found.conflicting_labels),
        (found.n_single_image_labels, "label", " with one item", found.single_image_labels),
    ]
    for n, what, which, examples in counts:
        if n:
            such = ":" if n == 1 else ", such as"
            yield f"{number_of(n, what)}{which}{such} {_example(examples[0])}"
    if found.n_unlabelled:
        yield f"{number_of(found.n_unlabelled, 'item')} without a label"


def look_lines(found: SourceLook) -> Iterator[str]:
    """Lines on what a source holds, what is left out, and what looks wrong about its labels."""
    from vicinal.indexer.sources.items import suffix_counts

    parts = [number_of(found.n_items, "item")]
    if sizes := found.label_sizes:
        parts[0] += f" with {number_of(found.n_labels, 'label')}"
        parts.append(
            f"{number_of(sizes.min, 'item')} a label"
            if sizes.min == sizes.max
            else f"{sizes.min:,} to {sizes.max:,} items a label, median {sizes.median:,}"
        )
    if found.n_single_image_labels:
        parts.append(f"{number_of(found.n_single_image_labels, 'label')} with one item")
    if found.n_unlabelled:
        parts.append(f"{number_of(found.n_unlabelled, 'item')} without a label")
    yield "; ".join(parts)
    yield from (f"  {remark}" for remark in found.remarks)
    if found.n_missing:
        yield f"  {number_of(found.n_missing, 'file')} cannot be found, such as {found.missing}"
    if found.n_unusable:
        yield f"  {number_of(found.n_unusable, 'item')} cannot be used, such as {found.unusable}"
    if found.other_files:
        yield f"  files that are not read: {suffix_counts(found.other_files, _SHOWN)}"
    if found.hidden:
        shown = suffix_counts(found.hidden, _SHOWN)
        yield f"  hidden, and not read without --include-hidden: {shown}"
    yield from unread_lines(found.unread_folders)


def unread_lines(unread: Mapping[str, str]) -> Iterator[str]:
    """The first folders, archives and files of a source that were not read."""
    for name, reason in list(unread.items())[:_SHOWN]:
        yield f"  not read: {name} ({reason})"
    if len(unread) > _SHOWN:
        yield f"  and {len(unread) - _SHOWN:,} more that are not read"


def _example(example: str | Sequence[str]) -> str:
    return f"'{example}'" if isinstance(example, str) else f"'{example[0]}' and '{example[1]}'"


def command_names(name: str, values: dict[str, Any] | None) -> str:
    """Command of an operation in backticks, or the option of a field."""
    if values is None:
        return _OPTIONS.get(name, f"--{name.replace('_', '-')}")
    quoted = {key: shlex.quote(str(value)) for key, value in values.items()}
    return f"`{COMMANDS[name].format_map(quoted)}`"


def in_commands(error: Exception) -> str:
    """Words of an error on one line, for who types commands."""
    from vicinal.calibration.advice import AdvisedError, own_names

    def names(name: str, values: dict[str, Any] | None) -> str:
        found, options = command_names(name, values), getattr(error, "options", None)
        return own_names(name, {}) if found.startswith("--") and found not in (options or (found,)) else found

    said = error.said(names) if isinstance(error, AdvisedError) else str(error)
    return " ".join(said.split()) or type(error).__name__
