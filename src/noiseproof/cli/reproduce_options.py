"""What the options of ``noiseproof reproduce`` mean: which cells and seeds, on which data, where, and in which precision."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noiseproof.cli.queue_view import say
from noiseproof.data import data_root
from noiseproof.data.opening import find_dataset
from noiseproof.io.files import exists, is_file
from noiseproof.paper import SEEDS, Cell
from noiseproof.paper.figures import Curve
from noiseproof.paper.plan import chosen_cells, chosen_curves
from noiseproof.train import RunOptions
from noiseproof.train.plan import device_named
from noiseproof.train.ray_executor import RayExecutor
from noiseproof.train.run_list import machine_name

__all__ = ["Local", "chosen_of", "data_folder", "existing_files", "precision_for", "seeds_of", "share_of", "where_to_run"]
__all__ += ["why_absent"]

PRECISIONS = ("bf16", "tf32", "float32")
MOST_SEEDS = 100


@dataclass(frozen=True)
class Local:
    """This machine; the other place to run is a RayExecutor."""

    options: RunOptions

    @property
    def device(self) -> str:
        return self.options.device.type

    @property
    def machine(self) -> str:
        return machine_name(self.options)


def chosen_of(
    tables: str | None, dataset: str | None, loss: str | None, noise: str | None
) -> tuple[tuple[Cell, ...], tuple[Curve, ...]]:
    """The numbers and curves that all filters keep; real images and figures only if they are asked for."""
    filters = {"datasets": _names(dataset), "losses": _names(loss), "noises": _names(noise)}
    found = chosen_cells(tables=_names(tables), **filters)
    if not tables and not any(cell.dataset in filters["datasets"] for cell in found if cell.noise == "real"):
        found = tuple(cell for cell in found if cell.noise != "real")
    curves = chosen_curves(_names(tables), **filters)
    if not (found or curves):
        raise ValueError("the paper has no number with all of these: TABLE, --dataset, --loss and --noise; leave one out")
    return found, curves


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def seeds_of(text: str) -> list[int]:
    """The paper's first seeds, as many as a number says, or those of a list."""
    parts = _names(text)
    if not parts or not all(part.isdecimal() for part in parts):
        raise ValueError(f"--seeds is a number of seeds, such as 3, or a list of them, such as 123,130; got {text!r}")
    if "," in text:
        if beyond := [part for part in parts if int(part) >= 2**32]:
            raise ValueError(f"the seeds of --seeds must be in [0, 2^32), got {beyond[0]}")
        return [int(part) for part in parts]
    if not 1 <= int(text) <= MOST_SEEDS:
        raise ValueError(f"--seeds {text} means that many seeds, at most {MOST_SEEDS}; the seed {text} alone is '{text},'")
    return [SEEDS[0] + i for i in range(int(text))]


def share_of(text: str | None) -> tuple[int, int]:
    """The part of the runs, counted from 1, and how many parts there are."""
    part, slash, parts = (text or "1/1").partition("/")
    if not (slash and part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        raise ValueError(f"--shard is PART/PARTS, the part counted from 1, such as 2/8; got {text!r}")
    return int(part), int(parts)


def data_folder(data: str | None, chosen: Iterable[Cell | Curve]) -> Path | None:
    """The folder of data to run on: what was given, or $NOISEPROOF_DATA if it has any of the data sets."""
    if data is not None:
        return data_root(data)
    there = data_root() if os.environ.get("NOISEPROOF_DATA") else None
    return there if there is not None and any(why_absent(one.dataset, there) is None for one in chosen) else None


def why_absent(dataset: str, place: Path) -> str | None:
    """None, or why it cannot be used."""
    try:
        find_dataset("webvision" if dataset == "ilsvrc12" else dataset, place)
    except FileNotFoundError as error:
        return str(error)
    return None


def where_to_run(engine: str, address: str | None, device: str, *, to_run: bool) -> Local | RayExecutor:
    """This machine, or a cluster, which is not started for nothing."""
    if engine not in ("local", "ray") or (address and engine != "ray"):
        raise ValueError(f"--engine must be local or ray, and --address is for ray; got {engine!r} and {address!r}")
    return RayExecutor(address, device) if engine == "ray" and to_run else Local(RunOptions(device_named(device)))


def existing_files(files: list[Path], *, to_run: bool) -> list[Path]:
    """The files of results; the first need not exist if runs are to be written to it."""
    for i, file in enumerate(files):
        if not is_file(file) and (i or not to_run or exists(file)):
            raise ValueError(f"--records {file}: no such file; runs with --data write it")
    return [file for file in files if is_file(file)]


def precision_for(wanted: str | None, device: str, data: Path | None, records: list[dict[str, Any]]) -> str:
    """What runs are made in here; where nothing is run, what most of the results were made in."""
    if wanted is not None and wanted not in PRECISIONS:
        raise ValueError(f"--precision must be one of {', '.join(PRECISIONS)}, got {wanted!r}")
    if wanted is not None or device == "cuda":
        return wanted or "bf16"
    if data is not None:
        say("on a CPU the runs are in float32, and only results in float32 are shown; --precision chooses another")
        return "float32"
    made = Counter(str(record["recipe"].get("precision")) for record in records)
    return made.most_common(1)[0][0] if made else "bf16"
