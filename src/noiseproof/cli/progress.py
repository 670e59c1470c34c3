"""How a run in progress is shown: a bar on a terminal, lines in a file, events for TensorBoard."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from noiseproof.train import Callback, Epoch, Record

__all__ = ["Bar", "Lines", "TensorBoard", "accuracies", "duration"]

LINE_SECONDS = 10.0  # within an epoch a line is printed no more often than this


def known_shares(facts: Epoch) -> dict[str, float]:
    shares = {"given": facts.given_accuracy, "clean": facts.clean_accuracy, "test": facts.test_accuracy}
    return {name: share for name, share in shares.items() if share is not None} | facts.other_accuracies


def accuracies(facts: Epoch) -> str:
    return "  ".join(f"{name} {100 * share:5.2f} %" for name, share in known_shares(facts).items())


def number(value: float) -> str:
    """A loss, also one that is about to diverge.

    >>> number(0.12345), number(8.2e30)
    ('0.1235', '8.2e+30')
    """
    return f"{value:.4f}" if value < 1e5 else f"{value:.4g}"


def duration(seconds: float) -> str:
    """Hours, minutes and seconds.

    >>> duration(7.26), duration(75), duration(3675)
    ('7.3 s', '1:15', '1:01:15')
    """
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class Pace:
    """How fast a run goes, measured from where this process started."""

    def __init__(self, epochs: int, examples: int, epochs_done: int) -> None:
        self.total, self.examples = epochs * examples, examples
        self.first = self.done = epochs_done * examples
        self.start = time.monotonic()

    def reach(self, epoch: int, done: int) -> None:
        self.done = epoch * self.examples + done

    def text(self) -> str:
        """Examples per second, evaluation included, and the time left."""
        seconds = time.monotonic() - self.start
        if self.done == self.first or seconds <= 0:
            return ""
        rate = (self.done - self.first) / seconds
        return f"{rate:,.0f} examples/s  {duration((self.total - self.done) / rate)} left"


class Lines(Callback):
    """One line for each epoch, and further lines within long ones."""

    def __init__(self, console: Console) -> None:
        self.console, self.told = console, time.monotonic()
        self.within = -1  # the epoch that a line was last printed in, counted from 0

    def on_train_begin(self, record: Record, epochs_done: int) -> None:
        self.epochs = record.recipe["epochs"]
        self.pace = Pace(self.epochs, record.task["examples"], epochs_done)
        if epochs_done:
            self._tell(f"goes on after epoch {epochs_done}")

    def on_batch_end(self, epoch: int, done: int, total: int) -> None:
        self.pace.reach(epoch, done)
        if time.monotonic() - self.told >= LINE_SECONDS:
            self.within = epoch
            self._tell(f"{self._label(epoch + 1)}  {done} of {total}  {self.pace.text()}")

    def on_evaluation_begin(self, epoch: int) -> None:
        if self.within == epoch:  # the epoch is long, so its evaluation may be too
            self._tell(f"{self._label(epoch + 1)}  evaluating")

    def on_epoch_end(self, facts: Epoch) -> None:
        self.pace.reach(facts.epoch, 0)
        self._tell(f"{self._label(facts.epoch)}  loss {number(facts.loss)}  {accuracies(facts)}  {self.pace.text()}")

    def _label(self, epoch: int) -> str:
        return f"epoch {epoch:>{len(str(self.epochs))}}/{self.epochs}"

    def _tell(self, line: str) -> None:
        self.told = time.monotonic()
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)


class _Display(Progress):
    """A bar, and below it a line of numbers."""

    numbers = ""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        if self.numbers:
            yield Text(self.numbers, style="dim")


class Bar(Callback):
    """A bar over the whole run, with the last epoch's numbers below it."""

    def __init__(self, console: Console) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(None), TextColumn("{task.fields[pace]}"))
        self.display = _Display(*columns, console=console, expand=True, transient=True)

    def on_train_begin(self, record: Record, epochs_done: int) -> None:
        self.epochs = record.recipe["epochs"]
        self.pace = Pace(self.epochs, record.task["examples"], epochs_done)
        self.task = self.display.add_task("", total=self.pace.total, pace="")
        if record.epochs:
            self.on_epoch_end(record.epochs[-1])
        self._show(epochs_done + 1)
        if epochs_done:
            self.display.console.print(f"goes on after epoch {epochs_done}", highlight=False)
        self.display.start()

    def on_batch_end(self, epoch: int, done: int, total: int) -> None:
        self.pace.reach(epoch, done)
        self._show(epoch + 1)

    def on_evaluation_begin(self, epoch: int) -> None:
        self._show(epoch + 1, "evaluating")

    def on_epoch_end(self, facts: Epoch) -> None:
        self.display.numbers = f"epoch {facts.epoch}: loss {number(facts.loss)}  {accuracies(facts)}"

    def on_train_end(self, record: Record) -> None:
        self.close()

    def close(self) -> None:
        """Restore the terminal, however the run ended."""
        self.display.stop()

    def _show(self, epoch: int, doing: str = "") -> None:
        label = f"epoch {epoch}/{self.epochs}"
        self.display.update(self.task, completed=self.pace.done, description=label, pace=doing or self.pace.text())


class TensorBoard(Callback):
    """Each epoch's numbers as TensorBoard events in the run's folder."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ImportError(
                "TensorBoard events need tensorboard: pip install '.[track]' in noiseproof's repository"
            ) from error
        self.writer_for, self.folder = SummaryWriter, folder

    def on_train_begin(self, record: Record, epochs_done: int) -> None:
        # Events of epochs that an interruption lost are purged: these epochs are trained again.
        self.writer: Any = self.writer_for(str(self.folder), purge_step=epochs_done + 1 if epochs_done else None)
        self.writer.add_text("recipe", f"```json\n{json.dumps(record.recipe, indent=1)}\n```")

    def on_epoch_end(self, facts: Epoch) -> None:
        numbers = {f"accuracy/{name}": share for name, share in known_shares(facts).items()}
        for name, value in {"loss": facts.loss, "lr": facts.lr, **numbers}.items():
            self.writer.add_scalar(name, value, facts.epoch)

    def on_train_end(self, record: Record) -> None:
        self.writer.close()
