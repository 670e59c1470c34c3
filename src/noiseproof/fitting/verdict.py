"""What a fit found, as numbers and as a few lines: how many labels are wrong, and what every learner and the model are worth.

The leaderboard has every learner, plain training and the model on given labels, on correct labels, and on a test split.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noiseproof.audit.noise_model import NoiseModel
from noiseproof.audit.result import MIN_RATE_WARNED, MIN_UNDECIDED, percent, short_name
from noiseproof.audit.scores import Estimate, central
from noiseproof.io.files import DataError
from noiseproof.io.text import aligned
from noiseproof.learners.catalog import SPECS
from noiseproof.learners.crossfit import CrossFit, left_out

MODEL = "model"
MODEL_DESCRIPTION = "the learners as the noise model combines them"
MIN_SIGNAL = 0.1
MIN_EXPECTED = 5
"""Rows of a class, by the posterior, that its recall is estimated from"""
MAX_CLASSES_NAMED, MAX_ROWS_NAMED = 3, 5
SUFFERS = 0.1
"""By how much less than the mean the recall of a class is for the verdict to name it"""
UNSEEN = "Errors that the features predict are not counted."
UNDECIDED = "The data cannot tell wrong labels from labels that are hard to predict."


def leaderboard(
    crossed: CrossFit,
    noise: NoiseModel,
    given: NDArray[np.int64],
    decided: NDArray[np.int64],
    tested: Mapping[str, float],
) -> Leaderboard:
    """The lines, the best on correct labels first.

    Args:
        crossed: What the learners predict out of fold, and what they took.
        noise: What is known of the true classes.
        given: The given labels ``[N]``.
        decided: What the model decides out of fold ``[N]``.
        tested: The accuracy on the test split by learner, if there is one.
    """
    weights = noise.weights
    seconds = {MODEL: sum(crossed.seconds[name] for name in weights), **crossed.seconds}
    lines = []
    for name, p in {MODEL: noise.out_of_fold, **crossed.predictions}.items():
        if p is None:
            raise ValueError("the noise model knows no rows")
        predicted = decided if name == MODEL else p.argmax(1)
        scores = noise.estimated_scores(p)
        chosen = noise.estimated_scores(predicted) if name == MODEL else scores
        lines.append(
            Leader(
                name,
                MODEL_DESCRIPTION if name == MODEL else SPECS[name].description,
                float((predicted == given).mean()),
                chosen.accuracy,
                chosen.balanced_accuracy,
                scores.auc,
                weights.get(name),
                seconds[name],
                tested.get(name),
            )
        )
    return Leaderboard(sorted(lines, key=lambda line: (-line.accuracy.value, line.name != MODEL)))


def recalls(posterior: NDArray[np.floating], predicted: NDArray[np.int64]) -> tuple[float | None, ...]:
    """Of each class, the expected share of its rows that is predicted; None of one with hardly a row."""
    classes = posterior.shape[1]
    there = posterior.sum(0, dtype=np.float64)
    right = np.bincount(predicted, posterior[np.arange(len(predicted)), predicted], classes)
    return tuple(float(r / t) if t >= MIN_EXPECTED else None for r, t in zip(right, there, strict=True))


def gain_interval(
    noise: NoiseModel, given: NDArray[np.int64], model: NDArray[np.int64], plain: NDArray[np.int64]
) -> tuple[float, float]:
    """The 95 % interval of the difference of two predictions' accuracies on correct labels.

    It contains 95 % of the hypotheses, and the sampling error of the difference on given labels, which is larger on correct
    ones by the share of a score's signal that label noise takes.

    Args:
        noise: What is known of the true classes.
        given: The given labels ``[N]``.
        model: What the model decides out of fold ``[N]``.
        plain: What plain training does ``[N]``.
    """
    if noise.judged is None or noise.judged_posteriors is None:
        raise ValueError("the noise model knows no rows")
    rows, place = noise.judged, np.arange(len(noise.judged))
    first, second, known = model[rows], plain[rows], noise.judged_posteriors
    each = (known[:, place, first] - known[:, place, second]).mean(1, dtype=np.float64)
    as_given = (first == given[rows]).astype(np.float64) - (second == given[rows])
    left = max(MIN_SIGNAL, 1 - noise.noise_rate - noise.noise_rate / (noise.classes - 1))
    margin = 1.96 * as_given.std() / np.sqrt(len(rows)) / left
    low, high = central(each, noise.weightings)
    return float(low - margin), float(high + margin)


@dataclass(frozen=True)
class Leader:
    """One line of the leaderboard: a learner, the model, or plain training.

    Attributes:
        name: Of the learner; ``model`` is what :meth:`noiseproof.fitting.FittedModel.predict` uses.
        description: What it is, in words.
        given_accuracy: The share of given labels that it predicts out of sample.
        accuracy: Its accuracy on correct labels, estimated without them.
        balanced_accuracy: The mean recall of the classes on correct labels, estimated likewise.
        auc: The mean area under the ROC curve of the classes, estimated likewise.
        weight: Its weight in the model.
        seconds: What training it took, on all folds.
        test_accuracy: The share of the labels of the test split that it predicts; None without a test split.

    Example:
        >>> Leader("model", "all learners together", 0.8, Estimate(0.9, 0.88, 0.92)).accuracy.value
        0.9
    """

    name: str
    description: str
    given_accuracy: float
    accuracy: Estimate
    balanced_accuracy: Estimate | None = None
    auc: Estimate | None = None
    weight: float | None = None
    seconds: float | None = None
    test_accuracy: float | None = None

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Leader:
        """Return a line from its stored form.

        Args:
            facts: The attributes by name.

        Returns:
            The line.
        """
        estimates = {name: Estimate(*map(float, facts[name])) for name in ESTIMATES if facts.get(name) is not None}
        return cls(**{**facts, **estimates})


ESTIMATES = {"accuracy": "accuracy", "balanced_accuracy": "balanced accuracy", "auc": "AUC"}


class Leaderboard(tuple[Leader, ...]):
    """Lines, the best on correct labels first, which are printed as a table in %.

    Example:
        >>> print(Leaderboard([Leader("model", "all learners together", 0.8, Estimate(0.9, 0.88, 0.92), seconds=1.5)]))
          learner  given labels  accuracy             weight  seconds
          model    80.0          90.0 (88.0 to 92.0)  -       1.5
    """

    def __repr__(self) -> str:
        kept = [name for name in ESTIMATES if any(getattr(line, name) is not None for line in self)]
        tested = any(line.test_accuracy is not None for line in self)
        head = ["learner", "given labels", *(ESTIMATES[name] for name in kept), "weight", "seconds", *["test"] * tested]
        rows = [
            [
                line.name,
                f"{100 * line.given_accuracy:.1f}",
                *(_numbers(getattr(line, name)) for name in kept),
                "-" if line.weight is None else f"{100 * line.weight:.1f}",
                "-" if line.seconds is None else f"{line.seconds:.1f}",
                *["-" if line.test_accuracy is None else f"{100 * line.test_accuracy:.1f}"] * tested,
            ]
            for line in self
        ]
        return "\n".join(f"  {line}" for line in aligned([head, *rows]))


def _numbers(found: Estimate | None) -> str:
    """An estimate in %, with its interval."""
    return "-" if found is None else f"{100 * found.value:.1f} ({100 * found.low:.1f} to {100 * found.high:.1f})"


@dataclass(frozen=True)
class Verdict:
    """What a fit found; ``str`` of it is the text.

    Attributes:
        data: What the data are called.
        rows: Rows that were trained on.
        classes: The names of the classes.
        rate: The share of labels that are wrong, with its interval.
        flagged: Labels that are more likely wrong than right.
        model: The model's line of the leaderboard.
        plain: That of the learner that a person would have taken.
        recalls: Of each class, the model's recall on correct labels, estimated without them; None if nothing is known of it.
        first: The rows whose labels are most likely wrong, from 0.
        gain_interval: The 95 % interval of the gain in accuracy over plain training.
        dropped: Learners that were left out, and why.
        notes: What else to know.
        seconds: What the fit took.

    Example:
        >>> model = Leader("model", "all learners together", 0.8, Estimate(0.9, 0.88, 0.92))
        >>> plain = Leader("plain-logistic", "logistic regression", 0.7, Estimate(0.84, 0.8, 0.88))
        >>> rate = Estimate(0.1, 0.06, 0.14)
        >>> found = Verdict("table", 100, ("no", "yes"), rate, 9, model, plain, (0.9, 0.9), (3,), (0.03, 0.1))
        >>> print(found)
        table: 100 rows, 2 classes
        About 10.0 % of the labels are wrong (95 % interval 6.0 % to 14.0 %); 9 are flagged.
        Errors that the features predict are not counted.
        On correct labels, estimated without them, in % with 95 % intervals:
                               accuracy
          model                90.0 (88.0 to 92.0)
          logistic regression  84.0 (80.0 to 88.0)
        The model gains 6.0 points of accuracy (3.0 to 10.0) on plain training, logistic regression.
        Look first at the labels of row 3 (from 0).
    """

    data: str
    rows: int
    classes: tuple[str, ...]
    rate: Estimate
    flagged: int
    model: Leader
    plain: Leader | None
    recalls: tuple[float | None, ...]
    first: tuple[int, ...]
    gain_interval: tuple[float, float] | None = None
    dropped: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def noisy(self) -> bool:
        """Whether the labels themselves say that some of them are wrong."""
        return self.rate.low > 0

    @property
    def undecided(self) -> bool:
        """Whether no label needs to be wrong, and many may be."""
        return not self.noisy and self.rate.high >= MIN_UNDECIDED

    @property
    def gain(self) -> float | None:
        """By how much more often the model is right than plain training; None if no plain learner was trained."""
        return None if self.plain is None else self.model.accuracy.value - self.plain.accuracy.value

    @property
    def suffering(self) -> list[tuple[str, float]]:
        """Classes whose recall is much below the mean, the lowest first, with their recall."""
        known = [
            (short_name(name), recall) for name, recall in zip(self.classes, self.recalls, strict=True) if recall is not None
        ]
        mean = sum(recall for _, recall in known) / max(len(known), 1)
        return sorted((one for one in known if one[1] < mean - SUFFERS), key=lambda one: one[1])

    @property
    def left_out(self) -> list[str]:
        """Which learners were left out, a sentence for each reason."""
        return left_out(dict(self.dropped))

    @property
    def lines(self) -> list[str]:
        """The verdict in a few lines, of which some are a table."""
        head = f"{short_name(self.data)}: {self.rows:,} rows, {len(self.classes):,} classes"
        labels = self._labels()
        title = "On correct labels, estimated without them, in % with 95 % intervals:"
        return [head, *labels, title, *self._table(), *self.sentences[len(labels) :]]

    @property
    def sentences(self) -> list[str]:
        """The verdict without its table: on the labels, the gain, classes that suffer, where to look first."""
        found = self._labels()
        if self.plain is not None and self.gain is not None:
            found.append(self._gain(self.plain, self.gain))
        if self.model.test_accuracy is not None:
            plain = None if self.plain is None else self.plain.test_accuracy
            other = "" if plain is None else f", plain training in {100 * plain:.1f} %"
            found.append(f"Measured on the test split the model is right in {100 * self.model.test_accuracy:.1f} %{other}.")
        if named := self.suffering[:MAX_CLASSES_NAMED]:
            listed = ", ".join(f"{name} (found in {percent(recall)})" for name, recall in named)
            found.append(f"Classes that suffer: {listed}.")
        if self.first:
            rows = ", ".join(map(str, self.first[:MAX_ROWS_NAMED]))
            found.append(f"Look first at the labels of row{'s' * (len(self.first) > 1)} {rows} (from 0).")
        return found

    @property
    def headline(self) -> str:
        """What the labels are like, in a few words."""
        if self.noisy:
            return f"About {percent(self.rate.value)} of the labels are wrong"
        doubtful = self.undecided or self.rate.value >= MIN_RATE_WARNED
        return "Labels may be wrong, or all of them right" if doubtful else "Nothing speaks for wrong labels"

    def _labels(self) -> list[str]:
        interval = f"95 % interval {percent(self.rate.low)} to {percent(self.rate.high)}"
        if self.noisy:
            return [f"{self.headline} ({interval}); {self.flagged:,} are flagged.", UNSEEN]
        if self.undecided or self.rate.value >= MIN_RATE_WARNED:
            looks = f"{percent(self.rate.value)} look wrong ({interval}); {self.flagged:,} are flagged"
            if self.rate.value < MIN_RATE_WARNED:
                looks = f"up to {percent(self.rate.high)} may be wrong (95 % interval); {self.flagged:,} are flagged"
            return [f"{self.headline}: {looks}.", *[UNDECIDED] * self.undecided]
        return [f"{self.headline} (at most {percent(self.rate.high)}, unless the features predict the errors)."]

    @property
    def gains(self) -> bool:
        """Whether the model is better than plain training, beyond what chance explains."""
        return self.gain is not None and self.gain > 0 and (self.gain_interval is None or self.gain_interval[0] > 0)

    def _gain(self, plain: Leader, gain: float) -> str:
        interval = (
            "" if self.gain_interval is None else " ({:.1f} to {:.1f})".format(*(100 * end for end in self.gain_interval))
        )
        if self.gains:
            return f"The model gains {100 * gain:.1f} points of accuracy{interval} on plain training, {plain.description}."
        if self.gain_interval is not None and self.gain_interval[1] < 0:
            low, high = (-100 * end for end in reversed(self.gain_interval))
            points = f"{-100 * gain:.1f} points of accuracy ({low:.1f} to {high:.1f})"
            return f"The model is worse than plain training, {plain.description}, by {points}."
        return f"The gain on plain training, {plain.description}, may be chance: {100 * gain:.1f} points of accuracy{interval}."

    def _table(self) -> list[str]:
        """What model and plain training are worth, a line for each."""
        lines = [("model", self.model), *([] if self.plain is None else [(self.plain.description, self.plain)])]
        kept = [name for name in ESTIMATES if getattr(self.model, name) is not None]
        rows = [["", *(ESTIMATES[name] for name in kept)]]
        rows += [[title, *(_numbers(getattr(line, name)) for name in kept)] for title, line in lines]
        return [f"  {line}" for line in aligned(rows)]

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def as_dict(self) -> dict[str, Any]:
        """Return the verdict as JSON can hold it.

        Returns:
            The attributes by name.
        """
        return asdict(self)

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Verdict:
        """Return a verdict from its stored form.

        Args:
            facts: As :meth:`as_dict` returns them.

        Returns:
            The verdict.

        Raises:
            DataError: They are not of a verdict.
        """
        try:
            plain = None if facts["plain"] is None else Leader.of(facts["plain"])
            own: dict[str, Any] = {
                "rate": Estimate(*map(float, facts["rate"])),
                "model": Leader.of(facts["model"]),
                "plain": plain,
            }
            lists = {name: tuple(facts[name]) for name in ("classes", "recalls", "first", "notes")}
            if facts.get("gain_interval") is not None:
                own["gain_interval"] = tuple(map(float, facts["gain_interval"]))
            return cls(**{**facts, **own, **lists, "dropped": tuple((name, why) for name, why in facts["dropped"])})
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"the verdict of a model is damaged: {type(error).__name__} {str(error)[:200]}") from error
