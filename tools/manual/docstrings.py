"""Docstrings as autodoc reads them: lists in two columns become definitions. Sphinx reads ``Args:`` and the like itself."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["with_definitions"]

COLUMNS = re.compile(r"(\S.*?)(?:  +)(?=\S)")
"""A term, a gap of two spaces or more, and where the second column begins"""


def with_definitions(lines: list[str]) -> list[str]:
    """The lines of a docstring, with each paragraph that is in two columns as definitions.

    >>> with_definitions(["stem   the first layer;", "       or none", "init   of the weights", "", "Other  words."])
    ['stem', '    the first layer; or none', 'init', '    of the weights', '', 'Other  words.']
    """
    changed: list[str] = []
    for paragraph in _paragraphs(lines):
        changed += _definitions(paragraph) or paragraph
    return changed


def _paragraphs(lines: list[str]) -> Iterable[list[str]]:
    """Runs of lines between empty ones; the empty ones each by itself."""
    kept: list[str] = []
    for line in lines:
        if line.strip():
            kept.append(line)
            continue
        if kept:
            yield kept
        yield [line]
        kept = []
    if kept:
        yield kept


def _definitions(paragraph: list[str]) -> list[str]:
    """Nothing where the second column does not begin in the same place in at least two lines."""
    found = [match for line in paragraph if (match := COLUMNS.match(line)) and not line.startswith((">>>", "..."))]
    ends = {match.end() for match in found}
    if len(found) < 2 or len(ends) > 1:
        return []
    column = ends.pop()
    terms: list[tuple[str, list[str]]] = []
    for line in paragraph:
        beside = line[:column].endswith(" ") or not line[:column].strip()
        term, words = (line[:column].strip(), line[column:].strip()) if beside else (line.strip(), "")
        if term and not (terms and terms[-1][0].endswith(",") and not terms[-1][1]):
            terms.append((term, []))
        if words:
            terms[-1][1].append(words)
    return [line for term, words in terms for line in (term, f"    {' '.join(words)}")]
