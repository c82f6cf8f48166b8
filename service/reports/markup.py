"""Markup: HTML and SVG as trees, so that every text is escaped where it is written out, and nowhere else."""

from __future__ import annotations

import re
from collections.abc import Iterable
from xml.etree import ElementTree

__all__ = ["Child", "Element", "element", "to_html"]

Element = ElementTree.Element
Child = Element | str | None

# Neither HTML nor SVG can hold these; a text that does shows where.
_NO_TEXT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def element(tag: str, *children: Child | Iterable[Child], **attributes: str | float | None) -> Element:
    """One element.

    Args:
        tag: Its name.
        children: Texts and elements, one by one or several at a time; None is left out.
        attributes: An underscore at the end is dropped (`class_`), others become hyphens; None is left out.
    """
    made = ElementTree.Element(
        tag, {_name(key): _text(one) for key, one in attributes.items() if one is not None}
    )
    for child in children:
        many = [child] if child is None or isinstance(child, (str, ElementTree.Element)) else child
        for one in many:
            _append(made, one)
    return made


def to_html(root: Element) -> str:
    """A whole page; every text and attribute is escaped."""
    return "<!doctype html>\n" + ElementTree.tostring(root, encoding="unicode", method="html") + "\n"


def _append(parent: Element, child: Child) -> None:
    if isinstance(child, ElementTree.Element):
        parent.append(child)
    elif child is not None:
        if len(parent):
            parent[-1].tail = (parent[-1].tail or "") + _text(child)
        else:
            parent.text = (parent.text or "") + _text(child)


def _name(key: str) -> str:
    return key.rstrip("_").replace("_", "-")


def _text(value: str | float) -> str:
    if isinstance(value, str):
        return _NO_TEXT.sub("\ufffd", value)
    return f"{value:.10g}"
