"""What ``noiseproof train`` prints: the recipe, the start, a bar or lines while it runs, the result, and warnings."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import typer
from rich.markup import escape

from noiseproof.cli.options import print_columns
from noiseproof.io.console import Console, ProgressBar, console, duration, printable, warn
from noiseproof.train import Callback, Epoch, Recipe, Record, RunOptions, RunPlan, TrainingData
from noiseproof.train.engine import fast_path_suits
from noiseproof.train.training_data import CLASS_WEIGHT_HINT, data_warnings, rare_class_warnings

MAX_CLASSES_PRINTED, LOWEST_RECALLS = 20, 5
"""Of more classes so many with the lowest recall are printed; the record has the recall of each"""


def print_recipe(plan: RunPlan, as_json: bool) -> None:
    facts = plan.recipe.as_dict()
    if as_json:
        notes = {"notes": plan.recipe.why} if plan.recipe.why else {}
        typer.echo(json.dumps({"recipe": facts, "folder": str(plan.folder), **notes}))
        return
    for key, value in facts.items():
        text = value if isinstance(value, str) else json.dumps(value)
        console.print(f"{key:18} {escape(text)}", soft_wrap=True)
    if plan.recipe.loss != "ce":
        note = "robust losses learn slowly; 'noiseproof train --help' has an example"
        console.print(f"[dim]{'on epochs':18} {note}[/]", soft_wrap=True)
    chosen = [("why", text) for text in plan.recipe.why]
    for key, text in (*chosen, ("the loss in full", repr(plan.recipe.criterion())), ("folder", str(plan.folder))):
        console.print(f"[dim]{key:18} {escape(text)}[/]", soft_wrap=True)


def print_start(plan: RunPlan, options: RunOptions, shown: Console | None, timeout: float) -> None:
    """What is to be run, on ``shown`` if there is one, and warnings in any case."""
    recipe, task, before = plan.recipe, plan.training_data(), Record.read(plan.folder)
    wrong = task.wrong
    finished = before is not None and before.status == "finished"
    for text in _warnings(recipe, task, options):
        warn(text)
    if shown is None:
        return
    print_columns(task.table, task.classes, shown)
    labels = "labels as given" if wrong is None else f"{int(wrong.sum())} labels wrong ({escape(recipe.noise)})"
    if task.soft is not None:
        labels = f"trained on soft labels in place of {labels}"
    examples = f"{len(task.train)} examples of {len(task.classes)} classes"
    lines = [f"[bold]{escape(task.name)}, {escape(recipe.loss)}[/]: {examples}, {labels}; {task.inputs_in_words(recipe)}"]
    if task.test is not None and recipe.test_size and wrong is None:
        lines.append(f"{len(task.test)} held out to test on, labels as given: where these are wrong, so is the test accuracy")
    elif task.test is not None:
        lines.append(f"{len(task.test)} examples to test on")
    way = f"{recipe.optimiser} {recipe.lr:g}, {recipe.epochs} epochs, batch {recipe.batch}, on {options.device}"
    lines += map(escape, recipe.why)
    lines.append("finished before: nothing is trained now" if finished else f"{escape(recipe.model)}, {way}")
    if not finished and options.process.world > 1:
        lines.append(f"{options.process.world} processes; one that does not answer for {timeout:g} s ends the run")
    if not finished and task.soft is None and fast_path_suits(recipe, task.train, options):
        lines.append("[dim]the step is compiled for this GPU first, which can take a minute[/]")
    for line in lines:
        shown.print(line, soft_wrap=True)


def _warnings(recipe: Recipe, task: TrainingData, options: RunOptions) -> Iterator[str]:
    """What the user may not have meant."""
    yield from data_warnings(recipe, task)
    if task.test is None:
        yield "no test split, so no test accuracy will be known; --test-size 0.1 holds out a tenth"
    if options.device.type == "cpu" and recipe.model.startswith("resnet"):
        size = "" if task.train.in_memory else " --set size=32"
        yield f"{recipe.model} takes hours on a CPU where a small network, --model cnn5{size}, takes minutes"
    if task.name == "webvision" and not task.other_tests:
        yield (
            "no ILSVRC12 images to test on as well: they are looked for in and beside WebVision's folder, as "
            "ilsvrc12/val/n01440764/... with a folder for each class"
        )
    if 0 < (rest := len(task.train) % recipe.batch) < options.process.world:
        yield f"the last batch of an epoch, {rest}, is left out: fewer than the {options.process.world} processes"


def accuracies(facts: Epoch) -> str:
    return "  ".join(f"{name} {100 * share:5.2f} %" for name, share in facts.accuracies().items())


def number(value: float) -> str:
    """A loss, also one that is about to diverge.

    >>> number(0.12345), number(8.2e30)
    ('0.1235', '8.2e+30')
    """
    return f"{value:.4f}" if value < 1e5 else f"{value:.4g}"


class RunDisplay(ProgressBar, Callback):
    """A line for every n-th epoch and the last; within long epochs a bar on a terminal, elsewhere further lines."""

    def __init__(self, shown: Console | None, every: int = 1) -> None:
        super().__init__(shown)
        self.every = every

    def on_train_begin(self, record: Record, epochs_done: int) -> None:
        constant = f", less its constant {record.loss_constant:g}" if record.loss_constant else ""
        parts = [f"loss: mean over the epoch's steps{constant}", "given: training labels predicted, before each step"]
        if "rate" in record.task.get("noise", {}):
            parts.append("clean: of the clean ones")
        if record.task.get("test_examples"):
            parts.append("test: test accuracy")
        self.line("; ".join(parts))
        self.epochs = record.recipe["epochs"]
        self.examples = record.task["examples"]
        self.done = epochs_done * self.examples
        self.begin(self.done)
        if epochs_done:
            self.line(f"resumes after epoch {epochs_done}")
        self._move(epochs_done)

    def on_batch_end(self, epoch: int, done: int, total: int) -> None:
        self.done = epoch * self.examples + done
        self._move(epoch)
        if self.is_due:
            self.line(f"{self._label(epoch + 1)}  {done} of {total}  {self._speed()}")

    def on_epoch_end(self, facts: Epoch) -> None:
        self.done = facts.epoch * self.examples
        if facts.epoch % self.every == 0 or facts.epoch == self.epochs:
            self.line(f"{self._label(facts.epoch)}  loss {number(facts.loss)}  {accuracies(facts)}  {self._speed()}")

    def _label(self, epoch: int) -> str:
        return f"epoch {epoch:>{len(str(self.epochs))}}/{self.epochs}"

    def _speed(self) -> str:
        """Examples per second, evaluation included, and the time left."""
        left = self.left(self.done, self.epochs * self.examples)
        return f"{self.pace(self.done):,.0f} examples/s  {left}" if left else ""

    def _move(self, epoch: int) -> None:
        self.update(self._label(epoch + 1), self.done, self.epochs * self.examples, self._speed())


def print_result(record: Record, task: TrainingData, folder: Path, quiet: bool, as_json: bool) -> None:
    lost = record.recipe["loss"] != "ce" and any(rare_class_warnings(task.train.labels, task.classes))
    lost = lost and record.recipe.get("class_weight") is None
    for text in record.warnings:
        warn(f"{text}; {CLASS_WEIGHT_HINT}" if lost and text.startswith(("never predicted", "dead run")) else text)
    if as_json:
        typer.echo(as_json_text(record, folder))
        return
    console.print(result_line(record), soft_wrap=True)
    if not quiet:
        if by_class := class_line(record, task.classes):
            console.print(escape(by_class), soft_wrap=True)
        times = ", ".join(f"{phase} {duration(seconds)}" for phase, seconds in record.phases().items())
        console.print(f"[dim]{times}; files in {escape(str(folder))}[/]", soft_wrap=True)
        own = ["--model", record.recipe["model"]] if ":" in record.recipe["model"] else []
        command = shlex.join(["noiseproof", "predict", str(folder), "--data", "PLACE", "--out", "predictions.csv", *own])
        console.print(f"[dim]for new examples: {escape(command)}[/]", soft_wrap=True)


def class_line(record: Record, classes: Sequence[str]) -> str:
    """The recall of each class on the test split; of many classes the lowest."""
    found = record.result.get("accuracy_by_class") or []
    shares = [(share, k) for k, share in enumerate(found) if share is not None]
    if not shares or len(found) != len(classes):
        return ""
    many = len(shares) > MAX_CLASSES_PRINTED
    what = f"lowest recall of {len(shares)} classes" if many else "recall by class"
    shown = sorted(shares)[:LOWEST_RECALLS] if many else shares
    return f"{what}: " + ", ".join(f"{printable(classes[k])} {100 * share:.1f} %" for share, k in shown)


def result_line(record: Record) -> str:
    result = record.result

    def percent(key: str, what: str) -> str:
        value = result.get(key)
        return "" if value is None else f"{100 * value:.2f} % {what}"

    parts = [
        percent("test_accuracy", f"test accuracy in the last epoch, {result.get('epoch')}"),
        percent("balanced_accuracy", "balanced accuracy"),
        percent("macro_f1", "macro F1"),
        *(percent(f"{name}_accuracy", f"on {name}") for name in record.task.get("other_tests", ())),
        percent("right_labels_learned", "of the right labels learned"),
        percent("wrong_labels_memorised", "of the wrong labels memorised"),
    ]
    if result.get("test_accuracy") is None:
        parts[0] = percent("given_labels_predicted", "of the given labels predicted; no test accuracy is known")
    return "; ".join(part for part in parts if part)


def as_json_text(record: Record, folder: Path) -> str:
    facts = record.as_dict()
    names = ("status", "message", "dead", "warnings", "notes", "result", "seconds", "recipe")
    kept = {key: facts[key] for key in names if key in facts}
    return json.dumps({"folder": str(folder), **kept})
