"""Repeating the paper: the runs behind its numbers and figures, those that are missing, training them, and the results.

The folders of the runs and a file of records are the only state: a reproduction that was stopped is resumed by starting it
again.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from noiseproof.data import data_root
from noiseproof.data.opening import find_dataset
from noiseproof.io.files import locked, remove_partial, write_whole
from noiseproof.io.text import read_json
from noiseproof.paper.agreement import CellResult, join
from noiseproof.paper.groups import paper_groups
from noiseproof.paper.page import DrawnFigure, Embedding, draw_figure, embed_run, paper_page
from noiseproof.paper.plan import H200_EPOCH_SECONDS, Curve, PaperRun, RunCosts, choose, plan_text, planned_runs, shard
from noiseproof.paper.published import Cell
from noiseproof.paper.recipes import SEEDS, TRAINED_ON
from noiseproof.paper.run_list import ENDED, PlannedRun, RunListOutcome, plan_runs
from noiseproof.paper.settings import PROFILES
from noiseproof.paper.tables import formatted
from noiseproof.train import Callback, DivergenceError, Outcome, Recipe, Record, RunStore, StoredRun
from noiseproof.train.executors import AnyOutcome, Executor, LocalExecutor, RunList
from noiseproof.train.record import RECORD
from noiseproof.train.record_files import compact, merge, read_records, run_line, write_records
from noiseproof.train.runs import identity

PRECISIONS = ("bf16", "tf32", "float32")


class RecordsFile:
    """A file of records that grows with every run that ends. Several processes may add to it; no line is ever lost.

    Args:
        path: The file; it need not exist. Of a link, the file that it leads to grows.
        store: The folder of the runs; with it, lines also have what else is kept in a run's folder.
    """

    def __init__(self, path: Path, store: RunStore | None = None) -> None:
        self.path, self.store = path.resolve(), store

    def add(self, records: Iterable[dict[str, Any]]) -> None:
        """Add runs that have ended, by their records; a run with the same result is kept once."""
        lines = [self._line(record) for record in records]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with locked(self.path.parent, wait=True) as held:
            if held:
                remove_partial(self.path)
            before = read_records(self.path) if self.path.exists() else []
            after = merge(before, lines)
            if after != before:
                write_records(self.path, after)

    def add_outcome(self, recipe: Recipe, outcome: AnyOutcome) -> None:
        """Add what came of a run, also if it diverged, so that nobody trains it again unknowingly."""
        if isinstance(outcome, DivergenceError):
            self.add_folders([] if self.store is None else [self.store.folder_for(recipe)])
        elif not isinstance(outcome, Exception):
            self.add([outcome.record.as_dict() if isinstance(outcome, Outcome) else dict(outcome)])

    def add_folders(self, folders: Iterable[Path | None]) -> None:
        """Add runs that have ended, by their folders."""
        files = [folder / RECORD for folder in folders if folder is not None]
        self.add([read_json(file) for file in files if file.is_file()])

    def _line(self, record: dict[str, Any]) -> dict[str, Any]:
        stored = None if self.store is None else self.store.find(identity(record["recipe"], record["task"]))
        return compact(record) if stored is None or stored.folder is None else run_line(stored.folder)


@dataclass
class Reproduction:
    """The numbers that were chosen, the runs behind them, and what is known of these; :func:`reproduce` makes one.

    Attributes:
        cells: The published numbers that were chosen.
        data: The folder of data sets; None where nothing is to be trained.
        records: The results of runs that were given.
        records_file: Where the results of further runs are added.
        store: The folders of runs.
        executor: Trains the runs, here or on Ray.
        precision: Of the runs.
        profile: The paper's text or its code, where they differ.
        runs: The runs behind the numbers and the curves, with what is known of each.
        costs: How long runs take.
        notes: What to know before anything is trained.
        not_recorded: Number of results that could not be added to the file of records.
        sources: Where the records came from.
        lock: Held while a result is recorded.

    >>> found = reproduce(tables=["ablation"], losses=["AMSE"])
    >>> len(found.cells), len(found.missing)
    (4, 12)
    """

    cells: tuple[Cell, ...]
    """The published numbers that were chosen"""
    data: Path | None
    """The folder of data sets; None where nothing is to be trained"""
    records: list[dict[str, Any]]
    """The results of runs that were given"""
    sources: tuple[str, ...]
    """The files of these results"""
    records_file: RecordsFile | None
    """Where the results of further runs are added; None where nothing is to be trained"""
    store: RunStore
    executor: Executor
    precision: str
    profile: str
    runs: list[PlannedRun[PaperRun]]
    """The runs behind the numbers and the curves, with what is known of each"""
    costs: RunCosts
    notes: list[str] = field(default_factory=list)
    """What to know before anything is trained"""
    not_recorded: int = 0
    """Results that could not be added to the file of records"""
    lock: threading.RLock = field(default_factory=threading.RLock)
    """Held while a result is recorded"""

    @property
    def missing(self) -> list[PlannedRun[PaperRun]]:
        """The runs that have neither finished nor diverged."""
        return [run for run in self.runs if run.status not in ENDED]

    @property
    def results(self) -> list[CellResult]:
        """The numbers with the runs behind them, and whether they agree."""
        return join(self.cells, self._all_records(), precision=self.precision, profile=self.profile).results

    def formatted(self, how: str = "table") -> str:
        """The numbers next to the paper's, as text.

        Args:
            how: ``table``, ``markdown``, ``latex``, ``json`` or ``csv``.

        Raises:
            ValueError: There is no such format.

        Returns:
            The text.
        """
        return formatted(self.results, how)

    def plan_text(self) -> str:
        """What would be trained, by table and seed, what is done, and the time that the rest takes."""
        return plan_text(self.runs, self.costs, self.precision)

    def runs_of_other_profiles(self) -> dict[str, int]:
        """How many runs are of the same numbers with the values of another profile."""
        records = self._all_records()
        unmatched = join(self.cells, records, precision=self.precision, profile=self.profile).unmatched
        others = {name: join(self.cells, unmatched, precision=self.precision, profile=name).unmatched for name in PROFILES}
        return {name: count for name, left in others.items() if (count := len(unmatched) - len(left))}

    def with_data(self) -> list[PlannedRun[PaperRun]]:
        """The missing runs whose data are there; ``notes`` says which data are not.

        Raises:
            FileNotFoundError: None of the data that are needed are there.
        """
        if self.data is None:
            return []
        needed = dict.fromkeys(run.facts["dataset"] for run in self.missing)
        absent = {dataset: why for dataset in needed if (why := why_absent(dataset, self.data)) is not None}
        if absent and len(absent) == len(needed):
            raise FileNotFoundError("; ".join(absent.values()))
        self.notes += [f"left out: {why}" for why in absent.values()]
        return [run for run in self.missing if run.facts["dataset"] not in absent]

    def train(
        self,
        runs: Sequence[PlannedRun[PaperRun]],
        *,
        at_once: int | None = None,
        minutes: float | None = None,
        callback: Callable[[PlannedRun[PaperRun]], Callback] = lambda run: Callback(),
        on_run_end: Callable[[PlannedRun[PaperRun], AnyOutcome], None] = lambda run, outcome: None,
        on_record_error: Callable[[Exception], None] = lambda error: None,
    ) -> RunListOutcome[PaperRun]:
        """Train missing runs.

        Args:
            runs: Those of :meth:`with_data`.
            at_once: Concurrent runs on a GPU; by default as many as fill an H200.
            minutes: Start nothing that would not end in this time.
            callback: Gives what follows a run of this process.
            on_run_end: Is called when a run has finished, diverged or failed, from several threads in turn.
            on_record_error: Is called when a result could not be added to the file of records.

        Returns:
            What finished, failed and was not started.
        """

        planned = {id(run.recipe): run for run in runs}

        def ended(recipe: Recipe, outcome: AnyOutcome) -> None:
            with self.lock:
                if isinstance(outcome, Outcome):
                    self.costs.add(outcome.record.as_dict(), just_now=True)
                elif not isinstance(outcome, Exception):
                    self.costs.add(outcome)
                on_run_end(planned[id(recipe)], outcome)
                try:
                    if self.records_file is not None:
                        self.records_file.add_outcome(recipe, outcome)
                except (OSError, ValueError) as error:  # the run's folder has it, and the next call adds it
                    self.not_recorded += 1
                    on_record_error(error)

        wanted = RunList(
            [run.recipe for run in runs], self.store, self.data, at_once, minutes,
            seconds=lambda recipe, width: self.costs.until_end(planned[id(recipe)], width),
            callback=lambda recipe: callback(planned[id(recipe)]),
            on_outcome=ended,
        )  # fmt: skip
        return RunListOutcome(runs, self.executor.run(wanted))

    def record_ended_runs(self) -> None:
        """Add to the file of records what ended when an earlier call was killed."""
        if self.records_file is not None:
            self.records_file.add_folders(run.stored.folder for run in self.runs if run.stored and run.status in ENDED)

    def refresh(self) -> None:
        """Look again at which runs have ended."""
        stored = [run for run in self.store.runs() if run.status in ENDED]
        self.runs = _planned([run.job for run in self.runs], self.records, stored)

    def draw_figures(self, folder: str | Path) -> list[DrawnFigure]:
        """Draw the figures that were chosen, as SVG and PNG.

        Args:
            folder: Where the files go; it is made if it does not exist.

        Returns:
            The files of each figure, and the curves that have no run.

        Raises:
            ImportError: Matplotlib, or for features scikit-learn, is not installed.
        """
        self.refresh()
        chosen = list(dict.fromkeys(curve for run in self.runs for curve in run.job.curves))
        if not chosen:
            return []
        folders = [run.stored.folder for run in self.runs if run.status == "finished" and run.stored and run.stored.folder]
        groups = paper_groups(merge(self.records, map(run_line, folders)), [], self.precision)
        embeddings, drawn = self.embeddings(), []
        for name in dict.fromkeys(curve.figure for curve in chosen):
            found = draw_figure(name, groups, Path(folder), embeddings, self.profile)
            drawn.append(found._replace(missing=[curve for curve in found.missing if curve in chosen]))
        return drawn

    def embeddings(self) -> list[Embedding]:
        """The features of the runs that were chosen for ``tsne``, where both they and the images are here."""
        data = self.data
        found = [run.stored for run in self.runs if run.job.needs_weights and run.status == "finished"]
        return [] if data is None else [embed_run(one.folder, data) for one in found if one is not None and one.folder]

    def page(self, *, date: str | None = None) -> str:
        """The whole paper's page as HTML, with all runs that there are.

        Args:
            date: The date that it shows; today by default.

        Returns:
            The HTML.
        """
        self.refresh()
        folders = [run.folder for run in self.store.runs() if run.status in ENDED and run.folder is not None]
        sources = [*self.sources, *([str(self.store.root)] if folders else [])]
        return paper_page(
            merge(self.records, map(run_line, folders)),
            date=time.strftime("%Y-%m-%d") if date is None else date,
            sources=sources,
            precision=self.precision,
            embeddings=self.embeddings(),
        )

    def save_page(self, path: str | Path, *, date: str | None = None) -> int:
        """Write the page; the file is whole or not there.

        Args:
            path: The HTML file.
            date: The date that it shows; today by default.

        Returns:
            The number of bytes.
        """
        text = self.page(date=date)
        write_whole(Path(path), lambda place: place.write_text(text, encoding="utf-8"))
        return len(text.encode())

    def _all_records(self) -> list[dict[str, Any]]:
        return [*self.records, *(run.facts for run in self.store.runs() if run.status in ENDED)]


def reproduce(
    *,
    tables: Sequence[str] = (),
    datasets: Sequence[str] = (),
    losses: Sequence[str] = (),
    noises: Sequence[str] = (),
    seeds: Sequence[int] = SEEDS,
    data: str | Path | None = None,
    out: str | Path = "runs",
    records: Sequence[str | Path] = (),
    precision: str | None = None,
    profile: str = PROFILES[0],
    part: tuple[int, int] = (1, 1),
    retry_diverged: bool = False,
    executor: Executor | Callable[[bool], Executor] | None = None,
    train: bool = True,
    at_once: int | None = None,
    minutes: float | None = None,
) -> Reproduction:
    """Train what is behind the paper's tables and figures, and compare the results with the published numbers.

    What has finished or diverged, in ``out`` or in ``records``, is not trained again.

    Args:
        tables: Tables and figures by name; all tables but ``real_world`` by default.
        datasets: Only these data sets.
        losses: Only these losses.
        noises: Only these noises, such as ``symmetric`` or ``symmetric:0.8``.
        seeds: The seeds.
        data: The folder of data sets; without it nothing is trained, unless ``$NOISEPROOF_DATA`` has some of them.
        out: The folder of runs; each has its own inside.
        records: Files of results, as JSON lines. Further ones are added to the first.
        precision: ``bf16``, ``tf32`` or ``float32``; by default bf16, on a CPU float32.
        profile: ``paper-code``, or ``paper-text`` where the two differ.
        part: Which of how many equal parts of the runs, counted from 1, for several machines.
        retry_diverged: Train those again that diverged.
        executor: Where to train: this machine by default, or a :class:`~noiseproof.train.executors.RayExecutor`; or a
            function that makes one, given whether anything may be trained.
        train: Whether to train at once; otherwise :meth:`Reproduction.train` does.
        at_once: Concurrent runs on a GPU; by default as many as fill an H200.
        minutes: Start nothing that would not end in this time.

    Returns:
        The numbers, the runs and their results.

    Raises:
        ValueError: There is no such table, data set, loss or noise.
        FileNotFoundError: The data, or a file of records, are not there.

    >>> found = reproduce(tables=["human"], datasets=["cifar10"], losses=["JAL-CE"], noises=["human:worst"])
    >>> [(result.name, result.cell.mean, result.sample) for result in found.results]
    [('JAL-CE', 81.33, None)]
    """
    cells, curves = choose(tables, datasets=datasets, losses=losses, noises=noises)
    place = data_folder(data, (*cells, *curves))
    files = [Path(file) for file in records]
    results = read_records(*_existing_files(files, to_run=place is not None))
    where = LocalExecutor() if executor is None else executor(place is not None) if callable(executor) else executor
    notes: list[str] = []
    if precision is None:
        precision = _usual_precision(where.device, place, results)
        if place is not None and where.device != "cuda":
            notes.append("on a CPU the runs are in float32, and only results in float32 are shown; --precision chooses another")
    jobs = shard(planned_runs(cells, curves=curves, seeds=seeds, precision=precision, profile=profile).runs, *part)
    store = RunStore(Path(out))
    stored = list(store.runs())
    notes += [f"{run.facts['message']}; it does not count" for run in stored if run.status == "unreadable"]
    measured: dict[tuple[str, ...], float] = {}
    if where.device == "cuda":
        measured = {(where.machine, *kind, "bf16"): seconds for kind, seconds in H200_EPOCH_SECONDS.items()}
    costs = RunCosts(where.machine, measured)
    for facts in (*results, *(run.facts for run in stored if run.status == "finished")):
        costs.add(facts)
    runs = _planned(jobs, results, stored, retry_diverged)
    found = Reproduction(
        cells, place, results, tuple(map(str, files)), RecordsFile(files[0], store) if files and place is not None else None,
        store, where, precision, profile, runs, costs, notes,
    )  # fmt: skip
    if train and place is not None:
        found.record_ended_runs()
        found.train(found.with_data(), at_once=at_once, minutes=minutes)
        found.refresh()
    return found


def _planned(
    jobs: list[PaperRun], records: list[dict[str, Any]], stored: list[StoredRun], retry: bool = False
) -> list[PlannedRun[PaperRun]]:
    """The runs with what is known of them; of one whose weights are needed, a record is not enough."""
    known = [*(StoredRun("", Record.status_in(facts), facts) for facts in records), *stored]
    in_folders = iter(plan_runs([job for job in jobs if job.needs_weights], stored, retry=retry))
    return [next(in_folders) if run.job.needs_weights else run for run in plan_runs(jobs, known, retry=retry)]


def data_folder(data: str | Path | None, chosen: Iterable[Cell | Curve]) -> Path | None:
    """The folder of data to train on: what was given, or $NOISEPROOF_DATA if it has any of the data sets."""
    if data is not None:
        return data_root(data)
    there = data_root() if os.environ.get("NOISEPROOF_DATA") else None
    return there if there is not None and any(why_absent(one.dataset, there) is None for one in chosen) else None


def why_absent(dataset: str, place: Path) -> str | None:
    """None, or why a data set cannot be used."""
    try:
        find_dataset(TRAINED_ON.get(dataset, dataset), place)
    except FileNotFoundError as error:
        return str(error)
    return None


def _existing_files(files: Sequence[Path], *, to_run: bool) -> list[Path]:
    """The files of results; the first need not exist if runs are to be written to it."""
    for i, file in enumerate(files):
        if not file.is_file() and (i or not to_run or file.exists()):
            raise FileNotFoundError(f"{file}: no such file of records; runs with --data write it")
    return [file for file in files if file.is_file()]


def _usual_precision(device: str, data: Path | None, records: list[dict[str, Any]]) -> str:
    """What runs are made in here; where nothing is trained, what most of the results were made in."""
    if device == "cuda":
        return "bf16"
    if data is not None:
        return "float32"
    made = Counter(str(record["recipe"].get("precision")) for record in records)
    return made.most_common(1)[0][0] if made else "bf16"
