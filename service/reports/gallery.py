"""A gallery in a few lines: what it holds, how it is searched, what its threshold promises, what to mind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from vicinal.indexer.disk import paths_below
from vicinal.indexer.errors import BundleMismatchError
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.hygiene import Hygiene, examine_items
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.storage.files import size_of
from vicinal.indexer.views.view import GalleryView
from vicinal.service.answering.store import SearchStore
from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.measuring.matcher import Matcher, measuring_command
from vicinal.service.reports.report import say_promise
from vicinal.service.words import (
    hygiene_lines,
    mebibytes,
    number_of,
    percent,
    search_words,
)


def gallery_lines(gallery: Gallery, bundles: ServedBundles) -> Iterator[str]:
    """A gallery for people, line by line."""
    view, space = GalleryReader(gallery).view(), gallery.space
    built, noun = view.snapshot.manifest, "photo" if space is None else "item"
    held = f"{number_of(len(view), noun)} with {number_of(view.n_labels, 'label')}"
    known_as = f", also known as {', '.join(gallery.aliases)}" if gallery.aliases else ""
    yield f"Gallery {gallery.name}{known_as}: {held}, version {built.version}"
    try:
        matcher = bundles.matcher(gallery, view)
    except BundleMismatchError as error:
        yield f"It cannot be searched here: {error}"
    else:
        yield f"Searches: {search_words(matcher.pipeline, matcher.embedder.bundle)}"
        yield from _threshold_lines(matcher)
    n_versions = len(gallery.versions())
    size = size_of(paths_below(gallery.path))
    made_by = f"Model {built.bundle_name} ({built.bundle})"
    if space is not None:
        made_by = f"Space {space.space}@{space.version} of {space.dim} dimensions"
    yield (
        f"{made_by}, index {built.index}, {mebibytes(size)} on the disk in {number_of(n_versions, 'version')}"
    )
    n_kept, n_bytes = SearchStore(gallery.path).readable
    if n_kept:
        kept = number_of(n_kept, "search", "searches")
        yield f"Kept for review: {kept}, {mebibytes(n_bytes)} of these"
    yield from (f"note: {line}" for line in _notes(gallery, view, noun))


def _threshold_lines(matcher: Matcher) -> Iterator[str]:
    found = matcher.threshold()
    if found.value is None:
        yield f"No threshold: {found.reason}"
    else:
        reason = None if found.state == "broken" else found.reason
        known = [found.target, found.calibration and f"calibration {found.calibration}", reason]
        yield f"Threshold {found.value:.4f}: {', '.join(one for one in known if one)}"
    if found.value is None:
        yield f"To measure one: {measuring_command(matcher.gallery)}"
    yield from (f"  {sentence}" for sentence in say_promise(matcher))
    if found.note:
        yield f"note: {found.note}"


def hygiene_now(gallery: Gallery, view: GalleryView, report: Mapping[str, Any]) -> Hygiene:
    """Hygiene of the items that are held now, in the report of the version unless they changed since."""
    if not view.n_changes:
        return Hygiene(**report.get("hygiene", {}))
    return examine_items(gallery, view, has_images=gallery.space is None)


def _notes(gallery: Gallery, view: GalleryView, noun: str) -> Iterator[str]:
    report = gallery.reports.of(view.snapshot.manifest.version)
    n_unread = len(report.get("failures", []))
    if n_unread:
        yield f"{number_of(n_unread, noun)} could not be read, see --json"
    if unread := report.get("unread"):
        parts = number_of(len(unread), "part of the source was", "parts of the source were")
        yield f"{parts} not read, see --json"
    yield from hygiene_lines(hygiene_now(gallery, view, report))
    if view.graph_staleness:
        yield (
            f"{percent(view.graph_staleness)} of the {noun}s have changed since the version was made, which "
            f"re-ranking does not know: vicinal gallery compact {gallery.name}"
        )
