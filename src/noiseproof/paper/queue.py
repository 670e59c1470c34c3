"""The runs behind the published numbers, each once, in the order in which they are worth running."""

from __future__ import annotations

import dataclasses
import difflib
import functools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from noiseproof.losses import find_loss
from noiseproof.paper.cells import Cell, cells
from noiseproof.paper.fidelity import PROFILES, Difference
from noiseproof.paper.recipes import SEEDS, differences, recipe_of
from noiseproof.train import Recipe, override

__all__ = ["NOT_COMPARED", "Plan", "PlannedRun", "cell_differences", "chosen_cells", "planned_runs", "run_facts"]

FIRST = ("JAL-CE", "JAL-FL", "CE", "NCE+RCE", "NCE+AGCE", "ANL-CE")
"""The paper's own losses and their nearest rivals; the others follow in the order of the tables."""
NOT_COMPARED = ("seed", "precision", "confidence_epochs")
"""Fields of a recipe in which the runs of one cell may differ."""


@dataclass(frozen=True)
class PlannedRun:
    """One run and all cells that it counts for."""

    cells: tuple[Cell, ...]
    seed: int
    precision: str | None
    """None keeps the recipe's own"""
    profile: str

    @property
    def facts(self) -> dict[str, Any]:
        """The recipe's fields but the confidence epochs, without building it."""
        own = {} if self.precision is not None else {"precision": self.recipe.precision}
        return {"precision": self.precision, **own, "seed": self.seed, **run_facts(self.cells[0], self.profile)}

    @functools.cached_property
    def recipe(self) -> Recipe:
        """Built when it is asked for: checking a thousand recipes takes seconds."""
        found = recipe_of(self.cells[0], self.seed, self.profile)
        return found if self.precision is None else override(found, {"precision": self.precision})


class Plan(NamedTuple):
    """What there is to run, and the cells that have no run behind them."""

    runs: list[PlannedRun]
    quoted: tuple[Cell, ...]


def chosen_cells(
    *,
    tables: Collection[str] = (),
    datasets: Collection[str] = (),
    losses: Collection[str] = (),
    noises: Collection[str] = (),
) -> tuple[Cell, ...]:
    """The cells with any of the values of each filter; an empty one keeps all. A noise is ``symmetric:0.8`` or ``symmetric``.

    >>> [cell.loss for cell in chosen_cells(tables=["human"], losses=["jal-ce", "CE"], noises=["human:worst"])]
    ['CE', 'JAL-CE']
    """
    everything = cells()
    wanted_tables = _known("table", tables, [cell.table for cell in everything])
    wanted_datasets = _known("data set", datasets, [cell.dataset for cell in everything])
    wanted_noises = _known("noise", noises, [name for cell in everything for name in (cell.noise, cell.spec)])
    named = {cell.loss: find_loss(cell.loss).name for cell in {cell.loss: cell for cell in everything}.values()}
    wanted_losses = {find_loss(name).name for name in losses}
    for name in sorted(wanted_losses - set(named.values())):
        raise ValueError(f"the paper has no numbers of {name!r}; it has those of {', '.join(named)}")
    return tuple(
        cell
        for cell in everything
        if (not tables or cell.table in wanted_tables)
        and (not datasets or cell.dataset in wanted_datasets)
        and (not noises or wanted_noises & {cell.noise, cell.spec})
        and (not losses or named[cell.loss] in wanted_losses)
    )


def planned_runs(
    chosen: Iterable[Cell] | None = None,
    *,
    seeds: Sequence[int] = SEEDS,
    precision: str | None = "bf16",
    profile: str = "paper-code",
) -> Plan:
    """The distinct runs of the cells, by default of all: every run with the first seed, then with the second, and so on.

    Within a seed the runs of one loss are neighbours, the paper's losses and their nearest rivals first.

    >>> plan = planned_runs(chosen_cells(tables=["ablation"]), seeds=[123, 124])
    >>> len(plan.runs), plan.runs[0].recipe.loss, plan.runs[0].seed, plan.runs[-1].seed
    (24, 'jal-ce', 123, 124)
    """
    chosen = cells() if chosen is None else tuple(chosen)
    shared: dict[str, list[Cell]] = {}
    for cell in chosen:
        if cell.quoted_from is None:
            shared.setdefault(repr(sorted(run_facts(cell, profile).items())), []).append(cell)
    losses = list(dict.fromkeys((*FIRST, *(cell.loss for cell in chosen))))
    datasets = list(dict.fromkeys(cell.dataset for cell in chosen))
    groups = sorted(shared.values(), key=lambda group: (losses.index(group[0].loss), datasets.index(group[0].dataset)))
    runs = [PlannedRun(tuple(group), seed, precision, profile) for seed in dict.fromkeys(seeds) for group in groups]
    return Plan(runs, tuple(cell for cell in chosen if cell.quoted_from is not None))


@functools.cache
def run_facts(cell: Cell, profile: str = "paper-code") -> dict[str, Any]:
    """The fields of the recipe behind a cell, without those of ``NOT_COMPARED``; QuotedError where there is none.

    The noise depends on the data set and the noise's name alone, all else on the data set and the loss: few recipes are built.
    """
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
    facts = recipe_of(cell, profile=profile).as_dict()
    return {name: value for name, value in facts.items() if name not in NOT_COMPARED}


def _known(what: str, wanted: Collection[str], values: Iterable[str]) -> set[str]:
    known = list(dict.fromkeys(values))
    if what == "noise":
        wanted = ["none" if name == "clean" else name for name in wanted]
    for name in wanted:
        if name not in known:
            near = difflib.get_close_matches(str(name).lower(), known, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise ValueError(f"unknown {what} {name!r}; {hint}the paper has {', '.join(known)}")
    return set(wanted)
