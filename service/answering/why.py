"""Reasons of a wrong match: the answer that there would be without its item.

Nothing is guessed: the picture is searched for again as if the item were not in the gallery, so that
refinement, re-ranking and groups do without it too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from pydantic import Field

from vicinal.indexer.errors import ItemNotFoundError
from vicinal.service.answering.kept import KeptCandidate, KeptSearch
from vicinal.service.answering.store import SearchStore
from vicinal.service.errors import RequestError
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.request_fields import Body
from vicinal.service.search.answers import Answer, Verdict
from vicinal.service.search.scorer import N_DECIDED_CANDIDATES


class WrongMatchBody(Body):
    """Account of what a match that was called wrong rests on, by today's gallery."""

    item_id: str
    label: str | None
    score: float | None = Field(
        description="Best score of its label, or of its group, today; null where it is no candidate."
    )
    threshold: float | None
    carrier: KeptCandidate | None = Field(
        description="The item without which this would be no match of that label; null where there is none."
    )
    score_without: float | None = Field(
        description="Best score of the label, or of its group, without the item; null where none is left."
    )
    verdict_without: Verdict | None = Field(description="What would be answered without the item.")
    best_without: KeptCandidate | None = Field(description="The best item then, whatever its label.")
    sentence: str = Field(description="All of it in a sentence or two.")


@dataclass(frozen=True)
class _Found:
    """Findings of a search, as it decides: an item of each label or group, best first."""

    answer: Answer
    entries: list[tuple[str, KeptCandidate]]

    @property
    def best(self) -> KeptCandidate | None:
        return self.entries[0][1] if self.entries else None

    def of_name(self, name: str) -> KeptCandidate | None:
        return next((one for own, one in self.entries if own == name), None)


def explain_wrong(matcher: Matcher, search_id: str, item_id: str) -> WrongMatchBody:
    """Say what carried a match of a kept search that an item is not.

    Raises:
        SearchNotFoundError: The search was not kept, or has gone.
        ItemNotFoundError: There is no such item.
        RequestError: The search was made with another model.
    """
    search = SearchStore(matcher.gallery.path).get(search_id)
    if search.bundle != matcher.snapshot.manifest.bundle:
        raise RequestError(f"search '{search_id}' was made with another model: search again")
    position = int(matcher.view.positions([item_id])[0])
    if position < 0:
        raise ItemNotFoundError(matcher.gallery.name, item_id)
    label = matcher.view.items([position])[0]["label"]
    name = _name_of(matcher, position, item_id, label)
    now, then = (_search(matcher, search, gone) for gone in ([], [item_id]))
    own, left = now.of_name(name), then.of_name(name)
    threshold = now.answer.threshold.value
    # It made the match where that is none without it, of this label.
    is_match = own is not None and threshold is not None and own.score >= threshold
    is_carrier = is_match and (left is None or threshold is None or left.score < threshold)
    body = WrongMatchBody(
        item_id=item_id,
        label=label,
        score=own and own.score,
        threshold=threshold,
        carrier=own if is_carrier else None,
        score_without=left and left.score,
        verdict_without=then.answer.verdict,
        best_without=then.best,
        sentence="",
    )
    return body.model_copy(update={"sentence": _sentence(body, is_match, left)})


def _search(matcher: Matcher, search: KeptSearch, gone: list[str]) -> _Found:
    """Find again what a search was for, without some items, whatever was called different."""
    (answer,) = matcher.search(
        embeddings=search.embedding, without=gone, limit=N_DECIDED_CANDIDATES, include_candidates=True
    )
    found = [(name, KeptCandidate(one.id, one.label, score)) for name, one, score in answer.entries]
    return _Found(answer, [(_key(name, one.id), one) for name, one in found])


def _name_of(matcher: Matcher, position: int, item_id: str, label: str | None) -> str:
    group = matcher.pipeline.group
    if group is None:
        return _key(label, item_id)
    groups = matcher.groups(group.by)
    return _key(groups.name(int(groups.of_items(np.array([position]))[0])), item_id)


def _key(name: str | None, item_id: str) -> str:
    return f"alone {item_id}" if name is None else f"named {name}"


def _sentence(body: WrongMatchBody, is_match: bool, left: KeptCandidate | None) -> str:
    name = f"'{body.label}'" if body.label is not None else "it"
    if not is_match:
        return f"Item '{body.item_id}' makes no match of this picture today."
    if body.carrier is None and left is not None:
        return (
            f"No single item is to blame: without '{body.item_id}' the best of {name} is '{left.id}' with "
            f"{left.score:.3f}, still a match."
        )
    best, threshold = body.best_without, body.threshold or 0.0
    without = f"{name} would score {left.score:.3f}" if left is not None else f"nothing of {name} is left"
    said = f"Item '{body.item_id}' carried it: without it {without}, and "
    if best is not None and body.verdict_without == "match":
        return f"{said}'{best.label or best.id}' would match with {best.score:.3f}."
    return f"{said}nothing would reach the threshold of {threshold:.3f}."
