"""``noiseproof reproduce``: the runs behind the paper's tables and figures, and their results beside the paper's."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noiseproof.cli.output import echo, fail
from noiseproof.cli.stopping import sigterm_as_ctrl_c

if TYPE_CHECKING:
    from noiseproof.cli.queue_view import Keeper
    from noiseproof.cli.reproduce_options import Local
    from noiseproof.paper import Cell
    from noiseproof.paper.plan import PaperRun
    from noiseproof.train import RunStore, StoredRun
    from noiseproof.train.ray_executor import RayExecutor
    from noiseproof.train.run_list import PlannedRun, RunCosts

__all__ = ["reproduce"]

Tables = Annotated[
    str | None,
    typer.Argument(
        metavar="TABLE",
        help="sym_asym, instance, human, ablation, agce_mae, agce_mae_all or real_world, or a figure: histogram, tsne, amse_a "
        "or amse_q; several with commas; all tables but real_world if left out.",
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
Figures = Annotated[Path, typer.Option(metavar="DIR", help="Where the figures that are named are drawn, as SVG and PNG.")]
OnlyPlan = Annotated[bool, typer.Option("--plan", help="Say what would run and how long it would take, and stop.")]
Format = Annotated[str, typer.Option("--format", help="table, markdown, latex, json or csv.")]
Minutes = Annotated[float | None, typer.Option(help="Start nothing that would not end in this time.", min=0.0)]
Retry = Annotated[bool, typer.Option("--retry-diverged", help="Run those again that diverged.")]
Shard = Annotated[
    str | None, typer.Option("--shard", metavar="PART/PARTS", help="One of several machines' share of the runs: 2/8.")
]
AtOnce = Annotated[int | None, typer.Option(help="Runs side by side on a GPU, by default as many as fill an H200.", min=1)]
Precision = Annotated[str | None, typer.Option(help="bf16, tf32 or float32; by default bf16, on a CPU float32.")]
Profile = Annotated[str, typer.Option(help="paper-code, or paper-text where the two differ.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")]
Engine = Annotated[str, typer.Option(help="local, or ray for the machines of a Ray cluster.")]
Address = Annotated[str | None, typer.Option(help="Of a Ray cluster, or auto; without it Ray starts on this machine.")]


@dataclass
class Work:
    """All that is known before anything runs."""

    cells: tuple[Cell, ...]
    records: list[dict[str, Any]]
    store: RunStore
    speeds: RunCosts
    precision: str
    profile: str
    planned: list[PlannedRun[PaperRun]]

    @property
    def missing(self) -> list[PlannedRun[PaperRun]]:
        from noiseproof.train.run_list import ENDED

        return [run for run in self.planned if run.status not in ENDED]


def reproduce(
    tables: Tables = None,
    dataset: Dataset = None,
    loss: Loss = None,
    noise: Noise = None,
    seeds: Seeds = "3",
    data: Data = None,
    out: Out = Path("runs"),
    records: Records = None,
    figures: Figures = Path("figures"),
    plan: OnlyPlan = False,
    how: Format = "table",
    minutes: Minutes = None,
    retry: Retry = False,
    share: Shard = None,
    at_once: AtOnce = None,
    precision: Precision = None,
    profile: Profile = "paper-code",
    device: Device = "auto",
    engine: Engine = "local",
    address: Address = None,
) -> None:
    """Run what is behind the paper's tables and figures, and show the results beside the paper's.

    What is finished or diverged, in --out or in --records, is not run again: stop it at any time, the same command goes on.
    Without --data it only shows what there is.
    """
    from noiseproof.cli.queue_view import Keeper, plan_text, say
    from noiseproof.cli.reproduce_figures import draw_asked
    from noiseproof.cli.reproduce_options import (
        chosen_of,
        data_folder,
        existing_files,
        precision_for,
        seeds_of,
        share_of,
        where_to_run,
    )
    from noiseproof.paper.plan import planned_runs
    from noiseproof.paper.tables import formatted
    from noiseproof.report import read_records
    from noiseproof.train import RunStore
    from noiseproof.train.run_list import ENDED, shard

    files = records or []
    with _bad_arguments():
        formatted((), how)
        cells, curves = chosen_of(tables, dataset, loss, noise)
        place = data_folder(data, (*cells, *curves))
        where = where_to_run(engine, address, device, to_run=place is not None and not plan)
        found = read_records(*existing_files(files, to_run=place is not None))
        chosen = precision_for(precision, where.device, place, found)
        runs = planned_runs(cells, curves=curves, seeds=seeds_of(seeds), precision=chosen, profile=profile).runs
        work = _work(cells, found, RunStore(out), where, chosen, profile, shard(runs, *share_of(share)), retry)
    if plan:
        echo(plan_text(work.planned, work.speeds, work.precision))
        return
    well, keeper = True, Keeper(files[0], work.store) if files and place is not None else None
    if keeper is not None:  # runs that ended when an earlier call was killed
        with _bad_arguments():
            keeper.add_folders(run.stored.folder for run in work.planned if run.stored and run.status in ENDED)
    if place is not None and (todo := _with_data(work, place)):
        well = _run(work, todo, place, where, keeper, at_once, minutes)
    elif work.missing and place is None:
        say(_way_out(work))
    if work.cells:
        _show(work, how)
    stored = [run for run in work.store.runs() if run.status in ENDED]
    now = _planned([run.job for run in work.planned], work.records, stored, work.speeds)
    draw_asked(now, work.records, figures, place, work.precision, work.profile)
    if not well:
        raise typer.Exit(1)


@contextmanager
def _bad_arguments() -> Iterator[None]:
    try:
        yield
    except (ValueError, OSError, ImportError) as error:
        fail(error)


def _work(
    cells: tuple[Cell, ...],
    records: list[dict[str, Any]],
    store: RunStore,
    where: Local | RayExecutor,
    precision: str,
    profile: str,
    runs: list[PaperRun],
    retry: bool,
) -> Work:
    from noiseproof.cli.queue_view import say
    from noiseproof.paper.plan import H200_EPOCH_SECONDS
    from noiseproof.train.run_list import RunCosts

    stored = list(store.runs())
    for run in stored:
        if run.status == "unreadable":
            say(f"{run.facts['message']}; it does not count")
    here: dict[tuple[str, ...], float] = {}
    if where.device == "cuda":
        here = {(where.machine, *kind, "bf16"): seconds for kind, seconds in H200_EPOCH_SECONDS.items()}
    speeds = RunCosts(where.machine, here)
    return Work(cells, records, store, speeds, precision, profile, _planned(runs, records, stored, speeds, retry))


def _planned(
    runs: list[PaperRun], records: list[dict[str, Any]], stored: list[StoredRun], speeds: RunCosts, retry: bool = False
) -> list[PlannedRun[PaperRun]]:
    """The runs with what is known of them; of one whose weights are wanted, a record is not enough."""
    from noiseproof.train import Record, StoredRun
    from noiseproof.train.run_list import RunCosts, plan_runs

    known = [*(StoredRun("", Record.status_in(facts), facts) for facts in records), *stored]
    in_folders = iter(plan_runs([run for run in runs if run.needs_weights], stored, RunCosts(speeds.machine), retry=retry))
    return [next(in_folders) if run.job.needs_weights else run for run in plan_runs(runs, known, speeds, retry=retry)]


def _with_data(work: Work, place: Path) -> list[PlannedRun[PaperRun]]:
    """The missing runs whose data are there; one line for each data set that is not."""
    from noiseproof.cli.queue_view import say
    from noiseproof.cli.reproduce_options import why_absent

    needed = dict.fromkeys(run.facts["dataset"] for run in work.missing)
    absent = {dataset: why for dataset in needed if (why := why_absent(dataset, place)) is not None}
    if absent and len(absent) == len(needed):
        fail("; ".join(absent.values()))
    for why in absent.values():
        say(f"left out: {why}")
    return [run for run in work.missing if run.facts["dataset"] not in absent]


def _way_out(work: Work) -> str:
    """How to run what is missing."""
    from noiseproof.cli.reproduce_options import why_absent
    from noiseproof.data import data_root

    place = data_root()
    there = any(why_absent(run.facts["dataset"], place) is None for run in work.missing)
    given = shlex.quote(str(place)) if there else "DIR"
    return (
        f"{len(work.missing)} of {len(work.planned)} runs are missing: the same command with --data {given} runs them, "
        "with --plan it says how long that takes"
    )


def _run(
    work: Work,
    todo: list[PlannedRun[PaperRun]],
    place: Path,
    where: Local | RayExecutor,
    keeper: Keeper | None,
    at_once: int | None,
    minutes: float | None,
) -> bool:
    """Whether no run failed, and the records have all that ended."""
    from noiseproof.cli.queue_view import Display, say
    from noiseproof.cli.reproduce_options import Local
    from noiseproof.train.ray_executor import RayExecutor
    from noiseproof.train.run_list import train_runs

    display = Display(todo, work.speeds, keeper)
    with sigterm_as_ctrl_c() as stopped:
        try:
            with display:
                if isinstance(where, Local):
                    tally = train_runs(
                        todo, work.store, work.speeds, data=place, options=where.options, at_once=at_once, minutes=minutes,
                        callback=display.callback, on_outcome=display.ended,
                    )  # fmt: skip
                else:
                    tally = where.run(
                        todo, work.store, work.speeds, data=place, at_once=at_once, minutes=minutes, on_outcome=display.ended
                    )
                    where.close()
        except KeyboardInterrupt:
            say(f"stopped: {display.summary()}")
            if isinstance(where, RayExecutor):
                where.close()
            display.lock.acquire(timeout=2.0)  # so that no file is left half written
            os._exit(stopped.status)  # a thread that compiles cannot be interrupted
    if tally.disk_error is not None:
        say(f"{len(tally.not_started)} runs were not started: {tally.disk_error}; make room there, or choose another --out")
    elif tally.not_started:
        say(f"{len(tally.not_started)} runs would not have ended in {minutes:g} minutes; {display.summary()}")
    if tally.busy:
        say(f"{len(tally.busy)} of {len(todo)} runs are left to other processes; {display.summary()}")
    if tally.failed:
        say(f"{len(tally.failed)} of {len(todo)} runs failed or diverged; {display.summary()}")
    if display.not_added:
        say(f"{display.not_added} results are in {work.store.root} and not in the records; the same command adds them")
    return not tally.failed and not display.not_added


def _show(work: Work, how: str) -> None:
    from noiseproof.cli.queue_view import say
    from noiseproof.paper import PROFILES
    from noiseproof.paper.measured import join
    from noiseproof.paper.tables import formatted
    from noiseproof.train.run_list import ENDED

    stored = [run.facts for run in work.store.runs() if run.status in ENDED]
    records = [*work.records, *stored]
    joined = join(work.cells, records, precision=work.precision, profile=work.profile)
    for profile in PROFILES:
        others = join(work.cells, joined.unmatched, precision=work.precision, profile=profile)
        if count := len(joined.unmatched) - len(others.unmatched):
            say(f"{count} more run{'s' * (count > 1)} of these numbers: --profile {profile} shows them")
    echo(formatted(joined.results, how).rstrip("\n"))
