"""What ``noiseproof reproduce`` does: its options as text, a line and a bar while it trains, and what it writes."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from noiseproof.data import data_root
from noiseproof.io.console import Console, ProgressBar, Stopped
from noiseproof.io.files import BusyError
from noiseproof.io.text import duration
from noiseproof.paper.plan import PaperRun, about
from noiseproof.paper.recipes import SEEDS
from noiseproof.paper.reproduction import PRECISIONS, Reproduction, reproduce, why_absent
from noiseproof.paper.run_list import PlannedRun, RunListOutcome
from noiseproof.paper.tables import check_format
from noiseproof.train import Callback, DivergenceError, Epoch, Outcome, Record, RunOptions
from noiseproof.train.executors import AnyOutcome, Executor, LocalExecutor, RayExecutor
from noiseproof.train.plan import device_named

MAX_SEEDS = 100


def planned(
    *,
    tables: str | None,
    datasets: str | None,
    losses: str | None,
    noises: str | None,
    seeds: str,
    shard: str | None,
    precision: str | None,
    how: str,
    engine: str,
    address: str | None,
    device: str,
    to_train: bool,
    **options: Any,
) -> Reproduction:
    """The runs that these options choose, none of them trained yet; the others are those of :func:`reproduce`."""
    check_format(how)
    return reproduce(
        tables=_names(tables),
        datasets=_names(datasets),
        losses=_names(losses),
        noises=_names(noises),
        seeds=_parsed_seeds(seeds),
        precision=_checked_precision(precision),
        part=_parsed_shard(shard),
        train=False,
        executor=lambda has_data: _executor(engine, address, device, has_data and to_train),
        **options,
    )


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def _parsed_seeds(text: str) -> list[int]:
    """The paper's first seeds, as many as a number says, or those of a list."""
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
    if text is not None and text not in PRECISIONS:
        raise ValueError(f"--precision must be one of {', '.join(PRECISIONS)}, got {text!r}")
    return text


def _executor(engine: str, address: str | None, device: str, to_train: bool) -> Executor:
    """This machine, or a cluster, which is not started for nothing."""
    if engine not in ("local", "ray") or (address and engine != "ray"):
        raise ValueError(f"--engine must be local or ray, and --address is for ray; got {engine!r} and {address!r}")
    if engine == "local" or not to_train:
        return LocalExecutor(RunOptions(device_named(device)))
    return RayExecutor(address, device)


def what_is_missing(found: Reproduction) -> Iterator[str]:
    """How to train what is missing, and how many runs are of another profile."""
    if found.missing and found.data is None:
        place = data_root()
        there = any(why_absent(run.facts["dataset"], place) is None for run in found.missing)
        given = shlex.quote(str(place)) if there else "DIR"
        yield (
            f"{len(found.missing)} of {len(found.runs)} runs are missing: the same command with --data {given} runs them, "
            "with --plan it says how long that takes"
        )
    if found.cells:
        for name, count in found.runs_of_other_profiles().items():
            yield f"{count} more run{'s' * (count > 1)} of these numbers: --profile {name} shows them"


def written(found: Reproduction, figures: Path, page: Path | None) -> Iterator[str]:
    """Draw the figures that were asked for, and write the page; a line for each."""
    for drawn in found.draw_figures(figures):
        total = len({curve for run in found.runs for curve in run.job.curves if curve.figure == drawn.name})
        without = [f"{len(drawn.missing)} of its {total} runs are missing"] if drawn.missing else []
        yield f"{drawn.name}: {', '.join([*map(str, drawn.files), *without])}"
    if page is not None:
        yield f"{found.save_page(page)} bytes in {page}"


def _outcome_lines(
    found: Reproduction, outcome: RunListOutcome[PaperRun], total: int, summary: str, minutes: float | None
) -> Iterator[str]:
    """What did not end as it should."""
    if outcome.disk_error is not None:
        way = "free some space, or choose another --out"
        yield f"{len(outcome.not_started)} runs were not started: {outcome.disk_error}; {way}"
    elif outcome.not_started:
        yield f"{len(outcome.not_started)} runs would not have ended in {minutes:g} minutes; {summary}"
    if outcome.busy:
        yield f"{len(outcome.busy)} of {total} runs are left to other processes; {summary}"
    if outcome.failed:
        yield f"{len(outcome.failed)} of {total} runs failed or diverged; {summary}"
    if found.not_recorded:
        yield f"{found.not_recorded} results are in {found.store.root} and not in the records; the same command adds them"


class Display(ProgressBar):
    """Lines on a console, one for each run that ends, and on a terminal a bar over all of them."""

    def __init__(self, shown: Console) -> None:
        super().__init__(shown)
        self.shares: dict[int, float] = {}
        self.finished = self.diverged = 0
        self.reasons: set[str] = set()

    def say(self, *lines: str) -> None:
        """Print lines as they are."""
        for line in lines:
            self.line(line)

    def train(
        self,
        todo: list[PlannedRun[PaperRun]],
        found: Reproduction,
        at_once: int | None,
        minutes: float | None,
        stopped: Stopped,
    ) -> bool:
        """Train these runs; whether none failed, and the records have all that ended."""
        self.todo, self.found = todo, found
        estimates = [found.costs.estimate(run) for run in todo]
        known = [seconds for seconds in estimates if seconds is not None]
        weights = known if len(known) == len(todo) else [1.0] * len(todo)
        self.weights = {id(run): weight for run, weight in zip(todo, weights, strict=True)}
        try:
            with self:
                outcome = found.train(
                    self.todo, at_once=at_once, minutes=minutes, callback=self.callback, on_run_end=self.ended,
                    on_record_error=lambda error: self.say(f"not added to the records: {error}"),
                )  # fmt: skip
                found.executor.close()
        except KeyboardInterrupt:
            self.say(f"stopped: {self.summary()}")
            found.executor.close()
            found.lock.acquire(timeout=2.0)  # so that no file is left half written
            os._exit(stopped.status)  # a thread that compiles cannot be interrupted
        self.say(*_outcome_lines(found, outcome, len(self.todo), self.summary(), minutes))
        return not outcome.failed and not found.not_recorded

    def __enter__(self) -> Self:
        many = f"{len(self.todo)} runs" if len(self.todo) > 1 else "1 run"
        known = [seconds for run in self.todo if (seconds := self.found.costs.seconds(run)) is not None]
        self.say(f"{many} to do" + (f", about {about(sum(known))}" if len(known) == len(self.todo) else ""))
        self.begin()
        self._update_bar()
        return super().__enter__()

    def callback(self, run: PlannedRun[PaperRun]) -> Callback:
        """Follows a run, for the bar."""
        display = self

        class Share(Callback):
            def on_train_begin(self, record: Record, epochs_done: int) -> None:
                display.reached(run, epochs_done / record.recipe["epochs"])

            def on_epoch_end(self, facts: Epoch) -> None:
                display.reached(run, min(facts.epoch / run.facts["epochs"], 0.999))

        return Share()

    def reached(self, run: PlannedRun[PaperRun], share: float) -> None:
        """How much of a run is done."""
        with self.found.lock:
            self.shares[id(run)] = share
            self._update_bar()

    def ended(self, run: PlannedRun[PaperRun], outcome: AnyOutcome) -> None:
        """A run finished, with its record, or failed."""
        title = run.job.title
        if isinstance(outcome, BusyError):
            self.say(f"{title}  another process is at work on it")
        elif isinstance(outcome, Exception):
            diverged, why = isinstance(outcome, DivergenceError), str(outcome) or repr(outcome)
            self.diverged += diverged
            why = why if why not in self.reasons else "for the same reason"
            self.reasons.add(str(outcome) or repr(outcome))
            self.say(f"{title}  {'diverged' if diverged else 'failed'}: {why}")
        else:
            self.finished += 1
            facts = outcome.record.as_dict() if isinstance(outcome, Outcome) else outcome
            accuracy, seconds = facts["result"].get("test_accuracy"), sum(facts["seconds"].values())
            measured = "not tested" if accuracy is None else f"{100 * accuracy:5.2f} %"
            self.say(f"{title}  {measured}  {run.job.published:19}  {duration(seconds)}")
        self.reached(run, 1.0)

    def summary(self) -> str:
        """What is kept, and what the same command will do."""
        parts = [f"{self.finished} of {len(self.todo)} runs finished and are kept"]
        if self.diverged:
            parts.append(f"{self.diverged} diverged, which --retry-diverged runs again")
        if self.finished + self.diverged < len(self.todo):
            parts.append("the same command runs the others, from their last checkpoints where they have one")
        return "; ".join(parts)

    def _update_bar(self) -> None:
        done, total = sum(share * self.weights[run] for run, share in self.shares.items()), sum(self.weights.values())
        ended = sum(share == 1.0 for share in self.shares.values())
        self.update(f"{ended}/{len(self.todo)}", done, total, self.left(done, total))
