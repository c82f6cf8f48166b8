"""Model card: what a bundle is, for people, from its manifest."""

from __future__ import annotations

from vicinal.models.bundle import ModelBundle

__all__ = ["write_card"]


def write_card(bundle: ModelBundle) -> None:
    """Write `MODEL_CARD.md` from the manifest."""
    manifest = bundle.manifest
    training = manifest.training
    lines = [
        f"# {manifest.name}",
        "",
        f"{manifest.backbone}, {manifest.preprocessing.input_size} px, {manifest.dim}-d embeddings, "
        f"licence {manifest.licence}, fingerprint `{manifest.fingerprint}`.",
        "",
        "A small embedding for a first try without a network. For your own photos, export a pretrained "
        "backbone with `vicinal export`, or train one with `vicinal train`.",
        "",
        f"Trained on {training['images']:,} images of {training['classes']:,} classes with the "
        f"{training['loss']} loss, {training['best_step']} steps of {training['batch_size']} images:",
        "",
        *[f"- {dataset}" for dataset in training["datasets"]],
        "",
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
        "",
        "The recipe is `recipe.toml` beside this file, its learning curve `training.csv`.",
    ]
    (bundle.path / "MODEL_CARD.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _card_row(name: str, metrics: dict[str, float]) -> str:
    rates = [_shown(metrics, key) for key in ("hit_rate_1", "map_at_r", "auroc")]
    consistency = [
        f"{_shown(metrics, key, 4)} ({_shown(metrics, f'{key}_floor', 4)})"
        for key in ("opis", "epsilon_opis")
    ]
    counts = [_shown(metrics, key, 0) for key in ("n_gallery", "n_queries", "n_absent")]
    return f"| {name} | {' | '.join([*rates, *consistency, *counts])} |"


def _shown(metrics: dict[str, float], key: str, digits: int = 3) -> str:
    return f"{metrics[key]:,.{digits}f}" if key in metrics else "-"
