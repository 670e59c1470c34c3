"""What a fit found, as numbers and as a few lines: how many labels are wrong, and what model and plain training are worth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from noiseproof.audit.result import percent, short_name
from noiseproof.audit.scores import Estimate
from noiseproof.io.files import DataError

MAX_CLASSES_NAMED, MAX_ROWS_NAMED = 3, 5
SUFFERS = 0.1
"""By how much less than the mean the recall of a class is for the verdict to name it"""


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


ESTIMATES = ("accuracy", "balanced_accuracy", "auc")


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
        dropped: Learners that were left out, and why.
        notes: What else to know.
        seconds: What the fit took.

    Example:
        >>> line = Leader("model", "all learners together", 0.8, Estimate(0.9, 0.88, 0.92))
        >>> verdict = Verdict("table", 100, ("no", "yes"), Estimate(0.1, 0.06, 0.14), 9, line, None, (0.9, 0.9), (3,))
        >>> print(verdict)
        table: 100 rows, 2 classes
        About 10.0 % of the labels are wrong (95 % interval 6.0 % to 14.0 %); 9 are flagged.
        On correct labels the model is right in 90.0 % (88.0 % to 92.0 %), estimated without them.
        Look first at the labels of row 3.
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
    dropped: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def noisy(self) -> bool:
        """Whether the labels themselves say that some of them are wrong."""
        return self.rate.low > 0

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
    def lines(self) -> list[str]:
        """The verdict in a few lines."""
        found = [
            f"{short_name(self.data)}: {self.rows:,} rows, {len(self.classes):,} classes",
            self._labels(),
            self._accuracy(),
        ]
        if self.plain is not None and self.gain is not None:
            gain = f"the model gains {100 * self.gain:.1f} points" if self.gain > 0 else "the model does not gain on it"
            found.append(f"Plain training ({self.plain.description}): {self.plain.accuracy}; {gain}.")
        if named := self.suffering[:MAX_CLASSES_NAMED]:
            listed = ", ".join(f"{name} (found in {percent(recall)})" for name, recall in named)
            found.append(f"Classes that suffer: {listed}.")
        if self.first:
            rows = ", ".join(map(str, self.first[:MAX_ROWS_NAMED]))
            found.append(f"Look first at the labels of row{'s' * (len(self.first) > 1)} {rows}.")
        return found

    def _labels(self) -> str:
        if not self.noisy:
            return f"Nothing speaks for wrong labels (at most {percent(self.rate.high)} are); the model is trained plainly."
        interval = f"95 % interval {percent(self.rate.low)} to {percent(self.rate.high)}"
        return f"About {percent(self.rate.value)} of the labels are wrong ({interval}); {self.flagged:,} are flagged."

    def _accuracy(self) -> str:
        more = [
            f"{name} {100 * found.value:.1f} %" for name, found in
            (("balanced accuracy", self.model.balanced_accuracy), ("AUC", self.model.auc)) if found is not None
        ]  # fmt: skip
        text = f"On correct labels the model is right in {self.model.accuracy}, estimated without them"
        if self.model.test_accuracy is not None:
            more.append(f"measured on the test split {100 * self.model.test_accuracy:.1f} %")
        return "; ".join([text, *more]) + "."

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
            own = {"rate": Estimate(*map(float, facts["rate"])), "model": Leader.of(facts["model"]), "plain": plain}
            lists = {name: tuple(facts[name]) for name in ("classes", "recalls", "first", "notes")}
            return cls(**{**facts, **own, **lists, "dropped": tuple((name, why) for name, why in facts["dropped"])})
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"the verdict of a model is damaged: {type(error).__name__} {str(error)[:200]}") from error
