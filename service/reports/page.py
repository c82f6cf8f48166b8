"""Report pages: a calibration or the way of a query, as HTML without scripts that loads nothing."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from vicinal.indexer.gallery import Gallery
from vicinal.service import words
from vicinal.service.reports.examples import worst_examples
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


def render_report(report: ReportBody, gallery: Gallery) -> str:
    """The page of a report."""
    false_accepts, false_rejects = worst_examples(report, gallery)
    return render_page(
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
    return render_page("refinement.html", title=title, refinement=refinement, figure=figure, steps=steps)


def page_style() -> str:
    """The style of all pages, as they hold it."""
    return f"<style>{_environment().get_template('report.css').render()}</style>"


def render_page(template: str, **values: object) -> str:
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
