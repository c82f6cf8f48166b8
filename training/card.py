"""Model card: what a bundle is, for people, from its manifest."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vicinal.models.bundle import NOTICE_FILE, BundleManifest, ModelBundle
from vicinal.models.refiner_manifest import RefinerManifest

CARD_FILE = "MODEL_CARD.md"
_FORM_COLUMNS = (
    ("images_per_second", "images a second", 0),
    ("milliseconds", "ms for one", 1),
    ("megabytes", "MB", 1),
    ("mean_cosine", "agreement", 4),
    ("hit_rate_1", "R@1", 3),
    ("map_at_r", "MAP@R", 3),
)
_REFINED = {"off": "nothing", "gallery": "the gallery", "query": "the query", "both": "gallery and query"}


def write_notice(bundle: ModelBundle, notice: Path | None = None) -> None:
    """Write the bundle's `NOTICE`: a given file, else what the manifest says of licence and source."""
    path, manifest = bundle.path / NOTICE_FILE, bundle.manifest
    path.unlink(missing_ok=True)
    if notice is not None:
        shutil.copyfile(notice, path)
    elif manifest.source:
        path.write_text(
            f"The weights of this model bundle are those of {manifest.source}, licence {manifest.licence}.\n"
            "They were converted to ONNX, and changed as MODEL_CARD.md says.\n",
            encoding="utf-8",
        )


def write_card(bundle: ModelBundle) -> None:
    """Write `MODEL_CARD.md` from the manifest: what it is, where it comes from, what was measured."""
    manifest = bundle.manifest
    is_trained = "datasets" in manifest.training
    parts = [
        [f"# {manifest.name}"],
        [_summary(manifest)],
        _origin(manifest, has_notice=(bundle.path / NOTICE_FILE).is_file()),
        _tests(manifest),
        _forms(manifest),
        *_refiner(manifest.refiner),
        ["The recipe is `recipe.toml` beside this file, its learning curve `training.csv`."]
        if is_trained
        else [],
    ]
    text = "\n\n".join("\n".join(part) for part in parts if part)
    (bundle.path / CARD_FILE).write_text(text + "\n", encoding="utf-8")


def _summary(manifest: BundleManifest) -> str:
    form = f", {manifest.precision}" if manifest.precision else ""
    ready = f"Ready embeddings of {manifest.space}, version {manifest.version}"
    prepared = manifest.preprocessing
    what = ready if prepared is None else f"{manifest.backbone}, {prepared.input_size} px"
    return (
        f"{what}, {manifest.dim}-d embeddings{form}, licence {manifest.licence}, "
        f"fingerprint `{manifest.fingerprint}`."
    )


def _origin(manifest: BundleManifest, *, has_notice: bool) -> list[str]:
    training = manifest.training
    lines = [f"Weights: {manifest.source}."] if manifest.source else []
    lines += [f"Licence and source are in `{NOTICE_FILE}`."] if has_notice else []
    lines += [f"Made from `{training['file']}`, as it is."] if "file" in training else []
    if taken := training.get("hub"):
        lines += [f"Its embedding is {taken['output']} of the network that it was made from:", ""]
        lines += [f"- `{name}`, SHA-256 `{sha256}`" for name, sha256 in taken["files"].items()]
    lines += [f"Its head was learnt from {training['head']}."] if "head" in training else []
    if "datasets" not in training:
        return lines
    trained = (
        f"Trained on {training['images']:,} images of {training['classes']:,} classes with the "
        f"{training['loss']} loss, {training['best_step']} steps of {training['batch_size']} images:"
    )
    lines += [trained, "", *(f"- {dataset}" for dataset in training["datasets"])]
    if (share := training.get("share", 1.0)) != 1.0:
        lines += ["", f"Its weights lie {share:.0%} of the way from the first ones to the trained ones."]
    return lines


def _tests(manifest: BundleManifest) -> list[str]:
    if not manifest.metrics:
        return []
    return [
        "Measured on classes that training never saw (cosine similarity, no re-ranking):",
        "",
        "| test | hit rate R@1 | MAP@R | AUROC, with against without mate | OPIS | 10 %-OPIS "
        "| gallery | queries | absent |",
        "|---|---|---|---|---|---|---|---|---|",
        *[_card_row(name, metrics) for name, metrics in manifest.metrics.items()],
        "",
        "OPIS says how differently the classes fare under one threshold, 0 being alike. In brackets is "
        "what it would be if all classes were equal, from sampling alone; it rises with fewer images a "
        "class, so compare bundles on one test only.",
    ]


def _forms(manifest: BundleManifest) -> list[str]:
    """Rows of the forms in which the network was measured, this bundle's marked."""
    if not manifest.forms:
        return []
    columns = [column for column in _FORM_COLUMNS if any(column[0] in one for one in manifest.forms.values())]
    head = " | ".join(title for _, title, _ in columns)
    rows = [
        f"| {f'**{form}**' if form == manifest.precision else form} | "
        f"{' | '.join(_shown(figures, key, digits) for key, _, digits in columns)} |"
        for form, figures in manifest.forms.items()
    ]
    return [
        "On the machine that made this bundle, in ONNX Runtime, without decoding:",
        "",
        f"| form | {head} |",
        f"|---|{'---|' * len(columns)}",
        *rows,
        "",
        "Images a second are at batches of 16. Agreement is the mean cosine of an image's embedding to that "
        "of float32. Another form is another model: its embeddings are not compared with these.",
    ]


def _refiner(section: RefinerManifest | None) -> list[list[str]]:
    """Nature and default of the refiner, and the figures that decided it."""
    if section is None:
        return []
    built, training = section.architecture, section.training
    steps = "1 step" if built.n_steps == 1 else f"{built.n_steps} steps"
    parts = ["softmax query expansion"] * built.expansion + ["a level"] * built.level
    joined = f", with {' and '.join(parts)}" if parts else ""
    reranked = "are not re-ranked" if section.rerank == "off" else "are re-ranked"
    lines = [
        f"Refiner: `{built.form}`, {steps} over {built.n_neighbors} neighbors{joined}. "
        f"By default {_REFINED[section.sides]} is refined, and results {reranked}."
    ]
    if "items" in training:
        names = ", ".join(training["datasets"])
        lines.append(
            f"It was trained on {training['items']:,} embeddings of {training['classes']:,} classes"
            f"{f': {names}' if names else ''}."
        )
    return [lines, _judged(section)]


def _judged(section: RefinerManifest) -> list[str]:
    """Classes that the default was chosen on, and a row for each thing that can be refined."""
    figures = section.validation
    if "queries" not in figures:
        return []
    validation = section.training.get("recipe", {}).get("validation", {})
    at = f" at FPIR {100 * validation['fpir']:g} %" if "fpir" in validation else ""
    rows = [
        f"| {f'**{name}**' if sides == section.sides else name} | {_shown(figures[sides], 'fnir')} | "
        f"{_shown(figures[sides], 'map_at_r')} | {_shown(figures[sides], 'hit_rate_1')} |"
        for sides, name in _REFINED.items()
        if sides in figures
    ]
    queries = figures["queries"]
    return [
        f"The default was decided {_judges(section.training)}, with {queries['n_known']:,.0f} queries "
        f"with a mate and {queries['n_absent']:,.0f} without:",
        "",
        f"| refined | FNIR{at} | MAP@R | R@1 |",
        "|---|---|---|---|",
        *rows,
    ]


def _judges(training: Mapping[str, Any]) -> str:
    if training.get("validation_datasets"):
        return f"on other classes, of {', '.join(training['validation_datasets'])}"
    return f"on {training.get('judged_on', 'held-out classes')}"


def _card_row(name: str, metrics: Mapping[str, Any]) -> str:
    rates = [_shown(metrics, key) for key in ("hit_rate_1", "map_at_r", "auroc")]
    consistency = [
        f"{_shown(metrics, key, 4)} ({_shown(metrics, f'{key}_floor', 4)})"
        for key in ("opis", "epsilon_opis")
    ]
    counts = [_shown(metrics, key, 0) for key in ("n_gallery", "n_queries", "n_absent")]
    return f"| {name} | {' | '.join([*rates, *consistency, *counts])} |"


def _shown(metrics: Mapping[str, float], key: str, digits: int = 3) -> str:
    return f"{metrics[key]:,.{digits}f}" if key in metrics else "-"
