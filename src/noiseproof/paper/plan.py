"""The runs behind the published numbers and figures, each once, in the order in which to run them; what they cost."""

from __future__ import annotations

import dataclasses
import functools
import statistics
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from noiseproof.io.text import aligned, did_you_mean
from noiseproof.losses import find_loss
from noiseproof.paper.published import Cell, cells
from noiseproof.paper.recipes import HISTOGRAMS, SEEDS, differences, recipe, recipe_of
from noiseproof.paper.run_list import ENDED, J, PlannedRun
from noiseproof.paper.settings import PROFILES, Difference
from noiseproof.train import Recipe, override
from noiseproof.train.executors import concurrent_runs

FIRST_LOSSES = ("JAL-CE", "JAL-FL", "CE", "NCE+RCE", "NCE+AGCE", "ANL-CE")
"""The paper's own losses and their nearest rivals; the others follow in the order of the tables."""
NOT_COMPARED = ("seed", "precision", "confidence_epochs")
"""Fields of a recipe in which the runs of one cell may differ."""


@dataclass(frozen=True)
class Curve:
    """What one run adds to a figure: a line of a panel, or a panel of its own."""

    figure: str
    """histogram, tsne, amse_a or, in the supplement, amse_q"""
    panel: str
    name: str
    loss: str
    noise: str
    options: tuple[tuple[str, float], ...] = ()
    """Of the loss, where they are not those of the tables"""
    dataset: str = "cifar10"

    @property
    def label(self) -> str:
        """The loss with its options, as a list of runs has it."""
        return " ".join([self.loss.upper(), *(f"{key}={value:g}" for key, value in self.options)])


def curve_recipe(curve: Curve, seed: int = SEEDS[0], profile: str = "paper-code") -> Recipe:
    """The run behind a curve.

    >>> curve_recipe(FIGURES["amse_q"][0]).loss_options
    {'a': 10.0, 'q': 1.0}
    """
    found = recipe(f"{curve.dataset}/{curve.loss}", noise=curve.noise, seed=seed, profile=profile)
    return override(found, {f"loss.{key}": value for key, value in curve.options})


AMSE_A = (10.0, 20.0, 30.0, 40.0)
AMSE_Q = (1.0, 2.0, 3.0)
AMSE_NOISES = {"Symmetric 0.8": "symmetric:0.8", "Asymmetric 0.4": "asymmetric:0.4"}

FIGURES: dict[str, tuple[Curve, ...]] = {
    "histogram": tuple(Curve("histogram", loss.upper(), loss.upper(), loss, noise) for _, loss, noise in HISTOGRAMS),
    "tsne": tuple(
        Curve("tsne", loss.upper(), loss.upper(), loss, "symmetric:0.4") for loss in ("ce", "jal-ce", "fl", "jal-fl")
    ),
    "amse_a": tuple(
        curve
        for panel, noise in AMSE_NOISES.items()
        for curve in (
            *(Curve("amse_a", panel, f"AMSE a={a:g}", "amse", noise, (("a", a),)) for a in AMSE_A),
            Curve("amse_a", panel, "NNCE", "nnce", noise),
        )
    ),
    "amse_q": tuple(
        Curve("amse_q", f"AMSE (q={q:g})", f"a={a:g}", "amse", "symmetric:0.8", (("a", a), ("q", q)))
        for q in AMSE_Q
        for a in AMSE_A
    ),
}
"""By name: probabilities of right and wrong labels, features in the plane, test accuracy by epoch for values of a, and of q"""


@dataclass(frozen=True)
class PaperRun:
    """One run, and all cells and curves that it counts for; at least one of either."""

    cells: tuple[Cell, ...]
    seed: int
    precision: str | None
    """None keeps the recipe's own"""
    profile: str
    curves: tuple[Curve, ...] = ()

    @property
    def first(self) -> Cell | Curve:
        """What names it."""
        return self.cells[0] if self.cells else self.curves[0]

    @property
    def title(self) -> str:
        """Loss, data set, noise and seed, as a list of runs has them."""
        first = self.first
        if isinstance(first, Curve):
            loss, noise = first.label, first.noise
        else:
            loss, noise = first.loss, first.noise if first.spec == "none" else first.spec
        return f"{loss:9} {first.dataset:8} {noise:16} seed {self.seed}"

    @property
    def published(self) -> str:
        """The paper's number, where it is the run of one."""
        first = self.first
        if isinstance(first, Curve):
            return ""
        return f"paper {first.mean:.2f}" + ("" if first.std is None else f" ± {first.std:.2f}")

    @property
    def needs_weights(self) -> bool:
        """Whether a record of it is not enough for a figure."""
        return any(curve.figure == "tsne" for curve in self.curves)

    @property
    def facts(self) -> dict[str, Any]:
        """The recipe's fields but the confidence epochs, without building it."""
        own = {} if self.precision is not None else {"precision": self.recipe.precision}
        return {"precision": self.precision, **own, "seed": self.seed, **run_facts(self.first, self.profile)}

    @functools.cached_property
    def recipe(self) -> Recipe:
        """Built when it is asked for: checking a thousand recipes takes seconds."""
        which = self.seed, self.profile
        found = recipe_of(self.cells[0], *which) if self.cells else curve_recipe(self.curves[0], *which)
        return found if self.precision is None else override(found, {"precision": self.precision})


class PaperPlan(NamedTuple):
    """What there is to run, and the cells that have no run behind them."""

    runs: list[PaperRun]
    quoted: tuple[Cell, ...]


def choose(
    names: Collection[str] = (),
    *,
    datasets: Collection[str] = (),
    losses: Collection[str] = (),
    noises: Collection[str] = (),
) -> tuple[tuple[Cell, ...], tuple[Curve, ...]]:
    """The numbers of tables and the curves of figures that all filters keep; real images only if they are asked for.

    Args:
        names: Tables and figures; all tables, and no figure, if there is none.
        datasets: Only these data sets.
        losses: Only these losses.
        noises: Only these noises, with or without a rate.

    Raises:
        ValueError: A name is not the paper's, or nothing is left.
    """
    filters = {"datasets": datasets, "losses": losses, "noises": noises}
    found = chosen_cells(tables=names, **filters)
    if not names and not any(cell.dataset in datasets for cell in found if cell.noise == "real"):
        found = tuple(cell for cell in found if cell.noise != "real")
    curves = chosen_curves(names, **filters)
    if not (found or curves):
        raise ValueError("the paper has no number with all of these: table, data set, loss and noise; leave one out")
    return found, curves


def chosen_cells(
    *,
    tables: Collection[str] = (),
    datasets: Collection[str] = (),
    losses: Collection[str] = (),
    noises: Collection[str] = (),
) -> tuple[Cell, ...]:
    """The cells with any of the values of each filter; an empty one keeps all. A noise is ``symmetric:0.8`` or ``symmetric``.

    A figure may be named together with tables; it has curves, and no cells.

    >>> [cell.loss for cell in chosen_cells(tables=["human"], losses=["jal-ce", "CE"], noises=["human:worst"])]
    ['CE', 'JAL-CE']
    """
    everything = cells()
    wanted_tables = _known("table", tables, [*(cell.table for cell in everything), *FIGURES])
    wanted_datasets = _known("data set", datasets, [cell.dataset for cell in everything])
    wanted_noises = _known("noise", noises, [name for cell in everything for name in (cell.noise, cell.spec)])
    named = {cell.loss: find_loss(cell.loss).name for cell in {cell.loss: cell for cell in everything}.values()}
    wanted_losses = {find_loss(name).name for name in losses}
    drawn = {curve.loss for curve in chosen_curves(tables)}
    for name in sorted(wanted_losses - set(named.values()) - drawn):
        raise ValueError(f"the paper has no numbers of {name!r}; it has those of {', '.join(named)}")
    return tuple(
        cell
        for cell in everything
        if (not tables or cell.table in wanted_tables)
        and (not datasets or cell.dataset in wanted_datasets)
        and (not noises or wanted_noises & {cell.noise, cell.spec})
        and (not losses or named[cell.loss] in wanted_losses)
    )


def chosen_curves(
    figures: Collection[str],
    *,
    datasets: Collection[str] = (),
    losses: Collection[str] = (),
    noises: Collection[str] = (),
) -> tuple[Curve, ...]:
    """The curves of these figures, with any of the values of each filter; other names are of tables, which have none.

    >>> [curve.name for curve in chosen_curves(["amse_a"], noises=["symmetric"])]
    ['AMSE a=10', 'AMSE a=20', 'AMSE a=30', 'AMSE a=40', 'NNCE']
    """
    wanted = {find_loss(name).name for name in losses}
    return tuple(
        curve
        for name in dict.fromkeys(figures)
        for curve in FIGURES.get(name, ())
        if (not datasets or curve.dataset in datasets)
        and (not noises or {curve.noise, curve.noise.partition(":")[0]} & {*noises})
        and (not losses or curve.loss in wanted)
    )


def planned_runs(
    chosen: Iterable[Cell] | None = None,
    *,
    curves: Iterable[Curve] = (),
    seeds: Sequence[int] = SEEDS,
    precision: str | None = "bf16",
    profile: str = "paper-code",
) -> PaperPlan:
    """The distinct runs of the cells, by default of all: every run with the first seed, then with the second, and so on.

    Within a seed the runs of one loss are neighbours, the paper's losses and their nearest rivals first. A curve is of one run,
    with the first seed; those that no cell has come after it.

    >>> plan = planned_runs(chosen_cells(tables=["ablation"]), seeds=[123, 124])
    >>> len(plan.runs), plan.runs[0].recipe.loss, plan.runs[0].seed, plan.runs[-1].seed
    (24, 'jal-ce', 123, 124)
    """
    chosen = cells() if chosen is None else tuple(chosen)
    shared: dict[str, list[Cell]] = {}
    drawn: dict[str, list[Curve]] = {}
    for cell in chosen:
        if cell.quoted_from is None:
            shared.setdefault(_key(run_facts(cell, profile)), []).append(cell)
    for curve in curves:
        drawn.setdefault(_key(run_facts(curve, profile)), []).append(curve)
    losses = list(dict.fromkeys((*FIRST_LOSSES, *(cell.loss for cell in chosen))))
    datasets = list(dict.fromkeys(cell.dataset for cell in chosen))
    order = sorted(shared, key=lambda key: (losses.index(shared[key][0].loss), datasets.index(shared[key][0].dataset)))
    runs = []
    for seed in dict.fromkeys(seeds):
        runs += [PaperRun(tuple(shared[key]), seed, precision, profile, tuple(drawn.pop(key, ()))) for key in order]
        runs += [PaperRun((), seed, precision, profile, tuple(group)) for group in drawn.values()]
        drawn = {}
    return PaperPlan(runs, tuple(cell for cell in chosen if cell.quoted_from is not None))


T = TypeVar("T")


def shard(runs: Sequence[T], part: int, parts: int) -> list[T]:
    """The runs of one of several machines, counted from 1: every ``parts``-th, so that each has its share of every kind."""
    if not 1 <= part <= parts:
        raise ValueError(f"the part must be in [1, {parts}], got {part}")
    return list(runs[part - 1 :: parts])


def _key(facts: Mapping[str, Any]) -> str:
    return repr(sorted(facts.items()))


@functools.cache
def run_facts(cell: Cell | Curve, profile: str = "paper-code") -> dict[str, Any]:
    """The fields of the recipe behind a cell or a curve, without those of ``NOT_COMPARED``; QuotedError where there is none.

    A cell's noise depends on the data set and the noise's name alone, all else on the data set and the loss: few recipes are
    built.
    """
    if isinstance(cell, Curve):
        return _compared(curve_recipe(cell, profile=profile))
    bare = dataclasses.replace(cell, table="", mean=0.0, std=None, trials=None)
    facts = _facts(dataclasses.replace(bare, noise="clean", rate=0.0), profile)
    noise = _facts(dataclasses.replace(bare, loss="CE", alpha=None, beta=None), profile)["noise"]
    return {**facts, "noise": noise}


def cell_differences(cell: Cell) -> list[Difference]:
    """In what the run behind a cell differs between the paper's text and its code, with the values of both; QuotedError where
    there is none. Counts of labels do not matter to labels from a file.

    >>> (cell,) = chosen_cells(tables=["human"], losses=["gce"], noises=["human:worst"], datasets=["cifar10"])
    >>> [(found.field, found.text, found.code) for found in cell_differences(cell)]
    [('loss.q', 0.9, 0.7), ('clip', None, 5.0), ('l1', 5e-05, 0.0), ('l2', 0.0, 0.0001)]
    """
    code, text = (run_facts(cell, profile) for profile in PROFILES)
    made = any(facts["noise"] != "none" and not facts["noise"].startswith("labels:") for facts in (code, text))
    found = []
    for one in differences(code["dataset"], cell.loss):
        values = [_value(facts, one.field, cell) for facts in (text, code)]
        if values[0] != values[1] and (made or one.field != "noise_rule"):
            found.append(one._replace(text=values[0], code=values[1]))
    return found


def _value(facts: Mapping[str, Any], field: str, cell: Cell) -> Any:
    """Of a field by the name that a difference has; None where it is not the cell's."""
    if field.startswith("noise "):
        return facts["noise"] if field.removeprefix("noise ").partition(":")[0] == cell.noise else None
    return facts["loss_options"].get(field.removeprefix("loss.")) if field.startswith("loss.") else facts.get(field)


@functools.cache
def _facts(cell: Cell, profile: str) -> dict[str, Any]:
    return _compared(recipe_of(cell, profile=profile))


def _compared(recipe: Recipe) -> dict[str, Any]:
    return {name: value for name, value in recipe.as_dict().items() if name not in NOT_COMPARED}


def _known(what: str, wanted: Collection[str], values: Iterable[str]) -> set[str]:
    known = list(dict.fromkeys(values))
    if what == "noise":
        wanted = ["none" if name == "clean" else name for name in wanted]
    for name in wanted:
        if name not in known:
            raise ValueError(
                f"unknown {what} {name!r}; {did_you_mean(str(name).lower(), known)}the paper has {', '.join(known)}"
            )
    return set(wanted)


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
    return "\n".join([*aligned(lines, range(2, len(lines[0]))), "", *_plan_notes(planned, costs, precision)])


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
