"""How a run in progress is shown: lines, a bar, TensorBoard's events."""

import os
import time

from rich.console import Console

from noiseproof.cli.train_view import RunDisplay
from noiseproof.io.console import LINE_SECONDS
from noiseproof.train import Epoch, Recipe, Record, TensorBoard


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
    lines.on_evaluation_begin(0)
    lines.on_epoch_end(Epoch(1, 1.5, 0.5, None, 0.25, 0.1, 50.0))
    legend, *printed = capsys.readouterr().out.splitlines()
    assert legend.startswith("loss: mean over the epoch's steps; given: ")
    assert printed[0] == "epoch 1/3  200 of 1000  20 examples/s  2:20 left"
    assert len(printed) == 50 / LINE_SECONDS + 2
    assert printed[-2] == "epoch 1/3  evaluating"
    assert printed[-1] == "epoch 1/3  loss 1.5000  given 50.00 %  test 25.00 %  20 examples/s  1:40 left"


def test_short_epochs_get_one_line(capsys):
    lines = RunDisplay(Console(width=200))
    lines.on_train_begin(record(), 0)
    lines.on_batch_end(0, 1000, 1000)
    lines.on_evaluation_begin(0)
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
            shown.on_evaluation_begin(1)
            console.print(*shown.bar.get_renderables())
        text = console.export_text()
    assert "epoch 1/3 ━" in text
    assert "examples/s" in text
    assert "evaluating" in text
    assert "epoch 1/3  loss 1.5000  given 50.00 %  clean 75.00 %  test 25.00 %" in text


def test_events_of_epochs_that_an_interruption_lost_are_taken_back(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for done, loss, epochs in ((0, 1.0, (1, 2, 3)), (1, 2.0, (2, 3))):
        events = TensorBoard(tmp_path)
        events.on_train_begin(record(), done)
        for epoch in epochs:
            events.on_epoch_end(Epoch(epoch, loss, 0.5, None, None, 0.1, 1.0))
        events.on_train_end(record())
    found = [(event.step, event.value) for event in EventAccumulator(str(tmp_path)).Reload().Scalars("loss")]
    assert found == [(1, 1.0), (2, 2.0), (3, 2.0)]
