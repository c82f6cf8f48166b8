"""Trial of a fitting: what the labels that were held out say of a network that never saw them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from vicinal.calibration.arrays import Ints
from vicinal.calibration.frozen import Frozen
from vicinal.calibration.rates.paired_bootstrap import LabelDraws, Searches
from vicinal.models.bundle import ModelBundle, Precision
from vicinal.models.embedder import Embedder
from vicinal.models.refiner_manifest import REFINER_FILE, REFINER_WEIGHTS_FILE
from vicinal.refine.context_refiner import ContextRefiner
from vicinal.training.datasets.labelled import ImageListing
from vicinal.training.evaluation.measurement import embed_files
from vicinal.training.fitting.plan import MOST_BESIDE
from vicinal.training.fitting.report import HeldOutFigures, Interval
from vicinal.training.refiner.config import ValidationConfig
from vicinal.training.refiner.cross_fitting import PresentLine
from vicinal.training.refiner.embedding_set import EmbeddingSet
from vicinal.training.refiner.validation import Outcomes, Validation, measure_gain, refine_by
from vicinal.training.samplers.batches import members_by_class

_FPIR = 0.05
_DRAWS = 4
# Photos are look-alikes from the median of a label's pairs by 1.5 times as much as 16 % of them lie below it.
_FEWEST_ALIKE = 3
_FAR_ABOVE = 1.5
_BELOW = 0.16


class FitTrial(Frozen):
    """Findings of holding labels out, which are kept when all labels are learned from.

    `share` is that of the kept weights between the first and the trained ones, `steps` those after which the
    held-out labels were searched best, `form` the fastest one here that loses little on their photos, and
    `verdict` the manifest fields of the refiner that was carried over, empty without one.
    """

    share: float
    steps: int
    form: Precision
    verdict: dict[str, Any]
    figures: HeldOutFigures


def carry_refiner(before: ModelBundle, bundle: ModelBundle, verdict: dict[str, Any]) -> ModelBundle:
    """The new bundle with the refiner of the one before, where that knows nothing of its embeddings; one of a
    gallery's own is judged anew when that is indexed.
    """
    section = before.manifest.refiner
    if before.refiner_path != before.path:
        return bundle
    if section is None or section.architecture.form != "gated" or before.dim != bundle.dim:
        return bundle
    for name in (REFINER_FILE, REFINER_WEIGHTS_FILE):
        shutil.copyfile(before.path / name, bundle.path / name)
    training = {**section.training, "carried_over_from": before.name}
    architecture = section.architecture.model_dump()
    return bundle.with_refiner({"architecture": architecture, "training": training, **verdict})


def search_held_out(
    before: ModelBundle,
    bundle: ModelBundle,
    listing: ImageListing,
    beside: ImageListing,
    *,
    seed: int,
    on_embedded: Callable[[int, int], None],
) -> tuple[HeldOutFigures, dict[str, Any]]:
    """Search the held-out labels with two bundles."""
    bundle = carry_refiner(before, bundle, {"sides": "off", "rerank": "off"})
    step = -(-len(beside) // MOST_BESIDE)
    beside = replace(beside, files=beside.files[::step])
    n = len(listing) + len(beside)

    def embedded(one: ModelBundle, done_before: int) -> list[EmbeddingSet]:
        def report(done: int) -> None:
            on_embedded(done_before + done, 2 * n)

        return _embedded(one, [listing, beside], report)

    sets = embedded(before, 0), embedded(bundle, n)
    validations = [_validation(one, some, seed) for one, some in zip((before, bundle), sets, strict=True)]
    bundle, verdict = _decided(bundle, validations[1])
    found_before, found_after = (
        PresentLine.of(one).outcomes(searches)
        for one, searches in zip((before, bundle), validations, strict=True)
    )
    # By the bundle before, which has not learned to lay the photos of a label together.
    visits = look_alikes(sets[0][0])
    line, alone = PresentLine.of(bundle), sets[1][:1]
    found_apart = _found_interval(line.outcomes(_validation(bundle, sets[1], seed, visits)), seed)
    n_labels = len(np.unique(np.concatenate([listing.labels, beside.labels])))
    found_alone, found_alone_apart = (
        _found_interval(line.outcomes(one), seed, fpir_among(one.n_gallery_labels, n_labels))
        for one in (_validation(bundle, alone, seed, taken) for taken in (None, visits))
    )
    gain = measure_gain(found_before, found_after, _FPIR, seed=seed)
    section = bundle.manifest.refiner
    _, sizes = np.unique(listing.labels, return_counts=True)
    figures = HeldOutFigures(
        n_held_out_photos=int(sizes[sizes > 1].sum()),
        n_held_out_labels=int((sizes > 1).sum()),
        fpir=_FPIR,
        found_before=_found_interval(found_before, seed),
        found_after=_found_interval(found_after, seed),
        found_apart=found_apart,
        found_alone=found_alone,
        found_alone_apart=found_alone_apart,
        # Fewer misses are more finds, so that the ends change places.
        gain=Interval(value=gain.fnir.before - gain.fnir.after, low=-gain.fnir.high, high=-gain.fnir.low),
        hit_rate_before=gain.hit_rate_1.before,
        hit_rate_after=gain.hit_rate_1.after,
        map_at_r_before=gain.map_at_r.before,
        map_at_r_after=gain.map_at_r.after,
        refine=None if section is None else section.sides,
        rerank=None if section is None else section.rerank,
    )
    return figures, verdict


def _embedded(
    bundle: ModelBundle, listings: Sequence[ImageListing], on_embedded: Callable[[int], None]
) -> list[EmbeddingSet]:
    """Embeddings of some photos."""
    embedder, sets, done_before = Embedder(bundle, device="cpu"), list[EmbeddingSet](), 0
    for some in listings:
        rows = embed_files(
            embedder,
            some,
            on_progress=lambda _stage, done, *_, base=done_before: on_embedded(base + done),
        )
        done_before += len(some)
        on_embedded(done_before)
        sets.append(EmbeddingSet.of(rows, some.labels))
    return sets


def _validation(
    bundle: ModelBundle, sets: Sequence[EmbeddingSet], seed: int, visits: Ints | None = None
) -> Validation:
    """Searches among the held-out photos, alone or beside the others, the same for every bundle."""
    held_out, *beside = sets
    if visits is not None:
        held_out = replace(held_out, visits=visits)
    section = bundle.manifest.refiner
    k = 8 if section is None else section.architecture.n_neighbors
    config = ValidationConfig(fpir=_FPIR, draws=_DRAWS, ordered=True)
    return Validation(held_out, k, config, seed=seed, beside=beside[0] if beside else None)


def look_alikes(items: EmbeddingSet) -> Ints:
    """(n,) visits: photos of a label joined that are far more alike than its typical pair.

    It is the rule by which a calibration keeps look-alikes apart where nothing else tells visits.
    """
    visits = np.arange(len(items))
    for own in members_by_class(items.class_ids):
        if len(own) < _FEWEST_ALIKE:
            continue
        alike = items.embeddings[own] @ items.embeddings[own].T
        median, low = np.quantile(alike[np.triu_indices(len(own), 1)], [0.5, _BELOW])
        is_joined = (alike > median + _FAR_ABOVE * (median - low)) | np.eye(len(own), dtype=bool)
        roots, joined = np.arange(len(own)), np.zeros(len(own), np.int64)
        while not np.array_equal(roots, joined):
            roots, joined = np.where(is_joined, roots, len(own)).min(axis=1), roots
        visits[own] = own[roots]
    return visits


def _decided(bundle: ModelBundle, validation: Validation) -> tuple[ModelBundle, dict[str, Any]]:
    """The bundle with the verdict of the held-out labels on its refiner, and the verdict."""
    section = bundle.manifest.refiner
    if section is None:
        return bundle, {}
    refine = refine_by(ContextRefiner(bundle))
    made = validation.decide(refine, validation.measure(refine))
    verdict = {"sides": made.sides, "rerank": made.rerank, "validation": made.figures}
    fields = section.model_dump(exclude={"files", "backbone_fingerprint"})
    return bundle.with_refiner({**fields, **verdict}), verdict


def fpir_among(n_labels: float, n_wanted: int) -> float:
    """FPIR whose threshold among some labels is the one of the asked FPIR among as many as are wanted.

    A query without a mate may match each label there is, so that more of them need a higher threshold. Were
    each met by itself, all of n would be passed by with 1 - FPIR = (1 - p)^n.
    """
    return 1.0 - (1.0 - _FPIR) ** min(1.0, n_labels / n_wanted)


def _found_interval(found: Outcomes, seed: int, fpir: float = _FPIR) -> Interval:
    """Share found at a rate of wrong matches, with its interval over labels."""
    known, absent = found.codes
    figures = [Searches(found.mates, known, found.others, absent).error_when_held("fpir", fpir)]
    draws = LabelDraws(known, absent, seed)
    value = 1.0 - float(draws.measured(figures)[0])
    low, high = np.quantile(1.0 - draws.drawn(figures)[0], [0.025, 0.975]).tolist()
    return Interval(value=value, low=low, high=high)
