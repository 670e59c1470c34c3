"""Records of runs as JSON lines: one object a line, as they are kept under ``records/`` and passed between machines."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from noiseproof.data.registry import find_name
from noiseproof.io.arrays import NpzFile
from noiseproof.io.files import ReadError, checksum, write_whole
from noiseproof.io.limits import check_file
from noiseproof.io.text import all_lines, excerpt, parse_json, printable, read_json
from noiseproof.train.record import CONFIDENCE, RECORD, WEIGHTS, check_facts, content_digest, fault_of

CURVE_NAMES = ("given_accuracy", "clean_accuracy", "test_accuracy")
RECORDING_FIELDS = ("confidence_epochs",)
"""Fields of a recipe that change what is kept of a run, not the run."""
MAX_RESULTS_PER_RUN = 200
"""Different results of one run that are kept: each further one is compared with all of them"""
MAX_CLASSES_NAMED = 2
"""Classes that are named; of more, only their number is reported"""
EMPTY_VALUES: tuple[Any, ...] = (None, False, 0, "", [], {})
"""What fields of recipes say nothing with"""
BINS = 20
"""Of the histograms of confidence"""
SMALL_WEIGHTS = (1e-5, 1e-4, 1e-3, 1e-2)


def read_records(*files: Path) -> list[dict[str, Any]]:
    """The lines of the files; a ValueError names the file and the line that is no record of a run.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_records(Path(folder, "runs.jsonl"), [])
    ...     read_records(Path(folder, "runs.jsonl"))
    []
    """
    return [record for file in files for record in _records(file)]


def _records(file: Path) -> Iterator[dict[str, Any]]:
    try:
        for number, line in all_lines(file):
            if not line.strip():
                continue
            where = f"{file}, line {number}"
            try:
                record = parse_json(line)
            except ValueError as error:
                fault = excerpt(error, 200)
                raise ValueError(f"{where}: not JSON ({fault}); remove the line or fetch the file again") from error
            check_record(where, record)
            yield record
    except ReadError as error:
        raise ValueError(f"{file}: not a file of records, which is text with a JSON object a line: {error.fault}") from error


def check_record(where: str, record: Any) -> None:
    """A ValueError unless it is the record of a run, as far as anything is computed with it."""
    try:
        check_facts(record, ("recipe", "result"))
    except ValueError as error:
        raise ValueError(f"{where}: not the record of a run: {error}") from error


def write_records(file: Path, records: Iterable[dict[str, Any]]) -> None:
    """Write one compact line for each record; the file is whole or not there.

    Args:
        file: Where to write.
        records: One for each run.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_records(Path(folder, "runs.jsonl"), [])
    ...     Path(folder, "runs.jsonl").stat().st_size
    0
    """
    text = "".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records)
    write_whole(file, lambda path: path.write_text(text, encoding="utf-8"))


def compact(record: dict[str, Any]) -> dict[str, Any]:
    """Return a run folder's ``record.json`` as a line of a file of records.

    Args:
        record: The content of ``record.json``.

    Returns:
        The record without its epochs and its files' digests, but with the accuracies by epoch, to four digits.

    >>> compact({"format": 1, "status": "finished", "epochs": [], "files": {}})
    {'status': 'finished'}
    """
    line = {key: value for key, value in record.items() if key not in ("format", "epochs", "files")}
    epochs = record.get("epochs", [])
    curves = {name: [_rounded(epoch.get(name)) for epoch in epochs] for name in CURVE_NAMES}
    curves = {name: values for name, values in curves.items() if any(value is not None for value in values)}
    return {**line, "curve": curves} if curves else line


def run_line(folder: Path) -> dict[str, Any]:
    """A run's folder as a line of a file of records: its record, histograms of its confidence, and how large its weights are.

    Args:
        folder: A run's folder, with ``record.json``.

    Raises:
        ValueError: A file of the folder is damaged, or no record of a run; the message names it.
    """
    path = folder / RECORD
    try:
        record = read_json(path)
        line, digests = compact(record), record.get("files", {})
    except (ValueError, AttributeError, TypeError) as error:
        raise ValueError(f"{path}: not the record of a run: {fault_of(error)}; move it away") from error
    check_record(str(path), line)
    for name, file, read in (("confidence", CONFIDENCE, _confidence), ("weights", WEIGHTS, _weights)):
        if name in line or not (folder / file).is_file():
            continue
        if isinstance(digests, dict) and file in digests and checksum(folder / file) != digests[file]:
            raise ValueError(f"{folder / file}: damaged: its content is not what the run wrote; move it away to leave it out")
        line[name] = read(folder / file)
    return line


def _confidence(file: Path) -> dict[str, dict[str, list[int]]]:
    """Histograms of the probability of the given label, of right and of wrong ones where it is known which are which."""
    try:
        with NpzFile(file) as opened:
            arrays = {name: opened.array(name) for name in ("epochs", "probability", "given", "clean") if name in opened.names}
        epochs, probability, given = (arrays[name] for name in ("epochs", "probability", "given"))
        shapes = probability.shape, arrays.get("clean", given).shape
        if epochs.ndim != 1 or given.ndim != 1 or shapes != ((*epochs.shape, *given.shape), given.shape):
            raise ValueError("its arrays do not belong together")
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"{file}: damaged: {fault_of(error)}; move it away to leave its histograms out") from error
    right = arrays["clean"] == given if "clean" in arrays else None
    kinds = {"given": slice(None)} if right is None else {"right": right, "wrong": ~right}
    return {
        str(epoch): {kind: np.histogram(row[kept], BINS, (0, 1))[0].tolist() for kind, kept in kinds.items()}
        for epoch, row in zip(epochs.tolist(), probability, strict=True)
    }


def _weights(file: Path) -> dict[str, Any] | None:
    """Of matrices and convolutions: how many numbers, their L1 and L2 norms, and the shares that are nearly zero.

    None where they are not all finite, which JSON has no numbers for.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file  # NumPy has no bfloat16

    check_file(file)
    try:
        kept = [tensor for tensor in load_file(file).values() if tensor.ndim > 1 and tensor.is_floating_point()]
        sizes = [tensor.double().abs().numpy().ravel() for tensor in kept]
    except (SafetensorError, ValueError, KeyError, AttributeError, RuntimeError) as error:  # the last three of dtypes
        raise ValueError(f"{file}: damaged: {excerpt(error, 200)}; move it away to leave its weights out") from error
    size = np.concatenate(sizes) if sizes else np.zeros(1)
    if not np.isfinite(size).all():
        return None
    shares = {str(bound): round(float((size < bound).mean()), 4) for bound in SMALL_WEIGHTS}
    norms = {"l1": round(float(size.sum()), 2), "l2": round(float(np.sqrt((size**2).sum())), 4)}
    return {"count": int(size.size), **norms, "below": shares}


def identity(record: dict[str, Any]) -> str:
    """Which run it is: a digest of the recipe and of the labels that it trained on.

    >>> run = {"recipe": {"loss": "ce", "seed": 1}, "result": {"test_accuracy": 0.9}}
    >>> identity(run) == identity({"recipe": {"seed": 1.0, "loss": "ce", "confidence_epochs": [1]}, "result": {}})
    True
    """
    labels = ((record.get("task") or {}).get("noise") or {}).get("hash")
    return content_digest([setting(record, RECORDING_FIELDS), labels])


def setting(record: Mapping[str, Any], left_out: Collection[str]) -> dict[str, Any]:
    """The recipe without some fields, and without those that are empty: a record from before a field existed lacks it.

    Data of one's own are known by the hashes of their files: one file by two paths is the same, two files of one name are not.

    >>> task = {"sources": {"x.npz": "5e1f"}}
    >>> setting({"recipe": {"dataset": "a/x.npz", "loss": "ce", "size": None}, "task": task}, ())
    {'dataset': ['5e1f'], 'loss': 'ce'}
    """
    recipe = {name: value for name, value in record["recipe"].items() if name not in left_out and value not in EMPTY_VALUES}
    sources = (record.get("task") or {}).get("sources")
    if find_name(str(recipe.get("dataset"))) is None and isinstance(sources, dict) and sources:
        files = {str(name): str(digest) for name, digest in sources.items()}
        if "weights" in recipe:
            recipe["weights"] = files.pop(str(recipe["weights"]), recipe["weights"])
        recipe["dataset"] = sorted(files.values())
    return recipe


def merge(*lists: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the records of all lists in their order.

    The same run with the same result is kept once, as its longest record; different results of one run are all kept.

    Args:
        *lists: Records of runs.

    Returns:
        The merged records.

    Raises:
        ValueError: If a run has too many different results.

    >>> merge([], [])
    []
    """
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
            if len(same_run) > MAX_RESULTS_PER_RUN:
                run = excerpt(json.dumps(record["recipe"]), 200)
                raise ValueError(
                    f"more than {MAX_RESULTS_PER_RUN} different results of one run, {run}; these are no records of runs"
                )
    return [record for same_run in kept.values() for record in same_run]


def _same_result(one: dict[str, Any], two: dict[str, Any]) -> bool:
    """Equal in status and in all that both measured: older records have fewer measures."""
    if one.get("status", "finished") != two.get("status", "finished"):
        return False
    shared = one["result"].keys() & two["result"].keys()
    return all(one["result"][key] == two["result"][key] for key in shared) and bool(shared or one["result"] == two["result"])


def read_runs(places: Iterable[Path]) -> list[dict[str, Any]]:
    """The records of runs from files of records and from folders of runs, at any depth.

    Args:
        places: ``.jsonl`` files of records, and folders that hold folders of runs.

    Returns:
        One record for each run.

    Raises:
        FileNotFoundError: A place does not exist.
        ValueError: There is no run, or a file is damaged.

    >>> read_runs([Path("no-such-folder")])
    Traceback (most recent call last):
    FileNotFoundError: no-such-folder does not exist; give folders of runs or .jsonl files of records
    """
    places, records = list(places), []
    for place in places:
        if place.is_dir():
            records += [run_line(path.parent) for path in sorted(place.rglob(RECORD)) if path.is_file()]
        elif place.is_file():
            records += read_records(place)
        else:
            raise FileNotFoundError(f"{place} does not exist; give folders of runs or .jsonl files of records")
    if not records:
        raise ValueError(f"no runs in {', '.join(map(str, places)) or 'nothing'}; 'noiseproof train' makes them")
    return records


def number(value: Any) -> float | None:
    """A finite number, or None for whatever else a record holds there."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) else None


def numbers(values: Any) -> list[float | None]:
    """Of a list; empty for whatever else a record holds there."""
    return [number(value) for value in values] if isinstance(values, list) else []


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def count_classes(record: Mapping[str, Any]) -> int:
    """How many classes the record has accuracies of; older ones have them of none."""
    return len(numbers(record["result"].get("accuracy_by_class")))


def never_right(record: Mapping[str, Any]) -> list[int]:
    """The classes of which no test example is right. Whether such a class was predicted where it is wrong, they do not tell.

    >>> never_right({"result": {"accuracy_by_class": [0.9, 0.0, None, 0.001]}})
    [1]
    """
    return [k for k, share in enumerate(numbers(record["result"].get("accuracy_by_class"))) if share == 0.0]


def describe_missed_classes(runs: Iterable[Mapping[str, Any]]) -> str:
    """On which classes the runs of a cell are never right, in a few words; nothing where each is right on all.

    >>> dog = {"result": {"accuracy_by_class": [0.8, 0.0]}, "task": {"class_names": ["cat", "dog"]}}
    >>> describe_missed_classes([dog]), describe_missed_classes([dog, {"result": {"accuracy_by_class": [0.8, 0.7]}}])
    ('never right on dog', '1 of 2 runs never right on dog')
    """
    told = [run for run in runs if count_classes(run)]
    missed = {tuple(never_right(run)): run for run in told if never_right(run)}
    if not missed:
        return ""
    (one, run), most = next(iter(missed.items())), max(map(len, missed))
    if len(missed) == 1 and most <= MAX_CLASSES_NAMED:
        what = " or ".join(_class_name(run, k) for k in one)
    else:
        up_to = "up to " if min(map(len, missed)) < most else ""
        what = f"{up_to}{most} of {count_classes(run)} classes"
    some = sum(bool(never_right(run)) for run in told)
    return f"{f'{some} of {len(told)} runs ' if len(told) > 1 else ''}never right on {what}"


def _class_name(record: Mapping[str, Any], k: int) -> str:
    task = record.get("task")
    names = task.get("class_names") if isinstance(task, dict) else None
    name = names[k] if isinstance(names, list) and k < len(names) else None
    return printable(name) if isinstance(name, str) and not name.isdecimal() else f"class {k}"
