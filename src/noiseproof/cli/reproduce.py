"""``noiseproof reproduce``: train what is behind the paper's tables and figures, and compare the results with the paper's."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from noiseproof.cli.output import Console, echo, fail
from noiseproof.cli.usage import sigterm_as_ctrl_c

if TYPE_CHECKING:
    from noiseproof.paper.plan import PaperRun
    from noiseproof.paper.reproduction import Reproduction
    from noiseproof.train import Callback
    from noiseproof.train.run_list import AnyOutcome, Executor, PlannedRun, RunListOutcome

__all__ = ["reproduce"]

MAX_SEEDS = 100

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
    str | None, typer.Option(metavar="DIR", help="Folder of data sets, or $NOISEPROOF_DATA; without either nothing is trained.")
]
Out = Annotated[Path, typer.Option(help="Folder of runs; each has its own inside.")]
Records = Annotated[
    list[Path] | None,
    typer.Option(metavar="FILE", help="Results of runs as JSON lines; may be repeated. New ones are added to the first."),
]
Figures = Annotated[Path, typer.Option(metavar="DIR", help="Where the figures that are named are drawn, as SVG and PNG.")]
Page = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Also write all results with the paper's numbers as one HTML file."),
]
OnlyPlan = Annotated[bool, typer.Option("--plan", help="Print what would be trained and how long it would take, and stop.")]
Format = Annotated[str, typer.Option("--format", help="table, markdown, latex, json or csv.")]
Minutes = Annotated[float | None, typer.Option(help="Start nothing that would not end in this time.", min=0.0)]
Retry = Annotated[bool, typer.Option("--retry-diverged", help="Train those again that diverged.")]
Shard = Annotated[
    str | None, typer.Option("--shard", metavar="PART/PARTS", help="One of several machines' share of the runs: 2/8.")
]
AtOnce = Annotated[int | None, typer.Option(help="Concurrent runs on a GPU, by default as many as fill an H200.", min=1)]
Precision = Annotated[str | None, typer.Option(help="bf16, tf32 or float32; by default bf16, on a CPU float32.")]
Profile = Annotated[str, typer.Option(help="paper-code, or paper-text where the two differ.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")]
Engine = Annotated[str, typer.Option(help="local, or ray for the machines of a Ray cluster.")]
Address = Annotated[str | None, typer.Option(help="Of a Ray cluster, or auto; without it Ray starts on this machine.")]


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
    page: Page = None,
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
    """Train what is behind the paper's tables and figures, and print the results with the paper's.

    What has finished or diverged, in --out or in --records, is not trained again: stop it at any time, the same command
    resumes it. Without --data it only prints what there is.
    """
    from noiseproof.paper import reproduction
    from noiseproof.paper.tables import check_format

    with _bad_arguments():
        check_format(how)
        found = reproduction.reproduce(
            tables=_names(tables), datasets=_names(dataset), losses=_names(loss), noises=_names(noise),
            seeds=_parsed_seeds(seeds), data=data, out=out, records=records or (), precision=_checked_precision(precision),
            profile=profile, part=_parsed_shard(share), retry_diverged=retry, train=False,
            executor=lambda to_train: _executor(engine, address, device, to_train and not plan),
        )  # fmt: skip
    if plan:
        _print_notes(found)
        echo(found.plan_text())
        return
    with _bad_arguments():
        found.record_ended_runs()
        todo = found.with_data()
    _print_notes(found)
    well = _train(found, todo, at_once, minutes) if todo else True
    if found.missing and found.data is None:
        say(_way_out(found))
    if found.cells:
        for name, count in found.runs_of_other_profiles().items():
            say(f"{count} more run{'s' * (count > 1)} of these numbers: --profile {name} shows them")
        echo(found.formatted(how).rstrip("\n"))
    _write(found, figures, page)
    if not well:
        raise typer.Exit(1)


@contextmanager
def _bad_arguments() -> Iterator[None]:
    try:
        yield
    except (ValueError, OSError, ImportError) as error:
        fail(error)


def say(line: str) -> None:
    """A line on stderr."""
    Console(stderr=True).print(escape(line), highlight=False, soft_wrap=True)


def _print_notes(found: Reproduction) -> None:
    for note in found.notes:
        say(note)


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def _parsed_seeds(text: str) -> list[int]:
    """The paper's first seeds, as many as a number says, or those of a list."""
    from noiseproof.paper import SEEDS

    parts = _names(text)
    if not parts or not all(part.isdecimal() for part in parts):
        raise ValueError(f"--seeds is a number of seeds, such as 3, or a list of them, such as 123,130; got {text!r}")
    if "," in text:
        if beyond := [part for part in parts if int(part) >= 2**32]:
            raise ValueError(f"the seeds of --seeds must be in [0, 2^32), got {beyond[0]}")
        return [int(part) for part in parts]
    if not 1 <= int(text) <= MAX_SEEDS:
        raise ValueError(f"--seeds {text} means that many seeds, at most {MAX_SEEDS}; the seed {text} alone is '{text},'")
    return [SEEDS[0] + i for i in range(int(text))]


def _parsed_shard(text: str | None) -> tuple[int, int]:
    """The part of the runs, counted from 1, and how many parts there are."""
    part, slash, parts = (text or "1/1").partition("/")
    if not (slash and part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        raise ValueError(f"--shard is PART/PARTS, the part counted from 1, such as 2/8; got {text!r}")
    return int(part), int(parts)


def _checked_precision(text: str | None) -> str | None:
    from noiseproof.paper.reproduction import PRECISIONS

    if text is not None and text not in PRECISIONS:
        raise ValueError(f"--precision must be one of {', '.join(PRECISIONS)}, got {text!r}")
    return text


def _executor(engine: str, address: str | None, device: str, to_train: bool) -> Executor:
    """This machine, or a cluster, which is not started for nothing."""
    from noiseproof.train import RunOptions
    from noiseproof.train.plan import device_named
    from noiseproof.train.run_list import LocalExecutor

    if engine not in ("local", "ray") or (address and engine != "ray"):
        raise ValueError(f"--engine must be local or ray, and --address is for ray; got {engine!r} and {address!r}")
    if engine == "local" or not to_train:
        return LocalExecutor(RunOptions(device_named(device)))
    from noiseproof.train.ray_executor import RayExecutor

    return RayExecutor(address, device)


def _way_out(found: Reproduction) -> str:
    """How to train what is missing."""
    from noiseproof.data import data_root
    from noiseproof.paper.reproduction import why_absent

    place = data_root()
    there = any(why_absent(run.facts["dataset"], place) is None for run in found.missing)
    given = shlex.quote(str(place)) if there else "DIR"
    return (
        f"{len(found.missing)} of {len(found.runs)} runs are missing: the same command with --data {given} runs them, "
        "with --plan it says how long that takes"
    )


def _train(found: Reproduction, todo: list[PlannedRun[PaperRun]], at_once: int | None, minutes: float | None) -> bool:
    """Whether no run failed, and the records have all that ended."""
    display = Display(todo, found)
    with sigterm_as_ctrl_c() as stopped:
        try:
            with display:
                outcome = found.train(
                    todo, at_once=at_once, minutes=minutes, callback=display.callback, on_run_end=display.ended,
                    on_record_error=display.not_recorded,
                )  # fmt: skip
                found.executor.close()
        except KeyboardInterrupt:
            say(f"stopped: {display.summary()}")
            found.executor.close()
            found.lock.acquire(timeout=2.0)  # so that no file is left half written
            os._exit(stopped.status)  # a thread that compiles cannot be interrupted
    _print_outcome(found, outcome, display, minutes)
    return not outcome.failed and not found.not_recorded


def _print_outcome(found: Reproduction, outcome: RunListOutcome[PaperRun], display: Display, minutes: float | None) -> None:
    total = len(display.todo)
    if outcome.disk_error is not None:
        say(f"{len(outcome.not_started)} runs were not started: {outcome.disk_error}; free some space, or choose another --out")
    elif outcome.not_started:
        say(f"{len(outcome.not_started)} runs would not have ended in {minutes:g} minutes; {display.summary()}")
    if outcome.busy:
        say(f"{len(outcome.busy)} of {total} runs are left to other processes; {display.summary()}")
    if outcome.failed:
        say(f"{len(outcome.failed)} of {total} runs failed or diverged; {display.summary()}")
    if found.not_recorded:
        say(f"{found.not_recorded} results are in {found.store.root} and not in the records; the same command adds them")


def _write(found: Reproduction, figures: Path, page: Path | None) -> None:
    """The figures that were asked for, and the page."""
    try:
        for drawn in found.draw_figures(figures):
            total = len({curve for run in found.runs for curve in run.job.curves if curve.figure == drawn.name})
            without = [f"{len(drawn.missing)} of its {total} runs are missing"] if drawn.missing else []
            say(f"{drawn.name}: {', '.join([*map(str, drawn.files), *without])}")
        if page is not None:
            say(f"{found.save_page(page)} bytes in {page}")
    except ImportError as error:
        fail(f"{error}; pip install '.[lab]' in noiseproof's repository brings it")
    except (ValueError, TypeError, OSError) as error:
        fail(error)


class Display:
    """A line on stderr for each run that ends, and on a terminal a bar over all of them."""

    def __init__(self, todo: list[PlannedRun[PaperRun]], found: Reproduction) -> None:
        from rich.progress import BarColumn, Progress, TextColumn

        from noiseproof.paper.plan import estimated_seconds

        self.todo, self.found = todo, found
        self.console, self.lock, self.start = Console(stderr=True), found.lock, time.monotonic()
        estimates = [estimated_seconds(run) for run in todo]
        known = [seconds for seconds in estimates if seconds is not None]
        weights = known if len(known) == len(todo) else [1.0] * len(todo)
        self.weights = {id(run): weight for run, weight in zip(todo, weights, strict=True)}
        self.shares: dict[int, float] = {}
        self.finished = self.diverged = 0
        self.reasons: set[str] = set()
        columns = (TextColumn("{task.description}"), BarColumn(None), TextColumn("{task.fields[left]}"))
        self.bar = Progress(*columns, console=self.console, expand=True, transient=True, disable=not self.console.is_terminal)
        self.task = self.bar.add_task("", total=sum(weights), left="")

    def __enter__(self) -> Display:
        from noiseproof.paper.plan import about

        many = f"{len(self.todo)} runs" if len(self.todo) > 1 else "1 run"
        known = [seconds for run in self.todo if (seconds := self.found.costs.seconds(run.facts, run.done)) is not None]
        self._print(f"{many} to do" + (f", about {about(sum(known))}" if len(known) == len(self.todo) else ""))
        self._update_bar()
        self.bar.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.bar.stop()

    def callback(self, run: PlannedRun[PaperRun]) -> Callback:
        """Follows a run, for the bar."""
        from noiseproof.train import Callback, Epoch, Record

        display = self

        class Share(Callback):
            def on_train_begin(self, record: Record, epochs_done: int) -> None:
                display.reached(run, epochs_done / record.recipe["epochs"])

            def on_epoch_end(self, facts: Epoch) -> None:
                display.reached(run, min(facts.epoch / run.facts["epochs"], 0.999))

        return Share()

    def reached(self, run: PlannedRun[PaperRun], share: float) -> None:
        """How much of a run is done."""
        with self.lock:
            self.shares[id(run)] = share
            self._update_bar()

    def ended(self, run: PlannedRun[PaperRun], outcome: AnyOutcome) -> None:
        """A run finished, with its record, or failed."""
        from noiseproof.cli.output import duration
        from noiseproof.train import DivergenceError, Outcome
        from noiseproof.train.runs import BusyError

        title = run.job.title
        if isinstance(outcome, BusyError):
            self._print(f"{title}  another process is at work on it")
        elif isinstance(outcome, Exception):
            diverged, why = isinstance(outcome, DivergenceError), str(outcome) or repr(outcome)
            self.diverged += diverged
            why = why if why not in self.reasons else "for the same reason"
            self.reasons.add(str(outcome) or repr(outcome))
            self._print(f"{title}  {'diverged' if diverged else 'failed'}: {why}")
        else:
            self.finished += 1
            facts = outcome.record.as_dict() if isinstance(outcome, Outcome) else outcome
            accuracy, seconds = facts["result"].get("test_accuracy"), sum(facts["seconds"].values())
            measured = "not tested" if accuracy is None else f"{100 * accuracy:5.2f} %"
            self._print(f"{title}  {measured}  {run.job.published:19}  {duration(seconds)}")
        self.reached(run, 1.0)

    def not_recorded(self, error: Exception) -> None:
        """A result could not be added to the records."""
        self._print(f"not added to the records: {error}")

    def summary(self) -> str:
        """What is kept, and what the same command will do."""
        parts = [f"{self.finished} of {len(self.todo)} runs finished and are kept"]
        if self.diverged:
            parts.append(f"{self.diverged} diverged, which --retry-diverged runs again")
        if self.finished + self.diverged < len(self.todo):
            parts.append("the same command runs the others, from their last checkpoints where they have one")
        return "; ".join(parts)

    def _print(self, line: str) -> None:
        self.console.print(escape(line), highlight=False, soft_wrap=True)

    def _update_bar(self) -> None:
        from noiseproof.cli.output import duration

        done, total = sum(share * self.weights[run] for run, share in self.shares.items()), sum(self.weights.values())
        ended = sum(share == 1.0 for share in self.shares.values())
        text = f"{duration((time.monotonic() - self.start) / done * (total - done))} left" if done else ""
        self.bar.update(self.task, completed=done, description=f"{ended}/{len(self.todo)}", left=text)
