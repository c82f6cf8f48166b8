"""A program over the package as its users write it: a type checker must see our types in it."""

from __future__ import annotations

from pathlib import Path

from vicinal import Answer, Matcher, Settings, create_app


def labels_of(matcher: Matcher, image: Path) -> list[str | None]:
    """Labels of what is in a picture, best first; empty when it is nothing of the gallery."""
    (answer,) = matcher.search(images=[image], limit=3)
    return [match.label for match in answer.matches]


def distance_to_a_match(answer: Answer) -> float:
    if answer.top_score is None or answer.threshold.value is None:
        return 1.0
    return max(0.0, answer.threshold.value - answer.top_score)


app = create_app(Settings(data_dir=Path("data"), threads=1))
