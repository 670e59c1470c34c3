"""Text from files of others: JSON, lines and CSV rows, and what a message, a terminal or a spreadsheet may show of it."""

from __future__ import annotations

import csv
import difflib
import json
import math
import os
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from noiseproof.io import limits
from noiseproof.io.files import ReadError, open_regular

T = TypeVar("T")
LINE_TEXT = re.compile(r"[^\r\n]+")
SEPARATORS = ",;\t"
BRACKETS = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)  # and whole strings, whose brackets do not count
SAFE_DIGITS = 300  # numbers of so many are within floating point
UNPRINTABLE = "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
"""Characters that command a terminal, break the line, turn the direction of text, or cannot be encoded."""
_ALL, _WITHIN_LINES = re.compile(UNPRINTABLE), re.compile(rf"(?![\n\t]){UNPRINTABLE}")
FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠", "'")
"""How a cell starts that a spreadsheet may evaluate; the apostrophe, so that no two texts become one"""
INNER_FORMULA = re.compile(rf"([;,\t\"]\s*)(?=[{re.escape(''.join(FORMULA))}])")
LIKE_ESCAPED = re.compile(rf"\\(?=[\\abfnrtvxuUN0-7]|{UNPRINTABLE})")
"""A backslash that printed text could have of an escaped character, or before one"""
QUOTED = re.compile('[",;\t\r\n]')


def excerpt(text: object, most: int = 80) -> str:
    """Text from a file as a message may print it: short, on one line, without control characters, and no two texts alike.

    >>> excerpt("label\\x1b[2J"), excerpt("a" * 100, most=3)
    ('label\\\\x1b[2J', 'aaa...')
    """
    whole = text.decode("latin-1") if isinstance(text, bytes) else str(text)
    start = whole[:most] + ("..." if len(whole) > most else "")
    plain = start.isprintable() and (isinstance(text, Exception) or not LIKE_ESCAPED.search(start))  # an error has escaped it
    return start if plain else start.encode("unicode_escape").decode("ascii")


def read_by(found: object, known: int, wrote: object) -> str:
    """The end of an error on a file of another format: the version that reads it; nothing if it is no later format.

    >>> read_by(3, 1, "0.4.0"), read_by("3", 1, None), read_by(0, 1, "0.1.0")
    ('; noiseproof 0.4.0 wrote and reads it', '; a later version of noiseproof reads it', '')
    """
    if type(found) not in (int, str) or not (text := str(found)).isdecimal() or len(text) > 9 or int(text) <= known:
        return ""
    version = f"noiseproof {excerpt(wrote, 40)} wrote and" if isinstance(wrote, str) else "a later version of noiseproof"
    return f"; {version} reads it"


def printable(name: str) -> str:
    r"""A name on one line, with ``UNPRINTABLE`` characters as Python would escape them.

    No two names become one: a backslash that would look like an escaped character is doubled. So a name is made printable once,
    and the text that contains it only goes through :func:`without_controls`.

    >>> printable("a\x1b[31m\nb"), printable("é\u202e\udcff"), printable(r"a\nb"), printable(r"C:\data")
    ('a\\x1b[31m\\nb', 'é\\u202e\\udcff', 'a\\\\nb', 'C:\\data')
    """
    return without_controls(LIKE_ESCAPED.sub(r"\\\\", name))


def without_controls(text: str, *, lines: bool = False) -> str:
    r"""The text of a message, with ``UNPRINTABLE`` characters escaped; ``lines`` keeps line breaks and tabs.

    >>> without_controls("a\nb\x1b[2J"), without_controls("a\nb\x1b[2J", lines=True)
    ('a\\nb\\x1b[2J', 'a\nb\\x1b[2J')
    """
    return (_WITHIN_LINES if lines else _ALL).sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question after the known name that a mistyped one is most like, with a space after it; empty where none is like it.

    >>> did_you_mean("resnt18", ["mlp", "resnet18"]), did_you_mean("x", ["mlp"])
    ("did you mean 'resnet18'? ", '')
    """
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {excerpt(near[0])!r}? " if near else ""


def normalise(name: str) -> str:
    """A name without case and without the characters between its words.

    >>> normalise("NCE RCE"), normalise("jal_ce")
    ('ncerce', 'jal-ce')
    """
    return name.lower().replace("_", "-").replace(" ", "")


def lookup(name: str, known: Mapping[str, T], what: str, way: str) -> T:
    """What is known by a normalised name, or a ValueError that suggests a similar name.

    >>> lookup("gec", {"gce": 1, "ce": 2}, "loss", "'noiseproof losses' lists them")
    Traceback (most recent call last):
    ValueError: unknown loss 'gec'; did you mean 'gce'? 'noiseproof losses' lists them
    """
    if not isinstance(name, str):
        raise TypeError(f"a {what} is looked up by its name, got {name!r}")
    wanted = normalise(name)
    if wanted in known:
        return known[wanted]
    close = difflib.get_close_matches(wanted, known, n=3, cutoff=0.5)
    near = [key for key in known if key.startswith(wanted)] or sorted(close, key=lambda key: sorted(key) != sorted(wanted))
    hint = f"did you mean {getattr(known[near[0]], 'name', near[0])!r}? " if near else ""
    raise ValueError(f"unknown {what} {name!r}; {hint}{way}")


def and_more(names: Sequence[object], most: int = 10) -> str:
    """The first names, and how many more there are.

    >>> and_more("abcd", 2), and_more(range(2))
    ('a, b and 2 more', '0, 1')
    """
    return ", ".join(map(str, names[:most])) + (f" and {len(names) - most} more" if len(names) > most else "")


def aligned(rows: Sequence[Sequence[str]], numbers: Collection[int] = ()) -> list[str]:
    """The lines of a table whose columns are as wide as their longest cell; columns of ``numbers`` end at one place.

    >>> aligned([["loss", "mean"], ["ce", "9.5"]], numbers=[1])
    ['loss  mean', 'ce     9.5']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    put = [str.rjust if k in numbers else str.ljust for k in range(len(widths))]
    lines = ([place(cell, width) for place, cell, width in zip(put, row, widths, strict=True)] for row in rows)
    return ["  ".join(line).rstrip() for line in lines]


def command_options(options: Mapping[str, Any]) -> list[str]:
    """Options as words of a command line.

    >>> command_options({"label": "churn", "columns": {"id": "drop"}, "drop_unlabelled": True})
    ['--label', 'churn', '--columns', 'id=drop', '--drop-unlabelled']
    """
    words = []
    for name, value in options.items():
        words.append(f"--{name.replace('_', '-')}")
        if isinstance(value, Mapping):
            words.append(",".join(f"{key}={one}" for key, one in value.items()))
        elif value is not True:
            words.append(str(value))
    return words


def cell(text: str) -> str:
    r"""The printable text for a CSV file that a person opens: a spreadsheet would evaluate what starts like a formula.

    So it would what follows a semicolon, a comma or a quote, which it may take for the end of a cell. No two texts become one:
    a backslash that would look like an escaped character is doubled.

    >>> cell("=HYPERLINK(1)"), cell("cat"), cell("x;=1+1"), cell("a\\nb") == cell("a\nb")
    ("'=HYPERLINK(1)", 'cat', "x;'=1+1", False)
    """
    shown = INNER_FORMULA.sub(r"\1'", printable(text))
    return f"'{shown}" if shown.startswith(FORMULA) else shown


def csv_line(cells: Iterable[object]) -> str:
    r"""A line of a CSV file that other programs open: whatever they may take for a separator is in quotes.

    >>> csv_line([1, "a;b", "c"])
    '1,"a;b",c\n'
    """
    texts = (str(one) for one in cells)
    return ",".join('"' + one.replace('"', '""') + '"' if QUOTED.search(one) else one for one in texts) + "\n"


def duration(seconds: float) -> str:
    """Hours, minutes and seconds.

    >>> duration(7.26), duration(75), duration(3675)
    ('7.3 s', '1:15', '1:01:15')
    """
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def read_json(path: str | Path) -> Any:
    """What a JSON file holds, as :func:`parse_json` has it."""
    text = whole_text(path, limits.MAX_JSON_BYTES)
    try:
        return parse_json(text)
    except json.JSONDecodeError as error:
        raise ReadError(path, f"not JSON: {error}") from error
    except ValueError as error:
        raise ReadError(path, f"not read as JSON: {excerpt(error, 200)}") from error


def parse_json(text: str) -> Any:
    """What JSON text holds; a ValueError if it is not JSON, or cannot be computed with.

    A key that comes twice in an object is refused, and so are NaN, which JSON does not have, and numbers beyond floating point.
    """
    if sum(map(text.count, ",[{")) > limits.MAX_JSON_VALUES:
        raise ValueError(f"it has more than {limits.MAX_JSON_VALUES:,} values; so many numbers are read from .npy or .npz")
    check_nesting(text)
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_constant, parse_int=_whole, parse_float=_float)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def check_nesting(text: str) -> None:
    """A ValueError if JSON has more than ``MAX_NESTING`` lists and objects inside each other, which not all code can walk."""
    if text.count("[") + text.count("{") <= limits.MAX_NESTING:
        return
    depth = 0
    for found in BRACKETS.finditer(text):
        first = found[0][0]
        depth += (first in "[{") - (first in "]}")
        if depth > limits.MAX_NESTING:
            raise ValueError(f"it is nested too deeply, more than {limits.MAX_NESTING} lists and objects inside each other")


def text_lines(path: str | Path, *, comments: bool = True) -> Iterator[tuple[int, str]]:
    """The lines of a UTF-8 file that are not blank, stripped, with their numbers; ``comments`` leaves out those of a #."""
    yield from ((number, line.strip()) for number, line in _lines(path, comments))


def _lines(path: str | Path, comments: bool = True) -> Iterator[tuple[int, str]]:
    for number, line in all_lines(path):
        if (text := line.lstrip()) and not (comments and text.startswith("#")):
            yield number, line


def all_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """The lines of a UTF-8 file with their numbers; a ReadError names the one that is too long, or is no text."""
    with open_regular(path) as file:
        number = 0
        while raw := file.readline(limits.MAX_LINE_BYTES + 1):
            number += 1
            where = f"{path}:{number}"
            if len(raw) > limits.MAX_LINE_BYTES:
                raise ReadError(where, f"a line of more than {limits.MAX_LINE_BYTES} bytes; is it a text file?")
            try:
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise ReadError(where, f"not UTF-8 text: {error.reason}; save it as UTF-8") from error
            if "\0" in line:
                raise ReadError(where, "a zero byte; is it a text file?")
            yield number, line


def csv_rows(path: str | Path, *, comments: bool = True) -> Iterator[tuple[int, list[str]]]:
    """The rows of a CSV file with their line numbers, each with as many fields as the first, which says the separator.

    ``comments`` leaves out lines that begin with #, as numpy writes them above a matrix. The separator is the one of
    ``, ;`` and tab that divides the first line most. A field may be quoted, and must end on its line.
    """
    separator, count = "", 0
    for number, line in _lines(path, comments):
        text = line.rstrip("\r\n")
        if not count:
            separator = max(SEPARATORS, key=text.count)
        try:
            row = next(csv.reader([text], delimiter=separator, strict=True)) if '"' in text else text.split(separator)
        except csv.Error as error:
            raise ReadError(f"{path}:{number}", f"{error}, in {excerpt(text, 200)!r}") from error
        count = count or len(row)
        if len(row) != count:
            raise ReadError(f"{path}:{number}", f"{len(row)} fields, and the first line has {count}: {excerpt(text)!r}")
        yield number, [field.strip() for field in row]


def whole_text(path: str | Path, most: int | None = None) -> str:
    most = most or limits.MAX_TEXT_BYTES
    with open_regular(path) as file:
        if (size := os.fstat(file.fileno()).st_size) > most:
            raise ReadError(path, f"{size} bytes of text, and at most {most} are read at once; arrays may be larger as .npy")
        limits.check_memory(f"{path}: its text", size)
        try:
            return file.read().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise ReadError(path, f"not UTF-8 text: {error.reason} at byte {error.start}; save it as UTF-8") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"{excerpt(twice)!r} is there twice in one object")
    return found


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number that JSON has")


def _whole(digits: str) -> int:
    number = int(digits)
    if len(digits) > SAFE_DIGITS and abs(number) > sys.float_info.max:
        raise ValueError(f"{excerpt(digits, 20)} is beyond the largest number, 1.8e308")
    return number


def _float(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{excerpt(digits, 20)} is beyond the largest number, 1.8e308")
    return number
