"""Text from elsewhere, names of files and classes say, as a terminal, a page or a spreadsheet may show it."""

import re

__all__ = ["cell", "printable"]

HARMFUL = "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
"""Characters that command a terminal, break the line, turn the direction of text, or cannot be encoded."""
_ALL, _WITHIN_LINES = re.compile(HARMFUL), re.compile(rf"(?![\n\t]){HARMFUL}")
FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠", "'")
"""How a cell starts that a spreadsheet may evaluate; the apostrophe, so that no two texts become one"""


def printable(text: str, *, lines: bool = False) -> str:
    r"""The text on one line, with ``HARMFUL`` characters as Python would escape them; ``lines`` keeps line breaks and tabs.

    >>> printable("a\x1b[31m\nb"), printable("é\u202e\udcff")
    ('a\\x1b[31m\\nb', 'é\\u202e\\udcff')
    """
    return (_WITHIN_LINES if lines else _ALL).sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def cell(text: str) -> str:
    """The printable text for a CSV file that a person opens: a spreadsheet would evaluate what starts like a formula.

    >>> cell("=HYPERLINK(1)"), cell("cat")
    ("'=HYPERLINK(1)", 'cat')
    """
    shown = printable(text)
    return f"'{shown}" if shown.startswith(FORMULA) else shown
