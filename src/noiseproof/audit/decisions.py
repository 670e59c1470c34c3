"""A person's decisions on the labels of an audit, and the data with the decisions applied."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noiseproof.io.files import ReadError, label_hash
from noiseproof.io.text import cell, csv_rows, excerpt

if TYPE_CHECKING:
    from noiseproof.data import Dataset

DECISIONS = ("keep", "relabel", "drop")
OF_COLUMN = "of"
"""The column of an exported decision that says of which labels it is, as :func:`labels_key` has it"""


class Decisions(NamedTuple):
    """The labels after a person's decisions."""

    labels: NDArray[np.int64]
    kept: NDArray[np.bool_]
    """Examples that are not dropped"""
    counts: dict[str, int]
    """How many decisions of each kind there are"""


def labels_key(given: NDArray[np.int64], classes: Sequence[str]) -> str:
    """What labels are known by, with the names of their classes.

    >>> labels_key(np.array([0, 1]), ["no", "yes"])
    '4e3c309197cb9249'
    """
    return hashlib.sha256("\0".join([label_hash(given), *classes]).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def read_decisions(path: str | Path, given: NDArray[np.int64], classes: Sequence[str]) -> Decisions:
    """Apply the decisions in a CSV file, as the page exports it, to the given labels.

    It has a header with ``index``, from 0, and ``decision``: keep, relabel, drop, or nothing. What is relabelled gets the class
    in ``label``, or in ``suggested`` where there is no such column: ``audit.csv`` with a column ``decision`` is one too. A
    ValueError says which line does not fit the labels.
    """
    rows = csv_rows(path, comments=False)
    _, header = next(rows, (0, []))
    words = [name.lower() for name in header]
    columns = {word: k for k, word in enumerate(words)}
    if missing := [name for name in ("index", "decision") if name not in columns]:
        raise ReadError(path, f"no column {missing[0]!r}; decisions have a header with index,decision,label")
    if twice := [name for name in ("index", "decision", "label", "suggested", "given") if words.count(name) > 1]:
        raise ReadError(path, f"two columns are called {twice[0]!r}")
    target = columns.get("label", columns.get("suggested"))
    numbers = {name: k for k, name in enumerate(classes)} | {cell(name): k for k, name in enumerate(classes)}
    labels, kept, counts = given.copy(), np.ones(len(given), bool), dict.fromkeys(DECISIONS, 0)
    seen: set[int] = set()
    of, key = columns.get(OF_COLUMN), labels_key(given, classes)
    for number, row in rows:
        where, decision = f"{path}:{number}", row[columns["decision"]].lower()
        if of is not None and row[of] not in ("", key):  # those of before do not say it
            raise ReadError(where, "a decision on other labels than these; export decisions from the page of these data")
        if not decision and ("given" not in columns or not row[columns["index"]]):
            continue
        index = _index(where, row[columns["index"]], len(given))
        if decision and decision not in DECISIONS:
            raise ReadError(where, f"the decision must be {', '.join(DECISIONS)} or nothing, got {excerpt(decision)!r}")
        if index in seen:
            raise ReadError(where, f"a second decision on example {index}")
        if "given" in columns and (decision or row[columns["given"]]) and numbers.get(row[columns["given"]]) != given[index]:
            said, has = excerpt(row[columns["given"]]), excerpt(classes[given[index]])
            raise ReadError(where, f"example {index} was given {said!r} when it was decided, and now is {has!r}: other data?")
        if not decision:
            continue
        if decision == "relabel":
            if target is None:
                raise ReadError(path, "no column 'label', which says what to relabel as")
            if row[target] not in numbers:
                raise ReadError(where, f"no class is called {excerpt(row[target])!r}")
            labels[index] = numbers[row[target]]
        kept[index] = decision != "drop"
        seen.add(index)
        counts[decision] += 1
    return Decisions(labels, kept, counts)


def apply_decisions(dataset: Dataset, place: str, path: Path, folder: Path) -> tuple[Decisions, Path]:
    """Write the data with decisions applied, as ``cleaned.npz`` or ``cleaned.csv``; return the decisions and the file.

    ``place`` is where the data set was opened.
    """
    found = read_decisions(path, dataset.train.labels, dataset.classes)
    if not found.kept.any():
        raise ReadError(path, "every example is dropped, and no data are left")
    from noiseproof.audit.cleaned import write_cleaned  # which an audit of probabilities does without

    folder.mkdir(parents=True, exist_ok=True)
    return found, write_cleaned(dataset, place, found.labels, found.kept, folder)


def _index(where: str, text: str, count: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19 and int(text) < count):
        raise ReadError(where, f"the index must be a number in [0, {count - 1}], got {excerpt(text)!r}")
    return int(text)
