"""What a finished run says of itself: its numbers, and warnings of what a total hides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noiseproof.train.record import Epoch
from noiseproof.train.run import ClassCounts, Predictions
from noiseproof.train.training_data import TrainingData

__all__ = ["late_fall", "result_of", "warnings_of"]

STEEP = 0.045
"""A late fall above this is steep. On the digits with 27 % pair noise, ce and jal-ce after 5 to 300 epochs, with SGD and with
Adam, it tells the runs to which more epochs gave several points from those to which they did not."""
NAMED = 10
"""Classes that a warning names"""


def result_of(task: TrainingData, epoch: Epoch, last: Predictions, tested: ClassCounts | None, left_out: int) -> dict[str, Any]:
    """The last epoch's numbers, from its predictions of the training examples and its counts on the test split."""
    seen, agrees = last.predicted >= 0, last.predicted == task.train.labels
    result: dict[str, Any] = {
        "epoch": epoch.epoch,
        "test_accuracy": epoch.test_accuracy,
        "given_labels_predicted": _share(agrees[seen]),
    }
    result |= {f"{name}_accuracy": value for name, value in epoch.other_accuracies.items()}
    if (wrong := task.wrong) is not None:
        result |= {
            "right_labels_learned": _share(agrees[seen & ~wrong]),
            "wrong_labels_memorised": _share(agrees[seen & wrong]),
        }
    if tested is not None:
        counts = zip(tested.right.tolist(), tested.seen.tolist(), strict=True)
        result["accuracy_by_class"] = [right / count if count else None for right, count in counts]
    if not seen.all():
        result["images_left_out"] = int((~seen).sum())
    if left_out:
        result["test_images_left_out"] = left_out
    return result


def warnings_of(
    loss: str, task: TrainingData, epochs: Sequence[Epoch], last: Predictions, tested: ClassCounts | None
) -> list[str]:
    """Sentences for the user, none if all is well."""
    found = []
    if never := _never_predicted(task, last, tested):
        names = ", ".join(never[:NAMED]) + (f" and {len(never) - NAMED} more" if len(never) > NAMED else "")
        found.append(f"never predicted: class{'es' * (len(never) > 1)} {names}")
    if late_fall(epochs) > STEEP:
        more = f"more epochs may give more, --set epochs={4 * len(epochs)}"
        way = f"{more}, or memorise wrong labels" if loss == "ce" else f"robust losses learn slowly, {more}"
        found.append(f"the training loss was still falling steeply at the end: {way}")
    return found


def _never_predicted(task: TrainingData, last: Predictions, tested: ClassCounts | None) -> list[str]:
    """The classes that were there to learn and, on the test split if there is one, to find."""
    classes = len(task.classes)
    there = np.bincount(task.train.labels, minlength=classes) > 0
    if tested is None:
        predicted = np.bincount(last.predicted[last.predicted >= 0], minlength=classes)
    else:
        there, predicted = there & (tested.seen > 0), tested.predicted
    names = {int(k): task.classes[k] for k in np.flatnonzero(there & (predicted == 0))}
    return [str(k) if name == str(k) else f"{k} ({name})" for k, name in names.items()]


def late_fall(epochs: Sequence[Epoch]) -> float:
    """The share of the loss's fall since the first epoch that the last tenth of the way brought; 0.1 if it falls steadily.

    The way is the sum of the learning rates: under a schedule that ends near zero every loss is flat in the last epochs.
    """
    losses, rates = (np.asarray([getattr(epoch, name) for epoch in epochs], dtype=np.float64) for name in ("loss", "lr"))
    if len(losses) < 2 or not rates.sum():
        return 0.0
    last = losses[-max(1, len(losses) // 20) :].mean()
    late = np.interp(0.9, np.cumsum(rates) / rates.sum(), losses)
    whole = losses[0] - last
    return max(0.0, float((late - last) / whole)) if whole > 0 else 0.0


def _share(agrees: NDArray[np.bool_]) -> float | None:
    return float(agrees.mean()) if len(agrees) else None
