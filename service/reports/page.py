"""Report pages: HTML without scripts that loads nothing, with small pictures of the items in it."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from functools import cache
from itertools import zip_longest

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from PIL import Image

from vicinal.indexer.errors import IndexerError
from vicinal.indexer.gallery import Gallery
from vicinal.service import words
from vicinal.service.duplicates.record import DuplicateRecord
from vicinal.service.measuring.records.curves import Example
from vicinal.service.reports.figures import (
    drift_figures,
    rate_figures,
    score_figures,
    utility_figures,
    way_figure,
)
from vicinal.service.reports.promise import advice
from vicinal.service.reports.report import ReportBody
from vicinal.service.search.answers import ExplainedRefinement

_MOST_EXAMPLES = 8
# Of duplicates, as many as a browser still scrolls well.
_MOST_GROUPS = 200
_MOST_COPIES = 11
# Of all data URIs of a page together.
_MOST_BYTES = 300_000
_MOST_DUPLICATE_BYTES = 20_000_000
_SIDE = 128
_QUALITY = 78

# An example with the pictures of its query and its item, as data URIs; None without one.
ShownExample = tuple[Example, str | None, str | None]


def render_report(report: ReportBody, gallery: Gallery) -> str:
    """The page of a report."""
    false_accepts, false_rejects = _worst_examples(report, gallery)
    return _page(
        "report.html",
        gallery=gallery.name,
        report=report,
        record=report.record,
        advice=advice(report.record, gallery.name, noun="item" if gallery.space else "photo"),
        rate_figures=rate_figures(report),
        score_figures=score_figures(report),
        utility_figures=utility_figures(report),
        drift_figures=drift_figures(report.drift),
        false_accepts=false_accepts,
        false_rejects=false_rejects,
    )


def render_refinement(refinement: ExplainedRefinement, *, title: str) -> str:
    """The page of what the refiner does with a query."""
    steps = [f"attention in step {number}" for number in range(1, len(refinement.cosines))]
    figure = way_figure(refinement)
    return _page("refinement.html", title=title, refinement=refinement, figure=figure, steps=steps)


def render_duplicates(record: DuplicateRecord, gallery: Gallery) -> str:
    """The page of duplicates: each group side by side, the kept photo first."""
    shown = [[group.kept, *group.copies[:_MOST_COPIES]] for group in record.groups[:_MOST_GROUPS]]
    ids = [one.id for items in shown for one in items]
    # The revision that was looked at may be cleaned up by now.
    active = gallery.activation
    revision = record.revision if active is None else active.revision
    pictures = iter(embed_thumbnails(gallery, revision, ids, most_bytes=_MOST_DUPLICATE_BYTES))
    groups = [
        ([(one, next(pictures)) for one in items], len(group.copies) + 1 - len(items))
        for items, group in zip(shown, record.groups, strict=False)
    ]
    return _page("duplicates.html", record=record, groups=groups, n_left_out=len(record.groups) - len(groups))


def page_style() -> str:
    """The style of all pages, as they hold it."""
    return f"<style>{_environment().get_template('report.css').render()}</style>"


def _page(template: str, **values: object) -> str:
    """A page of what a template shows of some values, each of which is escaped."""
    return _environment().get_template(template).render(values)


def _shown(value: object) -> object:
    """A value as it is written out: what macros have made is HTML, any other text is somebody's."""
    return words.visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def _environment() -> Environment:
    """Templates that escape every value where they write it out."""
    made = Environment(
        loader=PackageLoader("vicinal.service.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["percent"] = words.percent
    made.globals |= {name: value for name, value in vars(words).items() if name[0] != "_"}
    made.globals["number"] = "{:,}".format
    return made


def _worst_examples(report: ReportBody, gallery: Gallery) -> tuple[list[ShownExample], list[ShownExample]]:
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
        pictures = embed_thumbnails(gallery, gallery.pointer.revision_of(record.version), ids)
    except IndexerError:
        pictures = [None] * len(ids)
    shown = {
        id(one): (one, query, item)
        for one, query, item in zip(turns, pictures[::2], pictures[1::2], strict=True)
    }
    return [shown[id(one)] for one in accepts], [shown[id(one)] for one in rejects]


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
