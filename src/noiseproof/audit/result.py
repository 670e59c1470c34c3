"""The result of an audit: the posterior of every label, the noise, class by class, warnings, a summary."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from noiseproof.audit.stacking import expected_by_label
from noiseproof.io.arrays import NpzFile
from noiseproof.io.files import save_arrays, write_whole
from noiseproof.io.text import cell, csv_line, printable
from noiseproof.noise import load_labels, read_soft_labels

AUDIT_COLUMNS = ("index", "path", "given", "suggested", "p_wrong", "p_suggested", "flagged", "fold", "warning")
POSTERIOR_FILE, RATE_ARRAY = "posterior.npz", "rate"
NO_LIKELY_LABEL = "no label is more likely than not"
MAX_FLAGGED_SHARE = 0.5
MIN_AGREEMENT, MIN_AGREEMENT_OF_RIGHT = 0.4, 0.85
"""Predictions are weak that agree with fewer of the labels than the first, or than the second of those that should be right.
On digits with a few pixels left and no or 20 % noise the latter is 0.75 to 0.83 where the rate is 8 to 37 points too high, 0.93
where it is 2; with all pixels and up to 40 % noise 0.89 or more"""
MIN_GAIN_ON_CHANCE = 0.1
"""Of the labels that are not of the largest class, the share that predictions must find beyond that class to tell anything"""
MIN_LABELS_PER_CLASS = 50
"""Labels to a class below which unsure predictions fit those at hand too well: of 10 classes with 5, 10 and 20 labels each,
none wrong, and predictions right in two of three, the interval began above 0 in 58, 51 and 10 of 60 draws, with 50 in none"""
CLEAN_RATE = 0.005
"""A rate below this is hardly any; by weak predictions it is no bound"""
MIN_UNDECIDED = 0.1
"""Where the interval reaches from 0 to this or further, the data do not tell whether labels are wrong or hard to predict"""
MIN_RATE_WARNED = 0.02
"""A rate from which on a warning says that the interval begins at 0: the labels may all be right"""
CLOSE_SECOND = 0.15
"""By how much the clean label must lead the next one in its row of T for suggestions between the two to be more than guesses"""
MAX_CONFUSIONS, MAX_CONFUSIONS_LISTED = 1000, 100
"""Pairs of classes in an audit, and in :meth:`Audit.as_dict`"""
MAX_NAMED = 3  # confusions and classes in a summary
MAX_NAME_LENGTH = 40
STANDS_OUT, STANDS_OUT_BY, MOST_OF_ALL = 3, 5, 2 / 3
"""A confusion stands out that has this many times the wrong labels that it would have if all pairs had as many, and so many
more, which of up to 50 classes one has by chance in 2 % of cases or fewer, of 100 in 8 %; or this share of all wrong labels"""


@dataclass(frozen=True)
class ClassAudit:
    """What was found among the labels of one class.

    Attributes:
        label: The class as a label.
        name: Its name.
        given: Examples with this label.
        flagged: Those of them that are probably wrong.
        rate: The expected share of them that is wrong.
        expected: How many examples are of this class, by the posterior.
        kept: ``transition[label, label]``: the probability that an example of this class has its own label.
        mistaken_for: The other label that its examples are given most often.
        warning: What to know before acting on it.
        mostly_flagged: Too many are flagged for the flags to be trusted: the class may be rare, and most of its labels noise.

    Example:
        >>> import noiseproof
        >>> p = np.array([[0.9, 0.1], [0.1, 0.9]] * 100)
        >>> found = noiseproof.audit_probabilities(p, [0, 1] * 90 + [1, 0] * 10, classes=["cat", "dog"]).per_class[1]
        >>> found.name, found.given, found.flagged
        ('dog', 100, 10)
    """

    label: int
    name: str
    given: int
    flagged: int
    rate: float
    expected: float
    kept: float
    mistaken_for: int
    warning: str = ""
    mostly_flagged: bool = False

    @property
    def estimated(self) -> bool:
        """Whether there are examples to estimate its row of the matrix from; if not, the row is that of the mean rate."""
        return self.expected >= 1


def _warning(found: ClassAudit, close: str | None) -> str:
    """What to beware of in a class; ``close`` is the label that its examples are given almost as often as their own."""
    said = []
    if not found.given:
        said.append("no example has this label")
    elif found.mostly_flagged:
        way = "look at them before you remove any or train on soft labels, which would remove them too"
        said.append(f"{found.flagged} of its {found.given} labels are flagged: {way}")
    elif close is not None and found.estimated:
        said.append(f"its examples are called {close} almost as often: suggestions between the two are guesses")
    if not found.estimated:
        learnt = ": perhaps it was not learnt" if found.given else ""
        said.append(f"hardly any example seems to be of it{learnt}; its row of the matrix is the mean rate, not an estimate")
    return "; ".join(said)


class Confusion(NamedTuple):
    """Examples of one class that are labelled as another."""

    true: int
    given: int
    expected: float
    """How many there are, by the posterior"""
    flagged: int
    """How many of them are flagged"""


@dataclass(frozen=True)
class Audit:
    """How likely each label is wrong and which label is likely right; the noise rate; the transition matrix.

    :func:`noiseproof.audit_labels` and :func:`noiseproof.audit_probabilities` return it.

    Attributes:
        given: The given labels ``[N]``.
        posterior: The probability ``[N, K]`` of every class to be the true one.
        transition: ``transition[i, j]`` is the estimated probability that an example of class i is given the label j.
        rate: The noise rate: the expected share of wrong labels.
        rate_interval: From errors of the predictions taken for wrong labels to all labels of ambiguous examples, and 95 % for
            sampling.
        agreement: The share of examples whose given label is the predicted one; low if predictions are weak or noise is high.
        classes: The names of the classes.
        how: How it was computed, in a sentence.
        fold: The fold ``[N]`` that each example was held out in; None if none was held out.
        out_of_sample: Whether the predictions are of networks that were not trained on the example.
        notes: What to know of how the predictions were made; part of the warnings.
        least_rate: The rate if noise is class-conditional: easy and ambiguous examples are mistaken alike; None if that is the
            rate.

    Example:
        >>> import noiseproof
        >>> p = np.array([[0.9, 0.1], [0.1, 0.9]] * 100)
        >>> audit = noiseproof.audit_probabilities(p, [0, 1] * 90 + [1, 0] * 10, classes=["cat", "dog"])
        >>> audit.flagged.sum().item(), audit.classes[audit.suggested[180]]
        (20, 'cat')
        >>> print(audit)
        7.0% of 200 labels are wrong (95 % interval 0.0% to 14.2%); 20 are flagged; predictions and given labels agree in 90.0%
    """

    given: NDArray[np.int64]
    posterior: NDArray[np.float32]
    transition: NDArray[np.float64]
    rate: float
    rate_interval: tuple[float, float]
    agreement: float
    classes: tuple[str, ...]
    how: str
    fold: NDArray[np.int64] | None = None
    out_of_sample: bool = True
    notes: tuple[str, ...] = ()
    least_rate: float | None = None

    @functools.cached_property
    def p_wrong(self) -> NDArray[np.float32]:
        """The probability that each given label is wrong."""
        return np.asarray(1 - self.posterior[np.arange(len(self.given)), self.given])

    @functools.cached_property
    def suggested(self) -> NDArray[np.int64]:
        """The likeliest label of each example."""
        return np.asarray(self.posterior.argmax(1))

    @functools.cached_property
    def flagged(self) -> NDArray[np.bool_]:
        """Labels that are more likely wrong than right."""
        return np.asarray(self.p_wrong > 0.5)

    @functools.cached_property
    def per_class(self) -> tuple[ClassAudit, ...]:
        """The classes, in the order of their labels."""
        number = len(self.classes)
        given = np.bincount(self.given, minlength=number).tolist()
        flagged = np.bincount(self.given[self.flagged], minlength=number).tolist()
        wrong = np.bincount(self.given, self.p_wrong, number).tolist()
        expected = self.posterior.sum(0, dtype=np.float64).tolist()
        found = []
        for label, name in enumerate(self.classes):
            others, kept = self.transition[label].copy(), float(self.transition[label, label])
            others[label] = -1.0  # the diagonal is never the largest
            rival = int(others.argmax())
            rate, most = wrong[label] / max(given[label], 1), flagged[label] > MAX_FLAGGED_SHARE * given[label]
            one = ClassAudit(label, name, given[label], flagged[label], rate, expected[label], kept, rival, "", most)
            close = kept - others[rival] < CLOSE_SECOND
            found.append(replace(one, warning=_warning(one, short_name(self.classes[rival]) if close else None)))
        return tuple(found)

    @functools.cached_property
    def confusions(self) -> tuple[Confusion, ...]:
        """Pairs of a likely and a given label, the most frequent first, up to ``MAX_CONFUSIONS`` of half an example or more."""
        found = []
        for given, rows, expected in expected_by_label(self.posterior, self.given):
            flags = np.bincount(self.suggested[rows][self.flagged[rows]], minlength=len(self.classes))
            expected[given] = 0.0
            likely = np.flatnonzero(expected >= 0.5).tolist()
            found += [Confusion(true, given, float(expected[true]), int(flags[true])) for true in likely]
        return tuple(sorted(found, key=lambda each: -each.expected)[:MAX_CONFUSIONS])

    @property
    def weak(self) -> bool:
        """Whether the predictions are too weak for the rate to be more than a bound: what they cannot tell looks wrong."""
        if self.rate < CLEAN_RATE and self.rate_interval[1] < MIN_UNDECIDED:
            return False
        return self.agreement < max(MIN_AGREEMENT, MIN_AGREEMENT_OF_RIGHT * (1 - self._least))

    @property
    def _uninformative(self) -> bool:
        """Whether predictions agree with hardly more of the labels than the largest class alone does."""
        return self.agreement - self._largest_share < MIN_GAIN_ON_CHANCE * (1 - self._largest_share)

    @property
    def _largest_share(self) -> float:
        return float(np.bincount(self.given).max() / len(self.given))

    @property
    def _least(self) -> float:
        return self.rate if self.least_rate is None else self.least_rate

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader should know before acting on it; what concerns all labels first, then class by class."""
        found = list(self.notes)
        there = len(np.unique(self.given))
        if len(self.given) < MIN_LABELS_PER_CLASS * there and self.rate >= CLEAN_RATE:
            said = f"there are {len(self.given)} labels of {there} classes, fewer than {MIN_LABELS_PER_CLASS} to a class"
            found.insert(0, f"{said}: unless predictions are sure, the rate is likely too high, and its interval too")
        if self.weak:
            perfect = f"{1 - self._least:.0%}" if self.rate >= CLEAN_RATE else f"{1 - self.rate_interval[1]:.0%} to 100%"
            said = f"predictions agree with only {self.agreement:.0%} of the labels, perfect ones would with {perfect}"
            follows = "they are weak and may take hard examples for wrong labels, so the rate is probably too high"
            if self.flagged.any():
                follows += "; check the flagged labels before you act on them"
            if self.rate < CLEAN_RATE:
                high = f"{self.rate_interval[1]:.0%}"
                follows = f"they cannot tell wrong labels from hard examples, and up to {high} of the labels may be wrong"
            found.insert(0, f"{said}: {follows}")
        elif self.rate_interval[0] > 0 and self._uninformative:
            alone = f"the largest class alone with {self._largest_share:.0%}"
            said = f"predictions agree with {self.agreement:.0%} of the labels, {alone}"
            follows = "the inputs tell too little of the labels to distinguish wrong ones from hard examples"
            found.insert(0, f"{said}: {follows}, so the rate is a guess")
        elif self.rate_interval[0] == 0 and self.rate >= MIN_RATE_WARNED:
            said = "the interval begins at 0: errors of the predictions would explain all that looks wrong"
            found.insert(0, f"{said}, and every label may be right; look at those flagged before you act on the rate")
        return (*found, *(f"class {each.name}: {each.warning}" for each in self.per_class if each.warning))

    def __str__(self) -> str:
        low, high = self.rate_interval
        share = f"{f'at most {high:.1%}, perhaps ' if self.weak else ''}{self.rate:.1%} of {len(self.given)} labels are wrong"
        share += f" (95 % interval {low:.1%} to {high:.1%})"
        return f"{share}; {int(self.flagged.sum())} are flagged; predictions and given labels agree in {self.agreement:.1%}"

    def __repr__(self) -> str:
        return f"<Audit: {self}>"

    def summary(self) -> AuditSummary:
        """Return how noisy the labels are, how certain that is, what is confused with what, and where to look first.

        Returns:
            A headline and sentences; ``str`` of it is the text.

        Example:
            >>> import noiseproof
            >>> p = np.array([[0.9, 0.1], [0.1, 0.9]] * 100)
            >>> print(noiseproof.audit_probabilities(p, [0, 1] * 90 + [1, 0] * 10).summary().headline)
            About 7.0 % of the 200 labels are wrong
        """
        return AuditSummary(_headline(self), _sentences(self))

    def as_dict(self) -> dict[str, Any]:
        """Return the audit without its arrays, as JSON can hold it.

        Returns:
            The rate, its interval, warnings, the classes, and up to 100 confusions.

        Example:
            >>> import noiseproof
            >>> p = np.array([[0.9, 0.1], [0.1, 0.9]] * 100)
            >>> noiseproof.audit_probabilities(p, [0, 1] * 90 + [1, 0] * 10).as_dict()["flagged"]
            20
        """
        return {
            "examples": len(self.given),
            "rate": self.rate,
            "rate_interval": self.rate_interval,
            "flagged": int(self.flagged.sum()),
            "agreement": self.agreement,
            "weak": self.weak,
            "out_of_sample": self.out_of_sample,
            "how": self.how,
            "warnings": self.warnings,
            "classes": [vars(each) for each in self.per_class],
            "confusions": [each._asdict() for each in self.confusions[:MAX_CONFUSIONS_LISTED]],
        }

    def save(self, folder: str | Path, *, paths: Sequence[str] | None = None, own: ArrayLike | None = None) -> None:
        """Write ``audit.csv``, a line for each label, ``transition.csv`` and ``posterior.npz``.

        In ``audit.csv`` text that a spreadsheet would take for a formula has an apostrophe before it. ``posterior.npz`` has
        arrays ``posterior``, ``given``, ``classes``, ``rate``, the rate with the ends of its interval, and, if it is known,
        ``own``; ``noiseproof train --labels`` reads it as soft labels, and refuses it for data whose own labels are others.

        Args:
            folder: Where the files are written; it is created if it is not there.
            paths: A name for each example.
            own: The labels ``[N]`` that the data contain themselves: the audited ones, unless these came from elsewhere.

        Raises:
            ValueError: If there is not one path for each label.

        Example:
            >>> import noiseproof, tempfile
            >>> p = np.array([[0.9, 0.1], [0.1, 0.9]] * 100)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     noiseproof.audit_probabilities(p, [0, 1] * 90 + [1, 0] * 10).save(folder)
            ...     sorted(path.name for path in Path(folder).iterdir())
            ['audit.csv', 'posterior.npz', 'transition.csv']
        """
        _save(self, Path(folder), paths, own)

    def datalab_columns(self) -> dict[str, NDArray[Any]]:
        """Return the columns of cleanlab's ``Datalab.get_issues("label")``.

        Returns:
            Whether each label is flagged, its score in [0, 1], which is lower the likelier the label is wrong, and the given
            and the likely label by name.

        Example:
            >>> import noiseproof
            >>> p = np.array([[0.9, 0.1], [0.1, 0.9]] * 100)
            >>> columns = noiseproof.audit_probabilities(p, [0, 1] * 90 + [1, 0] * 10).datalab_columns()
            >>> columns["is_label_issue"].sum().item(), columns["predicted_label"][180].item()
            (20, '0')
        """
        names = np.asarray(self.classes)
        return {
            "is_label_issue": self.flagged,
            "label_score": 1 - self.p_wrong,
            "given_label": names[self.given],
            "predicted_label": names[self.suggested],
        }


class AuditSummary(NamedTuple):
    """What an audit found, in a headline and sentences."""

    headline: str
    sentences: list[str]

    def __str__(self) -> str:
        return "\n".join([self.headline, *self.sentences])


def _headline(audit: Audit) -> str:
    count, high = len(audit.given), audit.rate_interval[1]
    if audit.weak and audit.rate < CLEAN_RATE:
        return f"Predictions are too weak to say which of the {count:,} labels are wrong"
    if audit.rate < CLEAN_RATE:
        return f"Hardly any of the {count:,} labels looks wrong: {percent(audit.rate)}"
    if audit.weak:
        suggested = f"weak predictions suggest {percent(audit.rate)}"
        return f"At most about {percent(high)} of the {count:,} labels are wrong; {suggested}"
    return f"About {percent(audit.rate)} of the {count:,} labels are wrong"


def _sentences(audit: Audit) -> list[str]:
    count, flagged, (low, high) = len(audit.given), int(audit.flagged.sum()), audit.rate_interval
    flags = "1 label is flagged" if flagged == 1 else f"{flagged:,} labels are flagged"
    where = "Out-of-sample" if audit.out_of_sample else "In-sample"
    undecided = audit.rate < CLEAN_RATE and high >= MIN_UNDECIDED
    perfect = f"{percent(1 - high)} to {percent(1 - low)}" if undecided else percent(1 - audit.rate)
    sentences = [
        f"95 % interval {percent(low)} to {percent(high)}; {flags}, more likely wrong than right.",
        f"{where} predictions agree with {percent(audit.agreement)} of the labels. Perfect ones would agree with "
        f"{perfect}; the wider this gap, the less certain the rate.",
    ]
    names = [short_name(name) for name in audit.classes]
    if pairs := audit.confusions[:MAX_NAMED]:
        listed = ", ".join(f"{names[each.true]} labelled as {names[each.given]} ({each.expected:.0f})" for each in pairs)
        wrong = count * audit.rate
        threshold = min(STANDS_OUT * wrong / (len(names) * (len(names) - 1)) + STANDS_OUT_BY, MOST_OF_ALL * wrong)
        begin = "Most often" if pairs[0].expected > threshold else "No confusion stands out; most often"
        sentences.append(f"{begin}: {listed}.")
    worst = sorted((each for each in audit.per_class if each.flagged), key=lambda each: -each.rate)[:MAX_NAMED]
    if worst:
        listed = ", ".join(f"{names[each.label]} ({each.flagged:,} of {each.given:,} flagged)" for each in worst)
        sentences.append(f"Look first at the labels {listed}.")
    return sentences


def short_name(name: str) -> str:
    """A class's or column's name as it may be shown, cut where it is long."""
    shown = printable(name)
    return shown if len(shown) <= MAX_NAME_LENGTH else shown[: MAX_NAME_LENGTH - 1] + "…"


def percent(share: float) -> str:
    """A share in percent; one that is not quite 0 or 1 is not rounded to it.

    >>> percent(0.1234), percent(0.9999), percent(0.0), percent(0.00004)
    ('12.3 %', 'over 99.9 %', '0.0 %', 'under 0.1 %')
    """
    if 0 < share < 0.001:
        return "under 0.1 %"
    return "over 99.9 %" if 0.999 < share < 1 else f"{100 * share:.1f} %"


def _save(audit: Audit, folder: Path, paths: Sequence[str] | None, own: ArrayLike | None) -> None:
    """Write ``audit.csv``, ``transition.csv`` and ``posterior.npz``, each whole or not at all."""
    if paths is not None and len(paths) != len(audit.given):
        raise ValueError(f"there must be one path for each label: {len(audit.given)} labels, {len(paths)} paths")
    folder.mkdir(parents=True, exist_ok=True)
    names = [cell(name) for name in audit.classes]
    shares = zip(names, audit.transition, strict=True)
    matrix = ([name, *(f"{share:.6f}" for share in row.tolist())] for name, row in shares)
    _write_csv(folder / "audit.csv", [AUDIT_COLUMNS, *_lines(audit, names, paths)])
    _write_csv(folder / "transition.csv", itertools.chain([["true \\ given", *names]], matrix))
    posterior: dict[str, Any] = {"posterior": audit.posterior, "given": audit.given, "classes": np.asarray(audit.classes)}
    posterior[RATE_ARRAY] = np.array([audit.rate, *audit.rate_interval])
    if own is not None:
        posterior["own"] = np.asarray(own, np.int64)
    write_whole(folder / POSTERIOR_FILE, lambda path: save_arrays(path, posterior))


def _lines(audit: Audit, names: list[str], paths: Sequence[str] | None) -> Iterator[tuple[object, ...]]:
    rows = np.arange(len(audit.given))
    likeliest = audit.posterior[rows, audit.suggested]
    warnings = [cell(each.warning) for each in audit.per_class]
    columns = (audit.given, audit.suggested, audit.p_wrong, likeliest, audit.flagged, audit.flagged & (likeliest < 0.5))
    folds = [""] * len(rows) if audit.fold is None else audit.fold.tolist()
    found = zip(*(column.tolist() for column in columns), folds, strict=True)
    for index, (given, suggested, wrong, likely, flagged, unsure, fold) in enumerate(found):
        warning = "; ".join(filter(None, (warnings[given], NO_LIKELY_LABEL if unsure else "")))
        path = "" if paths is None else cell(paths[index])
        yield index, path, names[given], names[suggested], f"{wrong:.6f}", f"{likely:.6f}", int(flagged), fold, warning


def saved_rate(folder: Path, classes: int) -> tuple[float, tuple[float, float] | None] | None:
    """The noise rate of the audit that was saved in a folder, and its interval; None if its posteriors are not there."""
    if not (path := folder / POSTERIOR_FILE).is_file():
        return None
    found = read_soft_labels(path, len(load_labels(path, "given")), classes)
    if found is None:
        return None
    rate = 1 - float(found.probabilities[np.arange(len(found.given)), found.given].mean(dtype=float))
    with NpzFile(path) as file:
        saved = file.array(RATE_ARRAY) if RATE_ARRAY in file.names else np.empty(0)
    if saved.shape != (3,) or not ((saved >= 0) & (saved <= 1)).all():  # an audit of before has none
        return rate, None
    return float(saved[0]), (float(saved[1]), float(saved[2]))


def _write_csv(path: Path, rows: Iterable[Sequence[object]]) -> None:
    def write(partial: Path) -> None:
        with partial.open("w", encoding="utf-8") as file:
            file.writelines(map(csv_line, rows))

    write_whole(path, write)
