"""How a queue of the paper's runs is shown: before it as a plan, while it runs as lines and a bar; and its file of results."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn

from noiseproof.cli.output import Console
from noiseproof.cli.train_view import duration
from noiseproof.io.files import exists, is_file, locked, remove_partial
from noiseproof.paper import Cell, cells
from noiseproof.paper.figures import FIGURES, Curve
from noiseproof.paper.plan import H200_EPOCH_SECONDS, PaperRun
from noiseproof.report import compact, merge, read_records, write_records
from noiseproof.report.folders import run_line
from noiseproof.train import Callback, DivergenceError, Epoch, Outcome, Recipe, Record, RunStore, identity
from noiseproof.train.record import RECORD
from noiseproof.train.run_list import ENDED, PlannedRun, RunCosts
from noiseproof.train.runs import BusyError

__all__ = ["Display", "Keeper", "about", "plan_text", "say"]


def say(line: str) -> None:
    """A line beside the output."""
    Console(stderr=True).print(escape(line), highlight=False, soft_wrap=True)


def about(seconds: float) -> str:
    """A time, as exactly as an estimate is.

    >>> about(28), about(1500), about(12345), about(500000)
    ('28 s', '25 min', '3.4 h', '139 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 100 * 3600 else f"{seconds / 3600:.0f} h"


def plan_text(planned: list[PlannedRun[PaperRun]], speeds: RunCosts, precision: str) -> str:
    """What would run, by table and seed, what is done, and the time that the rest takes."""
    seeds = list(dict.fromkeys(run.job.seed for run in planned))
    everything: list[Cell | Curve] = [*cells(), *(curve for curves in FIGURES.values() for curve in curves)]
    rows: dict[tuple[str, str], list[PlannedRun[PaperRun]]] = {_place(one): [] for one in everything}
    for run in planned:
        rows[_place(run.job.first)].append(run)
    lines = [["table", "data set", "runs", "done", *(f"seed {seed}" for seed in seeds), "time"]]
    for (table, dataset), runs in {**rows, ("together", ""): planned}.items():
        left = [run for run in runs if run.status not in ENDED]
        by_seed = [sum(run.job.seed == seed for run in left) for seed in seeds]
        numbers = [str(number or "-") for number in (len(runs), len(runs) - len(left), *by_seed)]
        if runs:
            lines.append([table, dataset, *numbers, _time(left)])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    aligned = [
        "  ".join([*(part.ljust(w) for part, w in places[:2]), *(part.rjust(w) for part, w in places[2:])])
        for line in lines
        for places in [list(zip(line, widths, strict=True))]
    ]
    return "\n".join([*aligned, "", *_notes(planned, speeds, precision)])


def _place(first: Cell | Curve) -> tuple[str, str]:
    """The table or figure, and the data set."""
    return (first.table if isinstance(first, Cell) else first.figure), first.dataset


def _seconds(run: PlannedRun[PaperRun]) -> float | None:
    """Of this machine's time, else of an H200's."""
    per_epoch = H200_EPOCH_SECONDS.get((run.facts["dataset"], run.facts["model"]))
    return run.seconds if run.seconds is not None or per_epoch is None else per_epoch * (run.facts["epochs"] - run.done)


def _time(left: list[PlannedRun[PaperRun]]) -> str:
    known = [seconds for run in left if (seconds := _seconds(run)) is not None]
    return "-" if not left else "not known" if not known else about(sum(known)) + (" +" if len(known) < len(left) else "")


def _notes(planned: list[PlannedRun[PaperRun]], speeds: RunCosts, precision: str) -> list[str]:
    """What the numbers mean."""
    left = [run for run in planned if run.status not in ENDED]
    notes = [f"Seed columns: runs left, in {precision}. A run that counts for several tables is in the first of them."]
    if diverged := sum(run.status == "diverged" for run in planned):
        notes.append(f"{diverged} of those done diverged; only --retry-diverged runs them again.")
    if begun := sum(run.status == "running" for run in planned):
        notes.append(f"{begun} of those left are begun and resume from their checkpoints.")
    by_epochs = sorted(left, key=lambda run: -run.done)  # so that a whole run is named, where one is left
    known = {_kind(run): (took, speeds.is_measured(run.facts)) for run in by_epochs if (took := _seconds(run)) is not None}
    for is_here, where in ((True, f"this machine, {speeds.machine}"), (False, "an NVIDIA H200 in bf16")):
        if each := [f"{about(seconds)} for a run on {kind}" for kind, (seconds, here) in known.items() if here == is_here]:
            notes.append(f"Time of one device: {' and '.join(each)}, measured on {where}.")
    if not all(here for _, here in known.values()):
        notes.append(f"There six runs on cifar10 or three on cifar100 went side by side. This machine: {speeds.machine}.")
    if unknown := {_kind(run) for run in left} - known.keys():
        notes.append(f"No run on {' or '.join(sorted(unknown))} has been measured.")
    return notes


def _kind(run: PlannedRun[PaperRun]) -> str:
    return str(run.facts["dataset"])


class Keeper:
    """A file of results that grows with every run that is over. Several processes may add to it; no line is ever lost."""

    def __init__(self, file: Path, store: RunStore | None = None) -> None:
        """With a ``store``, lines also have what else is kept in a run's folder. Of a link, the file that it leads to grows."""
        self.file, self.store = file.resolve(), store

    def keep(self, recipe: Recipe, outcome: Outcome | Mapping[str, Any] | Exception) -> None:
        """What came of a run: its record, also if it diverged, so that nobody runs it again unknowingly."""
        if isinstance(outcome, DivergenceError):
            self.add_folders([] if self.store is None else [self.store.folder_for(recipe)])
        elif not isinstance(outcome, Exception):
            self.add([outcome.record.as_dict() if isinstance(outcome, Outcome) else dict(outcome)])

    def add(self, records: Iterable[dict[str, Any]]) -> None:
        """Runs that are over, by their records."""
        lines = [self._line(record) for record in records]
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with locked(self.file.parent, wait=True) as held:
            if held:
                remove_partial(self.file)
            before = read_records(self.file) if exists(self.file) else []
            after = merge(before, lines)
            if after != before:
                write_records(self.file, after)

    def add_folders(self, folders: Iterable[Path | None]) -> None:
        """Runs that are over, by their folders."""
        files = [folder / RECORD for folder in folders if folder is not None]
        self.add([json.loads(file.read_text(encoding="utf-8")) for file in files if is_file(file)])

    def _line(self, record: dict[str, Any]) -> dict[str, Any]:
        stored = None if self.store is None else self.store.find(identity(record["recipe"], record["task"]))
        return compact(record) if stored is None or stored.folder is None else run_line(stored.folder)


class Display:
    """A line on stderr for each run that ends, and on a terminal a bar over all of them."""

    def __init__(self, todo: list[PlannedRun[PaperRun]], speeds: RunCosts, keeper: Keeper | None) -> None:
        self.todo, self.speeds, self.keeper = todo, speeds, keeper
        self.console, self.lock, self.start = Console(stderr=True), threading.RLock(), time.monotonic()
        estimates = [_seconds(run) for run in todo]
        known = [seconds for seconds in estimates if seconds is not None]
        weights = known if len(known) == len(todo) else [1.0] * len(todo)
        self.weights = {id(run): weight for run, weight in zip(todo, weights, strict=True)}
        self.shares: dict[int, float] = {}
        self.finished = self.diverged = self.not_added = 0
        self.told: set[str] = set()
        columns = (TextColumn("{task.description}"), BarColumn(None), TextColumn("{task.fields[left]}"))
        self.bar = Progress(*columns, console=self.console, expand=True, transient=True, disable=not self.console.is_terminal)
        self.task = self.bar.add_task("", total=sum(weights), left="")

    def __enter__(self) -> Display:
        many = f"{len(self.todo)} runs" if len(self.todo) > 1 else "1 run"
        estimates = [self.speeds.seconds(run.facts, run.done) for run in self.todo]
        known = [seconds for seconds in estimates if seconds is not None]
        self._tell(f"{many} to do" + (f", about {about(sum(known))}" if len(known) == len(estimates) else ""))
        self._show()
        self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.bar.stop()

    def callback(self, run: PlannedRun[PaperRun]) -> Callback:
        return _Share(self, run)

    def reached(self, run: PlannedRun[PaperRun], share: float) -> None:
        with self.lock:
            self.shares[id(run)] = share
            self._show()

    def ended(self, run: PlannedRun[PaperRun], outcome: Outcome | Mapping[str, Any] | Exception) -> None:
        """A run finished, with its record, or failed."""
        with self.lock:
            if isinstance(outcome, BusyError):
                self._tell(f"{_name(run)}  another process is at work on it")
            elif isinstance(outcome, Exception):
                self.diverged += isinstance(outcome, DivergenceError)
                self._tell_failure(run, outcome)
            else:
                self.finished += 1
                self._tell(_result(run, outcome.record.as_dict() if isinstance(outcome, Outcome) else dict(outcome)))
            self._keep(run, outcome)
            self.reached(run, 1.0)

    def summary(self) -> str:
        """What is kept, and what the same command will do."""
        said = [f"{self.finished} of {len(self.todo)} runs finished and are kept"]
        if self.diverged:
            said.append(f"{self.diverged} diverged, which --retry-diverged runs again")
        if self.finished + self.diverged < len(self.todo):
            said.append("the same command runs the others, from their last checkpoints where they have one")
        return "; ".join(said)

    def _keep(self, run: PlannedRun[PaperRun], outcome: Outcome | Mapping[str, Any] | Exception) -> None:
        try:
            if self.keeper is not None:
                self.keeper.keep(run.recipe, outcome)
        except (OSError, ValueError) as error:  # the run's folder has it, and the next call adds it
            self.not_added += 1
            self._tell(f"not added to the records: {error}")

    def _tell_failure(self, run: PlannedRun[PaperRun], error: Exception) -> None:
        what, why = "diverged" if isinstance(error, DivergenceError) else "failed", str(error) or repr(error)
        self._tell(f"{_name(run)}  {what}: {why if why not in self.told else 'for the same reason'}")
        self.told.add(why)

    def _tell(self, line: str) -> None:
        self.console.print(escape(line), highlight=False, soft_wrap=True)

    def _show(self) -> None:
        done, total = sum(share * self.weights[run] for run, share in self.shares.items()), sum(self.weights.values())
        ended = sum(share == 1.0 for share in self.shares.values())
        text = f"{duration((time.monotonic() - self.start) / done * (total - done))} left" if done else ""
        self.bar.update(self.task, completed=done, description=f"{ended}/{len(self.todo)}", left=text)


class _Share(Callback):
    """Tells the display how much of a run is done."""

    def __init__(self, display: Display, run: PlannedRun[PaperRun]) -> None:
        self.display, self.run = display, run

    def on_train_begin(self, record: Record, epochs_done: int) -> None:
        self.display.reached(self.run, epochs_done / record.recipe["epochs"])

    def on_epoch_end(self, facts: Epoch) -> None:
        self.display.reached(self.run, min(facts.epoch / self.run.facts["epochs"], 0.999))


def _name(run: PlannedRun[PaperRun]) -> str:
    first = run.job.first
    loss, noise = (first.loss, _noise(first)) if isinstance(first, Cell) else (first.label, first.noise)
    return f"{loss:9} {first.dataset:8} {noise:16} seed {run.job.seed}"


def _noise(cell: Cell) -> str:
    return cell.noise if cell.spec == "none" else cell.spec


def _result(run: PlannedRun[PaperRun], facts: dict[str, Any]) -> str:
    first, accuracy = run.job.first, facts["result"].get("test_accuracy")
    measured = "not tested" if accuracy is None else f"{100 * accuracy:5.2f} %"
    paper = ""
    if isinstance(first, Cell):
        paper = f"paper {first.mean:.2f}" + ("" if first.std is None else f" ± {first.std:.2f}")
    return f"{_name(run)}  {measured}  {paper:19}  {duration(sum(facts['seconds'].values()))}"
