"""How long the runs take that are left: measured by earlier ones, and in the text of a plan."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from noiseproof.paper.cells import Cell, cells
from noiseproof.paper.plan import FIGURES, Curve, PaperRun
from noiseproof.train.run_list import ENDED, J, PlannedRun, concurrent_runs

H200_EPOCH_SECONDS = {("cifar10", "cnn8"): 28.0 / 120, ("cifar100", "resnet34"): 240.0 / 200}
"""Seconds of an NVIDIA H200's time for an epoch in bf16, with as many concurrent runs as fill it"""


class RunCost(NamedTuple):
    """Seconds of the device's time that a run took to begin and for an epoch, with so many concurrent runs."""

    begin: float
    epoch: float
    at_once: int

    def of(self, epochs: int) -> float:
        return self.begin + self.epoch * epochs

    def wall(self, epochs: int, width: int) -> float:
        """By the clock, with so many concurrent runs or as many as were measured: fewer do not fill the device."""
        return self.of(epochs) * max(width, self.at_once)


class RunCosts:
    """How long a run keeps the device busy, measured by finished runs of the same network, data and precision.

    ``measured`` are numbers from elsewhere, seconds of an epoch by :meth:`key`, for what no run here has measured.
    """

    def __init__(self, machine: str, measured: Mapping[tuple[str, ...], float] | None = None) -> None:
        self.machine, self._measured, self._lock = machine, dict(measured or {}), threading.Lock()
        self._found: dict[tuple[str, ...], list[RunCost]] = {}
        self._last: dict[tuple[str, ...], RunCost] = {}

    @staticmethod
    def key(machine: str, facts: Mapping[str, Any]) -> tuple[str, ...]:
        return machine, facts["dataset"], facts["model"], facts["precision"]

    def add(self, record: Mapping[str, Any], *, just_now: bool = False) -> None:
        """A finished run's record: its seconds, divided among the runs that shared the device with it."""
        made, seconds = record.get("environment") or {}, record.get("seconds") or {}
        if not (seconds.get("train") and made.get("machine")):
            return
        try:
            at_once = made.get("at_once") or record.get("at_once") or 1
            begin = seconds.get("prepare", 0.0)
            epoch = (sum(seconds.values()) - begin) / record["recipe"]["epochs"]
            key, cost = self.key(made["machine"], record["recipe"]), RunCost(begin / at_once, epoch / at_once, at_once)
            with self._lock:
                self._found.setdefault(key, []).append(cost)
                if just_now:
                    self._last[key] = cost
        except (KeyError, TypeError, ZeroDivisionError):
            return  # a record with odd fields measures nothing

    def seconds(self, run: PlannedRun[J]) -> float | None:
        """Of the device's time that the rest of a run takes, or None if no such run has been measured."""
        costs = self._costs(run.facts)
        return statistics.median(cost.of(run.facts["epochs"] - run.done) for cost in costs) if costs else None

    def estimate(self, run: PlannedRun[J]) -> float | None:
        """The same, or what an H200 would take; None if neither has been measured."""
        per_epoch = H200_EPOCH_SECONDS.get((run.facts["dataset"], run.facts["model"]))
        seconds = self.seconds(run)
        return seconds if seconds is not None or per_epoch is None else per_epoch * (run.facts["epochs"] - run.done)

    def until_end(self, run: PlannedRun[J], width: int) -> float | None:
        """Seconds by the clock, with so many concurrent runs; at least what the last run took: a device may be slower."""
        if not (costs := self._costs(run.facts)):
            return None
        last = self._last.get(self.key(self.machine, run.facts))
        left = run.facts["epochs"] - run.done
        usual = statistics.median(cost.wall(left, width) for cost in costs)
        return usual if last is None else max(usual, last.wall(left, width))

    def is_measured(self, facts: Mapping[str, Any]) -> bool:
        """Whether a run on this machine has measured it."""
        return self.key(self.machine, facts) in self._found

    def _costs(self, facts: Mapping[str, Any]) -> list[RunCost]:
        key = self.key(self.machine, facts)
        with self._lock:
            found = list(self._found.get(key, ()))
        if not found and key in self._measured:
            found = [RunCost(0.0, self._measured[key], concurrent_runs(facts["model"], "cuda"))]
        return found


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


def plan_text(planned: Sequence[PlannedRun[PaperRun]], costs: RunCosts, precision: str) -> str:
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
            lines.append([table, dataset, *numbers, _time(left, costs)])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    aligned = [
        "  ".join([*(part.ljust(w) for part, w in places[:2]), *(part.rjust(w) for part, w in places[2:])])
        for line in lines
        for places in [list(zip(line, widths, strict=True))]
    ]
    return "\n".join([*aligned, "", *_plan_notes(planned, costs, precision)])


def _place(first: Cell | Curve) -> tuple[str, str]:
    """The table or figure, and the data set."""
    return (first.table if isinstance(first, Cell) else first.figure), first.dataset


def _time(left: list[PlannedRun[PaperRun]], costs: RunCosts) -> str:
    known = [seconds for run in left if (seconds := costs.estimate(run)) is not None]
    return "-" if not left else "not known" if not known else about(sum(known)) + (" +" if len(known) < len(left) else "")


def _plan_notes(planned: Sequence[PlannedRun[PaperRun]], costs: RunCosts, precision: str) -> list[str]:
    """What the numbers mean."""
    left = [run for run in planned if run.status not in ENDED]
    notes = [f"Seed columns: runs left, in {precision}. A run that counts for several tables is in the first of them."]
    if diverged := sum(run.status == "diverged" for run in planned):
        notes.append(f"{diverged} of those done diverged; only --retry-diverged runs them again.")
    if begun := sum(run.status == "running" for run in planned):
        notes.append(f"{begun} of those left are begun and resume from their checkpoints.")
    by_epochs = sorted(left, key=lambda run: -run.done)  # so that a whole run is named, where one is left
    known = {_kind(run): (took, costs.is_measured(run.facts)) for run in by_epochs if (took := costs.estimate(run)) is not None}
    for is_here, where in ((True, f"this machine, {costs.machine}"), (False, "an NVIDIA H200 in bf16")):
        if each := [f"{about(seconds)} for a run on {kind}" for kind, (seconds, here) in known.items() if here == is_here]:
            notes.append(f"Time of one device: {' and '.join(each)}, measured on {where}.")
    if not all(here for _, here in known.values()):
        notes.append(f"There six runs on cifar10 or three on cifar100 were concurrent. This machine: {costs.machine}.")
    if unknown := {_kind(run) for run in left} - known.keys():
        notes.append(f"No run on {' or '.join(sorted(unknown))} has been measured.")
    return notes


def _kind(run: PlannedRun[PaperRun]) -> str:
    return str(run.facts["dataset"])
