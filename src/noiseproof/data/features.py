"""A table of features to predict, with or without labels, for a network that was trained on another table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noiseproof.data.examples import DataError
from noiseproof.data.list_lines import LABEL_WORDS
from noiseproof.data.tables import NAME_WORDS, Layout, cells, is_header, listed, place_of, with_first
from noiseproof.io.files import ReadError
from noiseproof.io.text import csv_rows, excerpt

__all__ = ["NewRows", "misplaced", "read_features"]

NO_LABEL = -1


class NewRows(NamedTuple):
    """Rows of features ``[N, width]``, their labels as text and their names if there are some."""

    features: NDArray[np.float64]
    labels: list[str] | None
    names: tuple[str, ...] | None
    note: str
    """How the columns differ from those of training"""


def read_features(path: Path, width: int, called: Sequence[str] = (), label_column: str | None = None) -> NewRows:
    """The features of a table, for a network of so many that were ``called`` so in training, if they had names.

    If all these names are there, the columns are taken by them, wherever they stand; otherwise in their order, and then there
    are no more than the features, the names of the rows and the labels. ``label_column`` says where the labels are; without it
    that is the one column more than the features, or the one of several that is called as labels are.
    """
    try:
        rows = csv_rows(path)
        number, first = next(rows, (0, []))
        taken = frozenset(chosen := _by_name(first, called))  # which may be numbers, as pandas calls columns without names
        labelled = [k for k, word in enumerate(first) if word.lower() in LABEL_WORDS]
        header = bool(labelled or chosen) or label_column in first or is_header(first[:-1] or first)
        columns = first if header else [str(k) for k in range(len(first))]
        named = [k for k, word in enumerate(columns) if word.lower() in NAME_WORDS and k not in taken] if header else []
        label = NO_LABEL if label_column is None else place_of(path, columns, label_column)
        layout = Layout(columns, label, named[0] if len(named) == 1 else None, header)
        if label in taken:
            raise ReadError(path, f"column {excerpt(columns[label])!r} is a feature of the network, so it cannot hold labels")
        layout = replace(layout, label=_label(path, layout, width, called, chosen, labelled))
        if header and not chosen and (fault := misplaced([columns[k] for k in layout.features], called)):
            raise ReadError(path, fault)
        note = _note(layout, called, chosen) if header else ""
        table = cells(path, replace(layout, chosen=chosen), with_first(rows, number, first, layout))
    except ReadError as error:
        raise DataError(str(error)) from error
    return NewRows(table.features, None if layout.label == NO_LABEL else table.labels, table.names, note)


def _by_name(columns: list[str], called: Sequence[str]) -> tuple[int, ...]:
    """Where the columns of these names are, if each is there once."""
    places = {name: k for k, name in enumerate(columns)}
    if len(places) < len(columns) or len(set(called)) < len(called) or not all(name in places for name in called):
        return ()
    return tuple(places[name] for name in called)


def _label(path: Path, layout: Layout, width: int, called: Sequence[str], chosen: tuple[int, ...], labelled: list[int]) -> int:
    """The column of the labels, that which was said or the one that is left; an error where the features cannot be told."""
    found, taken = layout.features, frozenset(chosen)
    others = [k for k in found if k not in taken] if chosen else found[width:]
    if not chosen and (len(found) < width or len(others) > (layout.label == NO_LABEL)):
        trained = f"{len(found)} columns, and the network was trained on {width} features, with or without labels"
        raise ReadError(path, trained + (_differing([layout.columns[k] for k in found], called) if layout.header else ""))
    if layout.label != NO_LABEL or not others:
        return layout.label
    words = sorted({*labelled} & {*(others if chosen else found)})
    if len(words) == 1:
        return words[0]
    return others[0] if len(others) == 1 else NO_LABEL


def _note(layout: Layout, called: Sequence[str], chosen: tuple[int, ...]) -> str:
    """How the columns differ from those of training."""
    names = [layout.columns[k] for k in layout.features]
    if taken := frozenset(chosen):
        there = [k for k in layout.features if k in taken]
        left = listed([layout.columns[k] for k in layout.features if k not in taken])
        notes = {
            "the columns are in another order than those of training, and are taken by their names": list(chosen) != there,
            f"columns that are not of training are left out: {left}": bool(left),
        }
        return "; ".join(note for note, said in notes.items() if said)
    known, there_are = frozenset(called), frozenset(names)
    strange = [name for name in names if name not in known] if called else [n for n in names if n.lower() in LABEL_WORDS]
    if not strange:
        return ""
    missing = next((f", and {excerpt(name, 40)!r} of them is not there" for name in called if name not in there_are), "")
    was = f"is none of those of training{missing}" if called else "is called as labels are"
    return f"column {excerpt(strange[0], 40)!r} {was}: it is taken for one of the network's {len(names)} features"


def misplaced(names: Sequence[str], called: Sequence[str]) -> str:
    """Why columns, not all of which have the names of training, cannot be taken in their order, if they cannot.

    Names of which none is of training say nothing against it, and a strange one in a place of training may be that column's new
    name. But where a name of training, or of the labels, stands in the place of another, a column is missing.
    """
    pairs = zip(names, called, strict=False)
    moved = any(name != own and (name in called or name.lower() in LABEL_WORDS) for name, own in pairs)
    if set(names).isdisjoint(called) or not (moved or len(names) != len(called)):
        return ""
    return f"the columns are not those of training in their order{_differing(names, called)}"


def _differing(names: Sequence[str], called: Sequence[str]) -> str:
    """Which columns are missing, and which are not of training, if its columns had names."""
    known, there = frozenset(called), frozenset(names)
    missing = [name for name in called if name not in there]
    strange = [name for name in names if called and name not in known and name.lower() not in LABEL_WORDS]
    faults = {"missing": missing, "not of training": strange}
    return "".join(f"; {what}: {listed(which)}" for what, which in faults.items() if which)
