"""What a finished run says of itself: its shares, and warnings of what a total hides."""

import dataclasses
import math
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score, f1_score, recall_score

from noiseproof.train import Epoch, Predictions, Record, override, prepare, train
from noiseproof.train.record import dead_run, late_fall, warnings_of
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
    tested = ClassCounts(seen=np.array([5, 5, 0]), right=np.array([5, 0, 0]), predicted=np.array([9, 0, 1]))
    last = Predictions(np.ones(3, np.float32), np.array([0, 2, 2]))
    assert warnings_of("ce", task, [], last, tested) == ["never predicted: class 1 (b)"]
    assert warnings_of("ce", task, [], last, None) == ["never predicted: class 1 (b)"]


def test_the_metrics_by_class_are_those_of_scikit_learn():
    generator = np.random.default_rng(0)
    for classes in (2, 5, 9):
        labels, predicted = generator.integers(0, classes, 60), generator.integers(0, classes, 60) ** 2 // classes
        labels[labels == 1] = 0  # a class that is predicted and never there
        counts = ClassCounts(*(np.bincount(one, minlength=classes) for one in (labels, labels[labels == predicted], predicted)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # scikit-learn's, of the class that is not there
            assert counts.balanced_accuracy == pytest.approx(balanced_accuracy_score(labels, predicted))
        assert counts.macro_f1 == pytest.approx(f1_score(labels, predicted, average="macro"))
        there = np.unique(labels)
        expected = recall_score(labels, predicted, labels=there, average=None, zero_division=0)
        assert [counts.recalls[k] for k in there] == pytest.approx(list(expected))
        assert counts.recalls[1] is None


def test_a_run_that_learned_nothing_is_called_dead():
    task = SimpleNamespace(train=SimpleNamespace(labels=np.array([0, 0, 1])), classes=("a", "b"))
    one = Predictions(np.ones(3, np.float32), np.zeros(3, np.int64))
    two = Predictions(np.ones(3, np.float32), np.array([0, 1, 1]))
    falls, still = epochs_of([2.0, 1.0, 0.5]), epochs_of([-2.0, -2.001, -2.0])
    assert dead_run(task, falls, one, None) == "every example is predicted as 0 (a)"
    assert dead_run(task, falls, two, ClassCounts(*np.array([[3, 0], [3, 0], [0, 3]]))) == "every example is predicted as 1 (b)"
    assert dead_run(task, falls, two, None) == ""
    assert dead_run(task, still, two, None) == "the loss did not move from -2"
    assert dead_run(task, epochs_of([1.0, 1.0]), two, None) == ""
    task.train.labels = np.zeros(3, np.int64)
    assert dead_run(task, falls, one, None) == ""


def test_a_dead_run_says_so_in_its_record(digits):
    """Without a learning rate nothing moves."""
    record = train(override(digits, {"epochs": 3, "lr": 0.0})).record
    assert record.dead.startswith("the loss did not move from ") or record.dead.startswith("every example is predicted as ")
    assert record.warnings == [f"dead run: {record.dead}"]
    assert Record.from_dict(record.as_dict()).dead == record.dead
    alive = train(override(digits, {"epochs": 8, "loss": "ce", "lr": 0.01})).record
    assert alive.dead == ""
    assert "dead" not in alive.as_dict()
    assert alive.result["balanced_accuracy"] == pytest.approx(np.mean(alive.result["accuracy_by_class"]))


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
