"""Report pages: sentences, tables and small pictures in HTML that has no scripts and loads nothing."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import zip_longest
from typing import NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from PIL import Image

from vicinal.indexer.errors import IndexerError
from vicinal.indexer.gallery import Gallery
from vicinal.models.bundle import Noun
from vicinal.service.duplicates.record import DuplicateItem, DuplicateRecord
from vicinal.service.measuring.records.curves import Example
from vicinal.service.reports.promise import advice, calibration_lines
from vicinal.service.reports.report import ReportBody
from vicinal.service.search.answers import ExplainedRefinement
from vicinal.service.words import (
    drift_words,
    labels_behind,
    measured_rates,
    mebibytes,
    number_of,
    percent,
    span,
    standing_words,
    visible,
)

_MOST_EXAMPLES = 8
# Of duplicates, as many as a browser still scrolls well.
_MOST_GROUPS = 200
_MOST_COPIES = 11
# Of all data URIs of a page together.
_MOST_BYTES = 300_000
_MOST_DUPLICATE_BYTES = 20_000_000
_SIDE = 128
_QUALITY = 78


class Picture(NamedTuple):
    """Picture with its words; `uri` is None where there is none."""

    uri: str | None
    name: str
    text: str


class Section(NamedTuple):
    """Section of a page: sentences, a table, and rows of pictures that are seen side by side."""

    title: str
    sentences: Sequence[str] = ()
    headers: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    pictures: Sequence[Sequence[Picture]] = ()


def render_page(title: str, verdict: str, sections: Sequence[Section], about: str) -> str:
    """A page; every text is escaped, and what cannot be seen in it stands as its escape."""
    page = _environment().get_template("page.html")
    return page.render(title=title, verdict=verdict, sections=sections, about=about)


def page_style() -> str:
    """The style of all pages, as they hold it."""
    return f"<style>{_environment().get_template('page.css').render()}</style>"


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("vicinal.service.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: visible(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def render_report(report: ReportBody, gallery: Gallery) -> str:
    """The page of a calibration."""
    record = report.record
    return render_page(
        f"Calibration of gallery {gallery.name}",
        report.verdict,
        [one for one in _calibration_sections(report, gallery) if any(one[1:])],
        f"calibration {record.id} of {record.created_at:%Y-%m-%d %H:%M} UTC, bundle {record.bundle}",
    )


def _calibration_sections(report: ReportBody, gallery: Gallery) -> Iterator[Section]:
    record = report.record
    noun: Noun = "item" if gallery.space else "photo"
    since = f" since {report.active_since:%Y-%m-%d %H:%M} UTC" if report.active_since else ""
    force = f"In force{since}" if report.is_active else "Not in force"
    standing = standing_words(report.state, report.reason, report.last_check, noun)
    yield Section("What it rests on", [one for one in (report.basis, f"{force}; {standing}.") if one])
    steps = advice(record, gallery.name, noun=noun)
    yield Section("What would improve it", [], [], [(one.text, one.command) for one in steps])
    yield Section("Warnings", record.warnings)
    if record.evidence:
        yield Section(
            "Rates at the threshold",
            headers=("rate", "of", "95 % interval", "measured on", "without one label"),
            rows=[
                (name, f"{words.trials} that {words.event}", "", "not measured", "")
                if found is None
                else (
                    f"{name} {percent(found.rate)}",
                    f"{words.trials} that {words.event}",
                    span(found.low, found.high),
                    f"{found.n_trials:,}, of {labels_behind(found)}",
                    span(*found.leave_one_label_out),
                )
                for name, words, found in measured_rates(record.evidence)
            ],
        )
        lines = map(str.strip, calibration_lines(record, noun))
        yield Section("All figures", [one for one in lines if not one.startswith("note: ")])
        yield Section("Drift since the activation", [f"Level {drift_words(report.drift)}."])
    accepts, rejects = _worst_examples(report, gallery)
    of_accepts = "Queries without a mate, or with their label taken out, that score highest with something."
    yield Section("Worst false accepts", [of_accepts] if accepts else [], pictures=accepts)
    of_rejects = "Queries with a mate whose best mate scores lowest."
    yield Section("Worst false rejects", [of_rejects] if rejects else [], pictures=rejects)


def _worst_examples(report: ReportBody, gallery: Gallery) -> tuple[list[list[Picture]], list[list[Picture]]]:
    """The worst false accepts and the worst false rejects of a calibration, as far as they are kept."""
    details, record = report.details, report.record
    if details is None:
        return [], []
    accepts, rejects = details.false_accepts[:_MOST_EXAMPLES], details.false_rejects[:_MOST_EXAMPLES]
    # In turns, so that both kinds get pictures.
    turns = [one for both in zip_longest(accepts, rejects) for one in both if one is not None]
    # Queries from outside are no items, whatever they are called.
    is_item = record.source == "leave_one_out"
    ids = [item_id for one in turns for item_id in (one.query if is_item else None, one.item)]
    try:
        uris = embed_thumbnails(gallery, gallery.pointer.revision_of(record.version), ids)
    except IndexerError:
        uris = [None] * len(ids)
    pairs = zip(turns, uris[::2], uris[1::2], strict=True)
    shown = {id(one): _example(one, query, item) for one, query, item in pairs}
    return [shown[id(one)] for one in accepts], [shown[id(one)] for one in rejects]


def _example(one: Example, query: str | None, item: str | None) -> list[Picture]:
    return [
        Picture(query, one.query_label or "no label", f"query {one.query or ''}"),
        Picture(item, one.item_label or "no label", f"item {one.item or ''}, score {one.score:.4f}"),
    ]


def render_refinement(refinement: ExplainedRefinement, *, title: str) -> str:
    """The page of what the refiner does with a query."""
    ranks = [str(one or "beyond 1000") for one in refinement.ranks]
    verdict = "There are no candidates."
    if refinement.candidate:
        verdict = f"The best candidate, {refinement.candidate}, goes from rank {ranks[0]} to {ranks[-1]}."
    unused = "This search used the query as it was. With refinement it would have gone this way."
    steps = [f"attention in step {number}" for number in range(1, len(refinement.cosines))]
    cosines = [f"{one:.4f}" for one in refinement.cosines]
    attention = [[f"{share:.0%}" for share in one.attention] for one in refinement.neighbors]
    near = [
        (one.id, one.label or "no label", f"{one.similarity:.4f}", *shares)
        for one, shares in zip(refinement.neighbors, attention, strict=True)
    ]
    sections = [
        Section(
            "Step by step",
            [] if refinement.is_used else [unused],
            ("step", "cosine to the first", "rank of the best candidate"),
            list(zip(map(str, range(len(cosines))), cosines, ranks, strict=True)),
        ),
        Section("Its neighbors", [], ("neighbor", "label", "similarity", *steps), near),
    ]
    return render_page(f"What the refiner does with {title}", verdict, sections, "way of a query")


def render_duplicates(record: DuplicateRecord, gallery: Gallery) -> str:
    """The page of duplicates: each group side by side, the kept photo first."""
    shown = [[group.kept, *group.copies[:_MOST_COPIES]] for group in record.groups[:_MOST_GROUPS]]
    ids = [one.id for items in shown for one in items]
    # The revision that was looked at may be cleaned up by now.
    active = gallery.activation
    revision = record.revision if active is None else active.revision
    uris = iter(embed_thumbnails(gallery, revision, ids, most_bytes=_MOST_DUPLICATE_BYTES))
    groups = [[_copy(one, next(uris), is_kept=one is items[0]) for one in items] for items in shown]
    n, n_items, size = len(record.removable), number_of(record.n_items, "item"), mebibytes(record.n_bytes)
    verdict = f"No copies were found among {n_items}."
    if n:
        exact = number_of(record.n_exact, "exact copy", "exact copies")
        verdict = f"{n:,} of {n_items} could go: {exact} and {record.n_near:,} changed, {size}."
    left_out = sum(len(group.copies) + 1 for group in record.groups) - len(ids)
    rule = f"The kept item stands first. {record.rule[0].upper()}{record.rule[1:]}. Nothing was deleted."
    more = [f"{number_of(left_out, 'further item')} of these groups and of others are not shown."]
    sections = [Section("What was looked for", [f"{one}." for one in (record.sentence, *record.notes)])]
    if n:
        sections.append(Section("Groups", [rule, *(more if left_out else [])], pictures=groups))
    about = f"duplicates {record.id} of {record.created_at:%Y-%m-%d %H:%M} UTC"
    return render_page(f"Duplicates in gallery {record.gallery}", verdict, sections, about)


def _copy(item: DuplicateItem, uri: str | None, *, is_kept: bool) -> Picture:
    told = [
        f"{item.width} x {item.height}" if item.width else "",
        "" if item.n_bytes is None else f"{item.n_bytes:,} bytes",
        "" if item.score is None else f"score {item.score:.2f}",
    ]
    said = ", ".join([item.id, *filter(None, told)])
    return Picture(uri, "kept" if is_kept else ", ".join(item.kinds), said)


def embed_thumbnails(
    gallery: Gallery, revision: int, item_ids: Sequence[str | None], *, most_bytes: int = _MOST_BYTES
) -> list[str | None]:
    """A data URI for each item, the most important first; None without a picture, or any room."""
    known: dict[str, str | None] = {}
    found: list[str | None] = []
    left = most_bytes
    for item_id in item_ids:
        if item_id is not None and item_id not in known:
            known[item_id] = _uri(gallery, revision, item_id)
        uri = None if item_id is None else known[item_id]
        found.append(uri if uri is not None and len(uri) <= left else None)
        left -= len(found[-1] or "")
    return found


def _uri(gallery: Gallery, revision: int, item_id: str) -> str | None:
    try:
        stored = gallery.thumbnail(revision, item_id)
    except IndexerError:
        return None
    stream = io.BytesIO()
    with Image.open(io.BytesIO(stored)) as image:
        image.thumbnail((_SIDE, _SIDE))
        image.convert("RGB").save(stream, "JPEG", quality=_QUALITY, optimize=True)
    return "data:image/jpeg;base64," + base64.b64encode(stream.getvalue()).decode("ascii")
