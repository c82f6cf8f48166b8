"""The report page: self-contained, escaped, and true to the record."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st

from tests.service.types import MakeSettings
from vicinal.calibration import Target
from vicinal.indexer.gallery import Gallery
from vicinal.models.embedder import Embedder
from vicinal.service.http.app import create_app
from vicinal.service.measuring.calibrator import Calibrator
from vicinal.service.measuring.drift import read_drift
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.measuring.queries import LabelledQueries
from vicinal.service.reports.page import render_refinement, render_report
from vicinal.service.reports.report import ReportBody, report_record
from vicinal.service.search.answers import ExplainedNeighbor, ExplainedRefinement
from vicinal.service.words import visible

SCRIPT = "<script>alert('x')</script>"
REFERENCES = ("src", "href", "action", "srcset", "data", "poster", "xlink:href")


class Page(HTMLParser):
    """Tags, references and texts of a page, and whether what was opened was closed."""

    VOID = frozenset({"meta", "img", "br", "hr"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.references: list[str] = []
        self.pictures: list[str] = []
        self.alternatives: list[str] = []
        self.handlers: list[str] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.references += [value or "" for name, value in attrs if name in REFERENCES]
        self.pictures += [value or "" for name, value in attrs if (tag, name) == ("img", "src")]
        self.alternatives += [value or "" for name, value in attrs if name == "alt"]
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return "".join(self.texts)


@pytest.fixture
def report(gallery: Gallery, embedder: Embedder) -> ReportBody:
    snapshot = gallery.snapshot()
    matcher = Matcher(gallery, embedder)
    target = Target(rate="fpir", value=0.2)
    found = Calibrator(snapshot, matcher.pipeline).measure(LabelledQueries.leave_one_out(snapshot), target)
    record = matcher.calibrations.add(found.record, found.scores, found.curves)
    return report_record(matcher, record, read_drift(matcher.calibrations, record))


def with_labels(report: ReportBody, label: str, *, with_ids: bool = True) -> ReportBody:
    """The same report with all names of users replaced."""
    details, record = report.details, report.record
    names = {"query_label": label, "item_label": label}
    if with_ids:
        names |= {"query": label, "item": label}
    utilities = {
        space: one.model_copy(update={"labels": [label] * len(one.labels)})
        for space, one in details.utilities.items()
    }
    details = details.model_copy(
        update={
            "false_accepts": [one.model_copy(update=names) for one in details.false_accepts],
            "false_rejects": [one.model_copy(update=names) for one in details.false_rejects],
            "utilities": utilities,
        }
    )
    worst = tuple(one.model_copy(update={"label": label}) for one in record.evidence.worst_classes)
    evidence = record.evidence.model_copy(update={"worst_classes": worst})
    record = record.model_copy(update={"evidence": evidence, "warnings": (label,), "bundle": label})
    return report.model_copy(update={"details": details, "record": record, "verdict": label, "reason": label})


def refinement_of(name: str) -> ExplainedRefinement:
    neighbor = ExplainedNeighbor(name, name, 0.5, [1.0, 1.0], (0.1, 0.2))
    way = [(0.0, 0.0), (0.1, 0.0), (0.2, 0.1)]
    return ExplainedRefinement("abc", True, [neighbor], [1.0, 0.9, 0.8], name, [2, 1, 1], way, (0.6, 0.3))


@pytest.mark.slow
def test_the_page_is_well_formed_and_loads_nothing(report: ReportBody, gallery: Gallery) -> None:
    text = render_report(report, gallery)
    page = Page(text)
    assert page.open == []
    assert (page.tags.count("script"), page.tags.count("link"), page.handlers) == (0, 0, [])
    assert all(one.startswith("data:image/jpeg;base64,") for one in page.references)
    assert re.findall(r"https?:|url\(|@import", text) == []


@pytest.mark.slow
def test_the_verdict_stands_first_and_says_all_of_it(report: ReportBody, gallery: Gallery) -> None:
    page = Page(render_report(report, gallery))
    assert page.text.index(report.verdict) < page.text.index("Rates at the threshold")
    for part in ("photos of things you have", "photos of things you lack"):
        assert part in report.verdict
    assert "60 photos of 10 labels" in report.basis
    assert report.basis in page.text


@pytest.mark.slow
def test_labels_of_users_never_become_markup(report: ReportBody, gallery: Gallery) -> None:
    text = render_report(with_labels(report, SCRIPT), gallery)
    page = Page(text)
    assert (page.tags.count("script"), page.open, "<script" in text) == (0, [], False)
    assert SCRIPT in page.texts


@pytest.mark.slow
@pytest.mark.parametrize(
    "label", ['"><img src=x onerror=1>', "' onload='1", "&lt;b&gt;", "]]>", "{{ 7 * 7 }}", "--></style>"]
)
def test_whatever_a_label_holds_a_reader_of_the_page_gets_it_back(
    report: ReportBody, gallery: Gallery, label: str
) -> None:
    reports = (with_labels(report, one, with_ids=False) for one in ("shoe", label))
    plain, hostile = (Page(render_report(one, gallery)) for one in reports)
    assert (hostile.tags, hostile.handlers) == (plain.tags, [])
    assert label in hostile.texts
    assert label in hostile.alternatives


@pytest.mark.slow
@given(name=st.text(st.characters(exclude_categories=("Cs", "Cc", "Cn")), min_size=1))
def test_any_name_that_can_be_seen_comes_back_as_it_was(name: str) -> None:
    plain, page = (Page(render_refinement(refinement_of(one), title=one)) for one in ("shoe", name))
    assert (page.tags, page.open) == (plain.tags, [])
    shown = visible(name)
    assert {shown, f"What the refiner does with {shown}"} <= set(page.texts)


@pytest.mark.slow
def test_what_cannot_be_seen_stands_as_its_escape(report: ReportBody, gallery: Gallery) -> None:
    text = render_report(with_labels(report, "a\x00b\x1b\ud800\uffff", with_ids=False), gallery)
    assert r"a\x00b\x1b\ud800\uffff" in Page(text).texts


@pytest.mark.slow
def test_a_label_that_is_not_escaped_would_be_noticed(report: ReportBody, gallery: Gallery) -> None:
    text = render_report(report, gallery).replace("Worst false accepts", SCRIPT)
    assert Page(text).tags.count("script") == 1


@pytest.mark.slow
def test_a_query_from_outside_never_gets_the_picture_of_an_item(report: ReportBody, gallery: Gallery) -> None:
    record = report.record.model_copy(update={"source": "queries"})
    page = Page(render_report(report.model_copy(update={"record": record}), gallery))
    shown = report.details.false_accepts[:8] + report.details.false_rejects[:8]
    assert (len(page.pictures), page.texts.count("no picture")) == (len(shown), len(shown))


def test_a_threshold_set_by_hand_has_a_page_that_claims_nothing(
    data_dir: Path, make_settings: MakeSettings
) -> None:
    client = TestClient(create_app(make_settings(data_dir)))
    base = "/v1/admin/galleries/shoes"
    record_id = client.put(f"{base}/threshold", json={"threshold": 0.3}).json()["record"]["id"]
    page = Page(client.get(f"{base}/calibrations/{record_id}/report?format=html").text)
    assert "nobody knows how often it is wrong" in page.text
    assert "95 %" not in page.text
