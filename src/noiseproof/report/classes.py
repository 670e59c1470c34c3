"""Classes that a run is never right on, which its total hides: robust losses learn some classes and leave others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from noiseproof.io.text import printable
from noiseproof.report.records import numbers

__all__ = ["count_classes", "never_right", "said_of_classes"]

NAMED = 2
"""Classes that are named; of more, only their number is said."""


def count_classes(record: Mapping[str, Any]) -> int:
    """How many classes the record has accuracies of; older ones have them of none."""
    return len(numbers(record["result"].get("accuracy_by_class")))


def never_right(record: Mapping[str, Any]) -> list[int]:
    """The classes of which no test example is right. Whether such a class was predicted where it is wrong, they do not tell.

    >>> never_right({"result": {"accuracy_by_class": [0.9, 0.0, None, 0.001]}})
    [1]
    """
    return [k for k, share in enumerate(numbers(record["result"].get("accuracy_by_class"))) if share == 0.0]


def said_of_classes(runs: Iterable[Mapping[str, Any]]) -> str:
    """On which classes the runs of a cell are never right, in a few words; nothing where each is right on all.

    >>> dog = {"result": {"accuracy_by_class": [0.8, 0.0]}, "task": {"class_names": ["cat", "dog"]}}
    >>> said_of_classes([dog]), said_of_classes([dog, {"result": {"accuracy_by_class": [0.8, 0.7]}}])
    ('never right on dog', '1 of 2 runs never right on dog')
    """
    told = [run for run in runs if count_classes(run)]
    missed = {tuple(never_right(run)): run for run in told if never_right(run)}
    if not missed:
        return ""
    (one, run), most = next(iter(missed.items())), max(map(len, missed))
    if len(missed) == 1 and most <= NAMED:
        what = " or ".join(_name(run, k) for k in one)
    else:
        up_to = "up to " if min(map(len, missed)) < most else ""
        what = f"{up_to}{most} of {count_classes(run)} classes"
    some = sum(bool(never_right(run)) for run in told)
    return f"{f'{some} of {len(told)} runs ' if len(told) > 1 else ''}never right on {what}"


def _name(record: Mapping[str, Any], k: int) -> str:
    task = record.get("task")
    names = task.get("class_names") if isinstance(task, dict) else None
    name = names[k] if isinstance(names, list) and k < len(names) else None
    return printable(name) if isinstance(name, str) and not name.isdecimal() else f"class {k}"
