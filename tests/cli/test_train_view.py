"""How a run in progress is shown: lines and a bar."""

import os
import time

from rich.console import Console

from noiseproof.cli.train_view import RunDisplay
from noiseproof.io.console import LINE_SECONDS
from noiseproof.train import Epoch, Recipe, Record


def record(epochs=3, examples=1000):
    recipe = Recipe(dataset="digits", loss="ce", epochs=epochs)
    return Record(recipe=recipe.as_dict(), task={"examples": examples}, environment={})


def test_long_epochs_get_a_line_now_and_then(monkeypatch, capsys):
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    lines = RunDisplay(Console(width=200))
    lines.on_train_begin(record(), 0)
    for done in range(10, 1010, 10):
        clock[0] += 0.5
        lines.on_batch_end(0, done, 1000)
    lines.on_epoch_end(Epoch(1, 1.5, 0.5, None, 0.25, 0.1, 50.0))
    legend, *printed = capsys.readouterr().out.splitlines()
    assert legend.startswith("loss: mean over the epoch's steps; given: ")
    assert printed[0] == "epoch 1/3  200 of 1000  20 examples/s  2:20 left"
    assert len(printed) == 50 / LINE_SECONDS + 1
    assert printed[-1] == "epoch 1/3  loss 1.5000  given 50.00 %  test 25.00 %  20 examples/s  1:40 left"


def test_short_epochs_get_one_line(capsys):
    lines = RunDisplay(Console(width=200))
    lines.on_train_begin(record(), 0)
    lines.on_batch_end(0, 1000, 1000)
    lines.on_epoch_end(Epoch(1, 1.5, 0.5, None, 0.25, 0.1, 50.0))
    assert len(capsys.readouterr().out.splitlines()) == 2  # with the legend


def test_a_run_taken_up_again_counts_its_pace_from_there(monkeypatch, capsys):
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    lines = RunDisplay(Console(width=200))
    lines.on_train_begin(record(), 2)
    clock[0] += 10
    lines.on_epoch_end(Epoch(3, 1.5, 0.5, None, None, 0.1, 10.0))
    assert capsys.readouterr().out.splitlines()[1:] == [
        "resumes after epoch 2",
        "epoch 3/3  loss 1.5000  given 50.00 %  100 examples/s  0.0 s left",
    ]


def test_on_a_terminal_a_bar_shows_epoch_and_pace_below_the_lines():
    with open(os.devnull, "w") as nowhere:
        console = Console(width=80, force_terminal=True, record=True, file=nowhere)
        with RunDisplay(console) as shown:
            shown.on_train_begin(record(), 0)
            shown.on_batch_end(0, 1000, 1000)
            console.print(*shown.bar.get_renderables())
            shown.on_epoch_end(Epoch(1, 1.5, 0.5, 0.75, 0.25, 0.1, 50.0))
        text = console.export_text()
    assert "epoch 1/3 ━" in text
    assert "examples/s" in text
    assert "epoch 1/3  loss 1.5000  given 50.00 %  clean 75.00 %  test 25.00 %" in text
