"""The files of an audit, and a person's decisions on its labels."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noiseproof.io.files import ReadError, is_file, write_whole
from noiseproof.io.text import cell, csv_rows, excerpt
from noiseproof.noise import load_labels, read_soft_labels

if TYPE_CHECKING:
    from noiseproof.audit.result import Audit
    from noiseproof.data import Dataset

__all__ = ["AUDIT_COLUMNS", "DECISIONS", "Decisions", "apply_decisions", "read_decisions", "save_audit", "saved_rate"]

AUDIT_COLUMNS = ("index", "path", "given", "suggested", "p_wrong", "p_suggested", "flagged", "fold", "warning")
DECISIONS = ("keep", "relabel", "drop")
POSTERIOR_FILE = "posterior.npz"
NO_LIKELY_LABEL = "no label is more likely than not"


def save_audit(audit: Audit, folder: Path, paths: Sequence[str] | None) -> None:
    """Write ``audit.csv``, ``transition.csv`` and ``posterior.npz``, each whole or not at all."""
    if paths is not None and len(paths) != len(audit.given):
        raise ValueError(f"there must be one path for each label: {len(audit.given)} labels, {len(paths)} paths")
    folder.mkdir(parents=True, exist_ok=True)
    names = [cell(name) for name in audit.classes]
    matrix = ([name, *(f"{share:.6f}" for share in row)] for name, row in zip(names, audit.transition.tolist(), strict=True))
    _write_csv(folder / "audit.csv", [AUDIT_COLUMNS, *_lines(audit, names, paths)])
    _write_csv(folder / "transition.csv", [["true \\ given", *names], *matrix])
    write_whole(folder / POSTERIOR_FILE, lambda path: _write_posterior(audit, path))


def _lines(audit: Audit, names: list[str], paths: Sequence[str] | None) -> Iterator[tuple[object, ...]]:
    rows = np.arange(len(audit.given))
    likeliest = audit.posterior[rows, audit.suggested]
    warnings = [cell(each.warning) for each in audit.per_class]
    columns = (audit.given, audit.suggested, audit.p_wrong, likeliest, audit.flagged, audit.flagged & (likeliest < 0.5))
    folds = [""] * len(rows) if audit.fold is None else audit.fold.tolist()
    found = zip(*(column.tolist() for column in columns), folds, strict=True)
    for index, (given, suggested, wrong, likely, flagged, unsure, fold) in enumerate(found):
        warning = "; ".join(filter(None, (warnings[given], NO_LIKELY_LABEL if unsure else "")))
        path = "" if paths is None else cell(paths[index])
        yield index, path, names[given], names[suggested], f"{wrong:.6f}", f"{likely:.6f}", int(flagged), fold, warning


def _write_posterior(audit: Audit, path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, posterior=audit.posterior, given=audit.given, classes=np.asarray(audit.classes))


def saved_rate(folder: Path, classes: int) -> float | None:
    """The noise rate of the audit that was saved in a folder; None if its posteriors are not there."""
    if not is_file(path := folder / POSTERIOR_FILE):
        return None
    found = read_soft_labels(path, len(load_labels(path, "given")), classes)
    return None if found is None else 1 - float(found.probabilities[np.arange(len(found.given)), found.given].mean(dtype=float))


def _write_csv(path: Path, rows: Iterable[Sequence[object]]) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    write_whole(path, lambda partial: partial.write_text(text.getvalue(), encoding="utf-8"))


class Decisions(NamedTuple):
    """The labels after a person's decisions."""

    labels: NDArray[np.int64]
    kept: NDArray[np.bool_]
    """Examples that are not dropped"""
    counts: dict[str, int]
    """How many decisions of each kind there are"""


def read_decisions(path: str | Path, given: NDArray[np.int64], classes: Sequence[str]) -> Decisions:
    """Apply the decisions in a CSV file, as the page exports it, to the given labels.

    It has a header with ``index``, from 0, and ``decision``: keep, relabel, drop, or nothing. What is relabelled gets the class
    in ``label``, or in ``suggested`` where there is no such column: ``audit.csv`` with a column ``decision`` is one too. A
    ValueError says which line does not fit the labels.
    """
    rows = csv_rows(path)
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
    for number, row in rows:
        where, decision = f"{path}:{number}", row[columns["decision"]].lower()
        if not decision:
            continue
        index = _index(where, row[columns["index"]], len(given))
        if decision not in DECISIONS:
            raise ReadError(where, f"the decision must be {', '.join(DECISIONS)} or nothing, got {excerpt(decision)!r}")
        if index in seen:
            raise ReadError(where, f"a second decision on example {index}")
        if "given" in columns and numbers.get(row[columns["given"]]) != given[index]:
            said, has = excerpt(row[columns["given"]]), excerpt(classes[given[index]])
            raise ReadError(where, f"example {index} was given {said!r} when it was decided, and now is {has!r}: other data?")
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
    from noiseproof.data.opening import write_cleaned  # which an audit of probabilities does without

    folder.mkdir(parents=True, exist_ok=True)
    return found, write_cleaned(dataset, place, found.labels, found.kept, folder)


def _index(where: str, text: str, count: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19 and int(text) < count):
        raise ReadError(where, f"the index must be a number in [0, {count - 1}], got {excerpt(text)!r}")
    return int(text)
