"""Choice of a network's form: each measured on this machine, and what it costs in answers (onnx)."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Literal

import numpy as np

from vicinal.calibration.advice import advise
from vicinal.models.bundle import BACKBONE_FILE, ModelBundle, Precision
from vicinal.models.embedder import Embedder
from vicinal.models.errors import BundleError
from vicinal.training.evaluation.measurement import embed_files
from vicinal.training.evaluation.metrics import retrieval_metrics
from vicinal.training.export.forms import PRECISIONS, write_form
from vicinal.training.export.sample import Sample, drawn_sample, measure_speed

Forms = dict[str, dict[str, float]]

# Mean cosine of an image's embedding to that of the float32 network, below which a form is refused.
LEAST_AGREEMENT: dict[Precision, float] = {"float32": 0.9999, "float16": 0.9999, "int8": 0.95}
# What `auto` may lose: in R@1 and MAP@R where labels say what is right, else in mean cosine.
MOST_LOST = 0.005
LEAST_COSINE = 0.98
# Forms this near to the fastest count as fast, and the smallest file is taken.
_AS_FAST = 0.95


def give_form(
    bundle: ModelBundle,
    precision: Precision | Literal["auto"],
    sample: Sample | None = None,
    *,
    on_note: Callable[[str], None] = lambda _note: None,
) -> ModelBundle:
    """Write the network of a bundle in another form, measured beside float32, and open the result.

    The bundle, whose network is float32, keeps its place and loses its refiner, whose embeddings would be
    others. `auto` takes the fastest form that loses at most .005 of R@1 and of MAP@R on the sample, or,
    without labels, whose mean cosine to float32 is at least .98. int8 is calibrated on the sample; for want
    of one pictures are drawn.
    """
    if sample is None and precision != "float32":
        on_note("Forms are tried on drawn pictures: photos of your own, with --images, say more")
        sample = drawn_sample()
    wanted: Iterable[Precision] = PRECISIONS if precision == "auto" else dict.fromkeys(("float32", precision))
    fields = bundle.manifest.model_dump(exclude={"files", "refiner"})
    with tempfile.TemporaryDirectory() as folder:
        candidates: dict[Precision, ModelBundle] = {}
        images = sample.prepared(bundle.preprocessing) if sample and "int8" in wanted else []
        for form in wanted:
            path = Path(folder) / form
            path.mkdir()
            try:
                write_form(bundle.backbone_path, path / BACKBONE_FILE, form, images)
                candidates[form] = ModelBundle.write(path, fields)
            except BundleError as error:
                if precision != "auto":
                    raise
                on_note(f"{form} is left out: {' '.join(str(error).split())}")
        forms = _measure(candidates, sample)
        chosen = choose_form(forms) if precision == "auto" else precision
        if sample is not None:
            _check_agreement(bundle.name, chosen, forms[chosen])
        content = candidates[chosen].backbone_path.read_bytes()
    bundle.backbone_path.write_bytes(content)
    return ModelBundle.write(bundle.path, {**fields, "precision": chosen, "forms": forms})


def choose_form(forms: Mapping[str, Mapping[str, float]]) -> Precision:
    """The fastest form that loses little against float32; of two as fast the smaller one."""
    plain = forms["float32"]
    fit = [form for form in PRECISIONS if form in forms and _is_as_good(forms[form], plain)]
    fastest = max(forms[form]["images_per_second"] for form in fit)
    fast = [form for form in fit if forms[form]["images_per_second"] >= _AS_FAST * fastest]
    return min(fast, key=lambda form: forms[form]["megabytes"])


def _is_as_good(form: Mapping[str, float], plain: Mapping[str, float]) -> bool:
    if "hit_rate_1" not in plain:
        return form["mean_cosine"] >= LEAST_COSINE
    return all(form[rate] >= plain[rate] - MOST_LOST for rate in ("hit_rate_1", "map_at_r"))


def _measure(candidates: Mapping[Precision, ModelBundle], sample: Sample | None) -> Forms:
    embedders = {form: Embedder(one, device="cpu") for form, one in candidates.items()}
    speeds = measure_speed({str(form): embedder for form, embedder in embedders.items()})
    embedded = (
        {} if sample is None else {form: embed_files(one, sample.listing) for form, one in embedders.items()}
    )
    forms: Forms = {}
    for form, one in candidates.items():
        megabytes = round(one.backbone_path.stat().st_size / 1e6, 2)
        forms[form] = {**speeds[form], "megabytes": megabytes}
        if sample is None:
            continue
        cosines = np.einsum("nd,nd->n", embedded[form], embedded["float32"], dtype=np.float64)
        forms[form] |= {
            "mean_cosine": round(float(cosines.mean()), 5),
            "least_cosine": round(float(cosines.min()), 5),
        }
        if sample.is_labelled:
            rates = retrieval_metrics(embedded[form], sample.listing.labels, ks=(1,))
            forms[form] |= {
                "hit_rate_1": round(rates.hit_rate[1], 5),
                "map_at_r": round(rates.map_at_r, 5),
            }
    return forms


def _check_agreement(name: str, form: Precision, figures: Mapping[str, float]) -> None:
    if figures["mean_cosine"] < LEAST_AGREEMENT[form]:
        raise BundleError(
            f"bundle '{name}' in {form} agrees with float32 to a mean cosine of {figures['mean_cosine']:.4f} "
            f"only, at least {LEAST_AGREEMENT[form]:g} is accepted: ",
            advise("choose another {precision}"),
        )
