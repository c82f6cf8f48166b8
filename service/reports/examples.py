"""Report examples: pairs of query and item that were decided wrongly, with thumbnails."""

from __future__ import annotations

from collections.abc import Sequence

from vicinal.indexer.gallery import Gallery
from vicinal.service.calibrator.curves import Example
from vicinal.service.reports.markup import Element, element
from vicinal.service.reports.report import ReportBody
from vicinal.service.reports.report_parts import section_head
from vicinal.service.reports.report_thumbnails import embed_thumbnails

__all__ = ["examples_section"]

_MOST_EXAMPLES = 8
_ACCEPTS = (
    "Queries without a mate, or with their label taken out of the gallery, that score highest with something."
)
_REJECTS = "Queries with a mate whose best mate scores lowest."


def examples_section(report: ReportBody, gallery: Gallery) -> Element | None:
    """The worst false accepts and false rejects of a calibration; None where they are not kept.

    Args:
        report: All that is known of the calibration.
        gallery: Where the thumbnails come from.
    """
    details, record = report.details, report.record
    if details is None:
        return None
    accepts, rejects = details.false_accepts[:_MOST_EXAMPLES], details.false_rejects[:_MOST_EXAMPLES]
    # Queries from outside are no items, whatever they are called.
    is_item = record.source == "leave_one_out"
    # In turns, so that both kinds get pictures.
    order = sorted([*enumerate(accepts), *enumerate(rejects)], key=lambda one: one[0])
    ids = [item_id for _, one in order for item_id in (one.query if is_item else None, one.item)]
    pictures = embed_thumbnails(gallery, record.version, ids)
    by_example = {id(one): pictures[2 * i : 2 * i + 2] for i, (_, one) in enumerate(order)}
    return element(
        "section",
        _list("Worst false accepts", _ACCEPTS, [_pair(one, by_example[id(one)]) for one in accepts]),
        _list("Worst false rejects", _REJECTS, [_pair(one, by_example[id(one)]) for one in rejects]),
    )


def _list(title: str, text: str, pairs: Sequence[Element]) -> Sequence[Element]:
    listed = element("ul", pairs, class_="pairs") if pairs else element("p", "There are none.")
    return [*section_head(title, text), listed]


def _pair(example: Example, pictures: Sequence[str | None]) -> Element:
    query, item = pictures
    return element(
        "li",
        _side("query", query, example.query_label, example.query),
        _side("item", item, example.item_label, example.item),
        element("p", f"score {example.score:.4f}"),
        class_="card pair",
    )


def _side(kind: str, picture: str | None, label: str | None, name: str | None) -> Element:
    shown = element("div", "no picture", class_="none")
    if picture is not None:
        shown = element("img", src=picture, alt=f"{kind}: {label or 'no label'}", loading="lazy")
    return element(
        "div",
        shown,
        element("b", label or "no label"),
        element("small", f"{kind} {name or ''}"),
        class_="side",
    )
