"""Trial of a fitting: what the labels that were held out say of a network that never saw them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from vicinal.calibration.frozen import Frozen
from vicinal.calibration.rates.paired_bootstrap import LabelDraws, Searches
from vicinal.models.bundle import ModelBundle, Precision
from vicinal.models.embedder import Embedder
from vicinal.models.refiner_manifest import REFINER_FILE, REFINER_WEIGHTS_FILE
from vicinal.refine.context_refiner import ContextRefiner
from vicinal.training.datasets.labelled import ImageListing
from vicinal.training.evaluation.measurement import embed_files
from vicinal.training.fitting.report import HeldOutFigures, Interval
from vicinal.training.refiner.config import ValidationConfig
from vicinal.training.refiner.cross_fitting import PresentLine
from vicinal.training.refiner.embedding_set import EmbeddingSet
from vicinal.training.refiner.validation import Outcomes, Validation, measure_gain, refine_by

_FPIR = 0.05
_DRAWS = 4
# Photos of the other labels in a gallery; two bundles embed them in half a minute.
_MOST_BESIDE = 2000


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
    step = -(-len(beside) // _MOST_BESIDE)
    beside = replace(beside, files=beside.files[::step])
    n = len(listing) + len(beside)

    def validation(one: ModelBundle, done_before: int) -> Validation:
        return _validation(one, listing, beside, seed, lambda done: on_embedded(done_before + done, 2 * n))

    validations = validation(before, 0), validation(bundle, n)
    bundle, verdict = _decided(bundle, validations[1])
    found_before, found_after = (
        PresentLine.of(one).outcomes(searches)
        for one, searches in zip((before, bundle), validations, strict=True)
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


def _validation(
    bundle: ModelBundle,
    listing: ImageListing,
    beside: ImageListing,
    seed: int,
    on_embedded: Callable[[int], None],
) -> Validation:
    """Searches among the held-out photos, the same for every bundle."""
    embedder = Embedder(bundle, device="cpu")

    def embedded(some: ImageListing, done_before: int) -> EmbeddingSet:
        rows = embed_files(
            embedder, some, on_progress=lambda _stage, done, *_: on_embedded(done_before + done)
        )
        return EmbeddingSet.of(rows, some.labels)

    section = bundle.manifest.refiner
    k = 8 if section is None else section.architecture.n_neighbors
    config = ValidationConfig(fpir=_FPIR, draws=_DRAWS, ordered=True)
    held_out, others = embedded(listing, 0), embedded(beside, len(listing))
    return Validation(held_out, k, config, seed=seed, beside=others)


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


def _found_interval(found: Outcomes, seed: int) -> Interval:
    """Share found at the rate of wrong matches, with its interval over labels."""
    known, absent = found.codes
    figures = [Searches(found.mates, known, found.others, absent).error_when_held("fpir", _FPIR)]
    draws = LabelDraws(known, absent, seed)
    value = 1.0 - float(draws.measured(figures)[0])
    low, high = np.quantile(1.0 - draws.drawn(figures)[0], [0.025, 0.975]).tolist()
    return Interval(value=value, low=low, high=high)
