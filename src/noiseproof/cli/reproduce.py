"""``noiseproof reproduce``: the runs behind the paper's tables, and their results beside the paper's."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from noiseproof.cli.output import echo, fail
from noiseproof.cli.plan import device_named
from noiseproof.cli.queue_view import Display, Keeper, plan_text, say
from noiseproof.cli.stopping import sigterm_as_ctrl_c
from noiseproof.data import data_root
from noiseproof.data.places import find_dataset
from noiseproof.files import exists, is_file
from noiseproof.paper import PROFILES, SEEDS, Cell
from noiseproof.paper.queue import PlannedRun, chosen_cells, planned_runs
from noiseproof.report import formatted, join, read_records
from noiseproof.train import Record, RunOptions, RunStore, StoredRun
from noiseproof.train.cluster import Cluster
from noiseproof.train.queue import H200, OVER, Planned, Speeds, Tally, machine_of, plan_queue, run_queue, shard

__all__ = ["reproduce"]

Tables = Annotated[
    str | None,
    typer.Argument(
        metavar="TABLE",
        help="sym_asym, instance, human, ablation, agce_mae, agce_mae_all or real_world, several with commas; "
        "all but real_world if left out.",
    ),
]
Dataset = Annotated[str | None, typer.Option(help="Only these data sets, with commas: cifar10, cifar100.")]
Loss = Annotated[str | None, typer.Option(help="Only these losses: JAL-CE,CE.")]
Noise = Annotated[str | None, typer.Option(help="Only these noises: symmetric, symmetric:0.8, human:worst, clean.")]
Seeds = Annotated[str, typer.Option(help="How many of the paper's seeds, 123, 124, ..., or a list of seeds: 123,130.")]
Data = Annotated[
    str | None, typer.Option(metavar="DIR", help="Folder of data sets, or $NOISEPROOF_DATA; without either nothing is run.")
]
Out = Annotated[Path, typer.Option(help="Folder of runs; each has its own inside.")]
Records = Annotated[
    list[Path] | None,
    typer.Option(metavar="FILE", help="Results of runs as JSON lines; may be repeated. New ones are added to the first."),
]
OnlyPlan = Annotated[bool, typer.Option("--plan", help="Say what would run and how long it would take, and stop.")]
Format = Annotated[str, typer.Option("--format", help="table, markdown, latex, json or csv.")]
Minutes = Annotated[float | None, typer.Option(help="Start nothing that would not end in this time.", min=0.0)]
Shard = Annotated[
    str | None, typer.Option("--shard", metavar="PART/PARTS", help="One of several machines' share of the runs: 2/8.")
]
AtOnce = Annotated[int | None, typer.Option(help="Runs side by side on a GPU, by default as many as fill an H200.", min=1)]
Precision = Annotated[str | None, typer.Option(help="bf16, tf32 or float32; by default bf16, on a CPU float32.")]
Profile = Annotated[str, typer.Option(help="paper-code, or paper-text where the two differ.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")]
Engine = Annotated[str, typer.Option(help="local, or ray for the machines of a Ray cluster.")]
Address = Annotated[str | None, typer.Option(help="Of a Ray cluster, or auto; without it Ray starts on this machine.")]

PRECISIONS = ("bf16", "tf32", "float32")
MOST_SEEDS = 100


@dataclass(frozen=True)
class Local:
    """This machine; the other place to run is a Cluster."""

    options: RunOptions

    @property
    def device(self) -> str:
        return self.options.device.type

    @property
    def machine(self) -> str:
        return machine_of(self.options)


@dataclass
class Work:
    """All that is known before anything runs."""

    cells: tuple[Cell, ...]
    records: list[dict[str, Any]]
    store: RunStore
    speeds: Speeds
    precision: str
    profile: str
    planned: list[Planned[PlannedRun]]

    @property
    def missing(self) -> list[Planned[PlannedRun]]:
        return [run for run in self.planned if run.status not in OVER]


def reproduce(
    tables: Tables = None,
    dataset: Dataset = None,
    loss: Loss = None,
    noise: Noise = None,
    seeds: Seeds = "3",
    data: Data = None,
    out: Out = Path("runs"),
    records: Records = None,
    plan: OnlyPlan = False,
    how: Format = "table",
    minutes: Minutes = None,
    share: Shard = None,
    at_once: AtOnce = None,
    precision: Precision = None,
    profile: Profile = PROFILES[0],
    device: Device = "auto",
    engine: Engine = "local",
    address: Address = None,
) -> None:
    """Run what is behind the paper's tables, and show the results beside the paper's.

    What is finished, in --out or in --records, is not run again: stop it at any time, the same command goes on.
    Without --data it only shows what there is.
    """
    files = records or []
    with _bad_arguments():
        formatted((), how)
        cells = _cells(tables, dataset, loss, noise)
        place = _place(data, cells)
        where = _where(engine, address, device, to_run=place is not None and not plan)
        found = read_records(*_existing(files, to_run=place is not None))
        chosen = _precision(precision, where.device, None if place is None else data, found)
        work = _work(cells, found, RunStore(out), where, chosen, profile, _seeds(seeds), _share(share))
    if plan:
        echo(plan_text(work.planned, work.speeds, work.precision))
        return
    tally, keeper = None, Keeper(files[0], work.store) if files and place is not None else None
    if keeper is not None:  # runs that ended when an earlier call was killed
        with _bad_arguments():
            keeper.add_folders(run.stored.folder for run in work.planned if run.stored and run.stored.status == "finished")
    if place is not None and (todo := _with_data(work, place)):
        tally = _run(work, todo, place, where, keeper, at_once, minutes)
    elif work.missing and place is None:
        say(_way_out(work))
    _show(work, how)
    if tally is not None and tally.failed:
        raise typer.Exit(1)


@contextmanager
def _bad_arguments() -> Iterator[None]:
    try:
        yield
    except (ValueError, OSError, ImportError) as error:
        fail(error)


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def _cells(tables: str | None, dataset: str | None, loss: str | None, noise: str | None) -> tuple[Cell, ...]:
    """Those that all filters keep; real images only if they are asked for."""
    filters = {"datasets": _names(dataset), "losses": _names(loss), "noises": _names(noise)}
    found = chosen_cells(tables=_names(tables), **filters)
    if not tables and not any(cell.dataset in filters["datasets"] for cell in found if cell.noise == "real"):
        found = tuple(cell for cell in found if cell.noise != "real")
    if not found:
        raise ValueError("the paper has no number with all of these: TABLE, --dataset, --loss and --noise; leave one out")
    return found


def _seeds(text: str) -> list[int]:
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


def _share(text: str | None) -> tuple[int, int]:
    part, slash, parts = (text or "1/1").partition("/")
    if not (slash and part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        raise ValueError(f"--shard is PART/PARTS, the part counted from 1, such as 2/8; got {text!r}")
    return int(part), int(parts)


def _place(data: str | None, cells: tuple[Cell, ...]) -> Path | None:
    """The folder of data to run on: what was given, or $NOISEPROOF_DATA if it has any of the data sets."""
    if data is not None:
        return data_root(data)
    there = data_root() if os.environ.get("NOISEPROOF_DATA") else None
    return there if there is not None and any(_is_there(cell.dataset, there) is None for cell in cells) else None


def _is_there(dataset: str, place: Path) -> str | None:
    """None, or why it cannot be used."""
    try:
        find_dataset("webvision" if dataset == "ilsvrc12" else dataset, place)
    except FileNotFoundError as error:
        return str(error)
    return None


def _where(engine: str, address: str | None, device: str, *, to_run: bool) -> Local | Cluster:
    if engine not in ("local", "ray") or (address and engine != "ray"):
        raise ValueError(f"--engine must be local or ray, and --address is for ray; got {engine!r} and {address!r}")
    return Cluster(address, device) if engine == "ray" and to_run else Local(RunOptions(device_named(device)))


def _existing(files: list[Path], *, to_run: bool) -> list[Path]:
    """The files of results; the first need not exist if runs are to be written to it."""
    for i, file in enumerate(files):
        if not is_file(file) and (i or not to_run or exists(file)):
            raise ValueError(f"--records {file}: no such file; runs with --data write it")
    return [file for file in files if is_file(file)]


def _precision(wanted: str | None, device: str, data: str | None, records: list[dict[str, Any]]) -> str:
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


def _work(
    cells: tuple[Cell, ...],
    records: list[dict[str, Any]],
    store: RunStore,
    where: Local | Cluster,
    precision: str,
    profile: str,
    seeds: list[int],
    share: tuple[int, int],
) -> Work:
    stored = list(store.runs())
    for run in stored:
        if run.status == "unreadable":
            say(f"{run.facts['message']}; it does not count")
    known = [*(StoredRun("", Record.status_in(facts), facts) for facts in records), *stored]
    here: dict[tuple[str, ...], float] = {}
    if where.device == "cuda":
        here = {(where.machine, *kind, "bf16"): seconds for kind, seconds in H200.items()}
    speeds = Speeds(where.machine, here)
    runs = shard(planned_runs(cells, seeds=seeds, precision=precision, profile=profile).runs, *share)
    return Work(cells, records, store, speeds, precision, profile, plan_queue(runs, known, speeds))


def _with_data(work: Work, place: Path) -> list[Planned[PlannedRun]]:
    """The missing runs whose data are there; one line for each data set that is not."""
    needed = dict.fromkeys(run.facts["dataset"] for run in work.missing)
    absent = {dataset: why for dataset in needed if (why := _is_there(dataset, place)) is not None}
    if absent and len(absent) == len(needed):
        fail("; ".join(absent.values()))
    for why in absent.values():
        say(f"left out: {why}")
    return [run for run in work.missing if run.facts["dataset"] not in absent]


def _way_out(work: Work) -> str:
    """How to run what is missing."""
    place = data_root()
    there = any(_is_there(run.facts["dataset"], place) is None for run in work.missing)
    given = shlex.quote(str(place)) if there else "DIR"
    return (
        f"{len(work.missing)} of {len(work.planned)} runs are missing: the same command with --data {given} runs them, "
        "with --plan it says how long that takes"
    )


def _run(
    work: Work,
    todo: list[Planned[PlannedRun]],
    place: Path,
    where: Local | Cluster,
    keeper: Keeper | None,
    at_once: int | None,
    minutes: float | None,
) -> Tally[PlannedRun]:
    display = Display(todo, work.speeds, keeper)
    with sigterm_as_ctrl_c() as stopped:
        try:
            tally = _tally(work, todo, place, where, display, at_once, minutes)
        except KeyboardInterrupt:
            say(f"stopped: {display.summary()}")
            if isinstance(where, Cluster):
                where.close()
            display.lock.acquire(timeout=2.0)  # so that no file is left half written
            os._exit(stopped.status)  # a thread that compiles cannot be interrupted
    if tally.not_started:
        say(f"{len(tally.not_started)} runs would not have ended in {minutes:g} minutes; {display.summary()}")
    if tally.failed:
        say(f"{len(tally.failed)} of {len(todo)} runs failed or diverged; {display.summary()}")
    return tally


def _tally(
    work: Work,
    todo: list[Planned[PlannedRun]],
    place: Path,
    where: Local | Cluster,
    display: Display,
    at_once: int | None,
    minutes: float | None,
) -> Tally[PlannedRun]:
    with display:
        if isinstance(where, Local):
            return run_queue(
                todo, work.store, work.speeds, data=place, options=where.options, at_once=at_once, minutes=minutes,
                observer=display.observer, on_outcome=display.ended,
            )  # fmt: skip
        tally = where.run(todo, work.store, work.speeds, data=place, at_once=at_once, minutes=minutes, on_outcome=display.ended)
        where.close()
        return tally


def _show(work: Work, how: str) -> None:
    stored = [run.facts for run in work.store.runs() if run.status in OVER]
    results = join(work.cells, [*work.records, *stored], precision=work.precision, profile=work.profile).results
    echo(formatted(results, how).rstrip("\n"))
