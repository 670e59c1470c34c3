"""Records of runs as JSON lines: one object a line, as they are kept under ``records/`` and passed between machines."""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from noiseproof.files import write_whole
from noiseproof.paper import list_recipes
from noiseproof.reading import check_nesting

__all__ = ["compact", "identity", "merge", "number", "numbers", "read_records", "setting", "write_records"]

CURVES = ("given_accuracy", "clean_accuracy", "test_accuracy")
OBSERVED = ("confidence_epochs",)
"""Fields of a recipe that change what is kept of a run, not the run."""
EMPTY: tuple[Any, ...] = (None, False, 0, "", [], {})
"""What fields of recipes say nothing with"""


def read_records(*files: Path) -> list[dict[str, Any]]:
    """The lines of the files; a ValueError names the file and the line that is no record of a run."""
    found = []
    for file in files:
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{file}: not a file of records, which is text with a JSON object a line: {error}") from error
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip():
                continue
            try:
                check_nesting(line)
                record = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise ValueError(
                    f"{file}, line {number}: not JSON ({error}); remove the line or fetch the file again"
                ) from error
            if not isinstance(record, dict) or not all(isinstance(record.get(key), dict) for key in ("recipe", "result")):
                raise ValueError(f"{file}, line {number}: not the record of a run, which has 'recipe' and 'result'")
            found.append(record)
    return found


def write_records(file: Path, records: Iterable[dict[str, Any]]) -> None:
    """One compact line for each record; the file is whole or not there."""
    text = "".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records)
    write_whole(file, lambda path: path.write_text(text, encoding="utf-8"))


def compact(record: dict[str, Any]) -> dict[str, Any]:
    """The line of a run folder's ``record.json``: without its epochs and its files' digests, but with the accuracies by epoch,
    to four digits."""
    line = {key: value for key, value in record.items() if key not in ("format", "epochs", "files")}
    epochs = record.get("epochs", [])
    curves = {name: [_rounded(epoch.get(name)) for epoch in epochs] for name in CURVES}
    curves = {name: values for name, values in curves.items() if any(value is not None for value in values)}
    return {**line, "curve": curves} if curves else line


def identity(record: dict[str, Any]) -> str:
    """Which run it is: a digest of the recipe and of the labels that it trained on.

    >>> run = {"recipe": {"loss": "ce", "seed": 1}, "result": {"test_accuracy": 0.9}}
    >>> identity(run) == identity({"recipe": {"seed": 1.0, "loss": "ce", "confidence_epochs": [1]}, "result": {}})
    True
    """
    labels = ((record.get("task") or {}).get("noise") or {}).get("hash")
    return hashlib.sha256(json.dumps(_plain([setting(record, OBSERVED), labels]), sort_keys=True).encode()).hexdigest()


def setting(record: Mapping[str, Any], left_out: Collection[str]) -> dict[str, Any]:
    """The recipe without some fields, and without those that are empty: a record from before a field existed lacks it.

    Data of one's own are known by the hashes of their files: one file by two paths is the same, two files of one name are not.

    >>> task = {"sources": {"x.npz": "5e1f"}}
    >>> setting({"recipe": {"dataset": "a/x.npz", "loss": "ce", "size": None}, "task": task}, ())
    {'dataset': ['5e1f'], 'loss': 'ce'}
    """
    recipe = {name: value for name, value in record["recipe"].items() if name not in left_out and value not in EMPTY}
    sources = (record.get("task") or {}).get("sources")
    if str(recipe.get("dataset")) not in _named() and isinstance(sources, dict) and sources:
        files = {str(name): str(digest) for name, digest in sources.items()}
        if "weights" in recipe:
            recipe["weights"] = files.pop(str(recipe["weights"]), recipe["weights"])
        recipe["dataset"] = sorted(files.values())
    return recipe


@functools.cache
def _named() -> frozenset[str]:
    return frozenset(name.partition("/")[0] for name in list_recipes())


def merge(*lists: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The records of all lists in their order. The same run with the same result is kept once, as its longest record;
    different results of one run are all kept."""
    kept: dict[str, list[dict[str, Any]]] = {}
    for records in lists:
        for record in records:
            same_run = kept.setdefault(identity(record), [])
            for i, other in enumerate(same_run):
                if _same_result(record, other):
                    same_run[i] = max(other, record, key=len)
                    break
            else:
                same_run.append(record)
    return [record for same_run in kept.values() for record in same_run]


def _same_result(one: dict[str, Any], two: dict[str, Any]) -> bool:
    """Equal in status and in all that both measured: older records have fewer measures."""
    if one.get("status", "finished") != two.get("status", "finished"):
        return False
    shared = one["result"].keys() & two["result"].keys()
    return all(one["result"][key] == two["result"][key] for key in shared) and bool(shared or one["result"] == two["result"])


def number(value: Any) -> float | None:
    """A finite number, or None for whatever else a record holds there."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) else None


def numbers(values: Any) -> list[float | None]:
    """Of a list; empty for whatever else a record holds there."""
    return [number(value) for value in values] if isinstance(values, list) else []


def _plain(value: Any) -> Any:
    """With every number a float, so that 20 and 20.0 are the same option."""
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
