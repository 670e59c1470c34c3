"""What ``noiseproof audit`` prints: how far it is, and the verdict."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn

from noiseproof.audit import Audit
from noiseproof.audit import Progress as Told
from noiseproof.cli.output import Console, console, warn
from noiseproof.cli.progress import LINE_SECONDS, duration
from noiseproof.io.text import printable

__all__ = ["Followed", "as_json_text", "print_verdict", "print_warnings"]

WARNED = 8
LONG = 30 * 60  # seconds that a person may want to avoid
SHORTER = "--quick trains one network instead of {}; features of a pretrained model, audited as they are, need no large network"


class Followed:
    """Shows how far the training of an audit is: a bar on a terminal, else lines, one for each network at least."""

    def __init__(self, shown: Console | None) -> None:
        self.shown = shown
        self.bar: Progress | None = None
        self.done = self.networks = 0
        self.start = self.told = time.monotonic()
        self.first = 0
        self.hinted = False

    def __enter__(self) -> Self:
        if self.shown is not None and self.shown.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(None), TextColumn("{task.fields[left]}"))
            self.bar = Progress(*columns, console=self.shown, expand=True, transient=True)
            self.task = self.bar.add_task("", total=None, left="")
            self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Restore the terminal."""
        if self.bar is not None:
            self.bar.stop()

    def __call__(self, told: Told) -> None:
        stored, ended = told.state == "trained before", told.state != "training"
        if stored:  # which says nothing of the pace
            self.start, self.first = time.monotonic(), told.done
        self.networks = told.folds * (1 if told.total == told.folds * told.epochs and told.stage == "given labels" else 2)
        self.done += ended
        self._hint(told)
        label = f"{told.stage}, network {told.fold}/{told.folds}"
        if self.bar is not None:
            self.bar.update(self.task, completed=told.done, total=told.total, description=label, left=self._left(told))
        elif self.shown is not None and (ended or (told.epoch < told.epochs and self._is_due())):
            self.told = time.monotonic()
            how = "trained before" if stored else f"epoch {told.epoch}/{told.epochs}  {self._left(told)}"
            self.shown.print(f"{label}  {how}", markup=False, highlight=False, soft_wrap=True)

    def _is_due(self) -> bool:
        return time.monotonic() - self.told >= LINE_SECONDS

    def _hint(self, told: Told) -> None:
        """Say once what is shorter, where the first epoch shows that it will be long."""
        if self.hinted or self.shown is None or told.done == self.first:
            return
        self.hinted = True
        if self.networks > 1 and (left := self._seconds_left(told)) > LONG:
            text = f"about {duration(left)} to go; {SHORTER.format(self.networks)}"
            self.shown.print(text, markup=False, highlight=False, soft_wrap=True)

    def _left(self, told: Told) -> str:
        return "" if told.done == self.first else f"{duration(self._seconds_left(told))} left"

    def _seconds_left(self, told: Told) -> float:
        return (told.total - told.done) * (time.monotonic() - self.start) / (told.done - self.first)


def print_verdict(audit: Audit, name: str, out: Path, commands: Mapping[str, str]) -> None:
    """The verdict in a few lines, warnings, where its files are, and what to do next: commands by what each is for."""
    found = audit.summary()
    _print(f"[bold]{escape(printable(name))}: {escape(found.headline[0].lower() + found.headline[1:])}[/]")
    for sentence in found.sentences:
        _print(escape(sentence))
    print_warnings(audit)
    _print(
        f"{escape(str(out / 'audit.html'))} shows the most suspicious and takes decisions; audit.csv beside it has all labels"
    )
    for purpose, command in commands.items():
        _print(f"next, {purpose}: {escape(command)}")


def print_warnings(audit: Audit) -> None:
    """The first ones, on stderr."""
    for text in audit.warnings[:WARNED]:
        warn(text)
    if (further := len(audit.warnings) - WARNED) > 0:
        warn(f"and {further} more, in audit.html with the classes")


def _print(line: str) -> None:
    console.print(line, highlight=False, soft_wrap=True)


def as_json_text(audit: Audit, out: Path) -> str:
    return json.dumps({"folder": str(out), **audit.as_dict()})
