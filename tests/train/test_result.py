"""What a finished run says of itself: its shares, and warnings of what a total hides."""

import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import pytest

from noiseproof.train import Epoch, Predictions, override, prepare, train
from noiseproof.train.record import late_fall, warnings_of
from noiseproof.train.run import ClassCounts


def test_a_class_that_is_never_predicted_is_a_warning(digits):
    """No label of class 5 is right, so nothing is to be learned of it; class 7 has no example, and is not expected."""
    task = prepare(override(digits, {"noise": "none"}))
    labels = np.where(task.train.labels == 5, 3, np.where(task.train.labels == 7, 1, task.train.labels))
    labels[0] = 5
    task = dataclasses.replace(task, train=task.train.with_labels(labels), classes=(*"01234", "five", *"6789"))
    easy = override(digits, {"epochs": 8, "loss": "ce", "lr": 0.01, "confidence_epochs": ()})
    record = train(easy, task).record
    assert record.result["accuracy_by_class"][5] == record.result["accuracy_by_class"][7] == 0
    assert record.warnings[0] == "never predicted: class 5 (five)"
    without = train(easy, dataclasses.replace(task, test=None)).record
    assert "accuracy_by_class" not in without.result
    assert without.warnings[0] == "never predicted: class 5 (five)"


def test_a_class_that_is_not_there_to_be_tested_is_not_missed():
    task = SimpleNamespace(train=SimpleNamespace(labels=np.arange(3)), classes=("a", "b", "c"))
    tested = ClassCounts(seen=np.array([5, 5, 0]), right=np.array([5, 0, 0]), predicted=np.array([10, 0, 0]))
    last = Predictions(np.ones(3, np.float32), np.zeros(3, np.int64))
    assert warnings_of("ce", task, [], last, tested) == ["never predicted: class 1 (b)"]
    assert warnings_of("ce", task, [], last, None) == ["never predicted: classes 1 (b), 2 (c)"]


def epochs_of(losses, rates=None):
    rates = [1.0] * len(losses) if rates is None else rates
    pairs = zip(losses, rates, strict=True)
    return [Epoch(i, loss, 0.5, None, None, rate, 1.0) for i, (loss, rate) in enumerate(pairs, 1)]


def test_a_loss_that_still_falls_is_known_by_the_last_tenth_of_the_way():
    steady, flat = np.linspace(2, 1, 50), [2.0, 1.0] + [0.5] * 48
    assert late_fall(epochs_of(steady)) == pytest.approx(0.1, abs=0.03)
    assert late_fall(epochs_of(flat)) == late_fall(epochs_of([1.0])) == late_fall(epochs_of([1.0, 2.0, 3.0])) == 0
    assert late_fall(epochs_of(np.exp(-np.linspace(0, 6, 50)))) < 0.01
    cosine = [(1 + math.cos(math.pi * k / 50)) / 2 for k in range(50)]
    way = np.cumsum(cosine) / np.sum(cosine)
    assert late_fall(epochs_of(2 - way, cosine)) == pytest.approx(0.1, abs=0.02)
    assert late_fall(epochs_of([3.0, 2.0, 1.0], [0.0] * 3)) == 0


def test_a_run_that_is_too_short_is_warned_of_and_a_long_one_is_not(digits):
    more = "more epochs may give more, --set epochs=8"
    falls = "the training loss was still falling steeply at the end:"
    assert train(override(digits, {"epochs": 2})).record.warnings[-1] == f"{falls} robust losses learn slowly, {more}"
    short = train(override(digits, {"epochs": 2, "loss": "ce"})).record
    assert short.warnings[-1] == f"{falls} {more}, or memorise wrong labels"
    assert train(override(digits, {"epochs": 20, "noise": "none", "lr": 0.01})).record.warnings == []
