"""Docstrings as autodoc reads them, and as Markdown. Sphinx reads ``Args:`` and the like itself."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["as_markdown", "in_a_line", "with_definitions"]

COLUMNS = re.compile(r"(\S.*?)(?:  +)(?=\S)")
"""A term, a gap of two spaces or more, and where the second column begins"""


ROLE = re.compile(r":math:`([^`]+)`|(?::\w+)+:`~?([^`]+)`|``(.+?)``")
NOT_PROSE = re.compile(r"Args:|Returns:|Raises:|Attributes:|Examples?:|>>>| {4}")


def as_markdown(text: str) -> str:
    """What a docstring says, without its examples and lists of arguments.

    >>> print(as_markdown("A :class:`~torch.Tensor` ``x``::\\n\\n    left out\\n\\n.. math:: x^2\\n\\nArgs:\\n    x: It."))
    A `Tensor` `x`.
    <BLANKLINE>
    ```math
    x^2
    ```
    """
    parts = []
    for part in re.split(r"\n\s*\n", text):
        if part.startswith(".. math::"):
            lines = (line.strip() for line in part.removeprefix(".. math::").splitlines())
            parts.append("\n".join(["```math", *filter(None, lines), "```"]))
        elif not NOT_PROSE.match(part):
            parts.append(re.sub(r"::$", ".", in_a_line(part)))
    return "\n\n".join(parts)


def in_a_line(text: str) -> str:
    """A paragraph of a docstring as Markdown."""
    return ROLE.sub(_marked, " ".join(text.split()))


def _marked(found: re.Match[str]) -> str:
    return f"${found[1]}$" if found[1] else f"`{found[3] or found[2].rpartition('.')[2]}`"


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
