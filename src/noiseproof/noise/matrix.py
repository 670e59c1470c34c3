"""Label noise by a transition matrix: the matrices, how labels are drawn from one, and what noise says of an accuracy.

The same seed gives the same labels on every machine: beyond the random numbers there are only integers and sorting. One key is
drawn per example, in the order of the examples, and classes are ranked by the smallest key among their examples. So nothing
depends on how the classes are numbered: renaming them renames the noisy labels, and does no more. Only classes without an
example have no key, and are ranked last by their numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from noiseproof.checks import check_integer, check_range
from noiseproof.io.arrays import read_npy, read_table
from noiseproof.io.files import ReadError, label_hash, wrong_suffix
from noiseproof.io.text import csv_rows, excerpt, read_json
from noiseproof.keyed_random import random_keys, random_uniform

Rule = Literal["exact", "draws", "published"]
RULES: tuple[Rule, ...] = ("exact", "draws", "published")
Labels = NDArray[np.int64]


def corrupt(labels: Labels, matrix: NDArray[np.float64], seed: int, rule: Rule) -> Labels:
    """The labels after the noise: label i becomes j with probability ``matrix[i, j]``, by one of the rules."""
    keys = random_keys(seed, len(labels))
    order = np.argsort(keys, kind="stable")
    ranking = _ranking(labels[order], len(matrix))
    noisy = labels.copy()
    uniform = random_uniform(seed, len(labels), 1) if rule == "draws" else None
    by_class = order[np.argsort(labels[order], kind="stable")]
    present, starts = np.unique(labels[by_class], return_index=True)
    # Of no labels, the split is one empty part.
    for clean, members in zip(present, np.split(by_class, starts[1:]), strict=False):
        if uniform is not None:
            noisy[members] = ranking[_draw(matrix[clean][ranking], uniform[members])]
            continue
        counts = _counts(matrix[clean][ranking], len(members), int(np.flatnonzero(ranking == clean)[0]), rule)
        noisy[members] = np.repeat(ranking, counts)
    return noisy


def exact_counts(probabilities: NDArray[np.float64], total: int) -> Labels:
    """``total`` items shared out by largest remainder: each count is a share rounded up or down, and they add up.

    >>> exact_counts(np.array([0.5, 0.3, 0.2]), 7).tolist()
    [4, 2, 1]
    """
    shares = probabilities * total
    # A share that is whole in exact arithmetic may be a rounding error below: 0.2 * 15 / 3 must not lose an item for it.
    whole = np.floor(shares + 1e-9)
    remainders = np.round(shares - whole, 9)
    missing = total - int(whole.sum())
    up = np.argsort(-remainders, kind="stable")[:missing]
    counts: Labels = whole.astype(np.int64)
    counts[up] += 1
    return counts


def _counts(probabilities: NDArray[np.float64], total: int, clean: int, rule: Rule) -> Labels:
    whole = probabilities.sum()
    if abs(whole - 1) > 1e-9:  # as decimals in a file may; of a million labels that would be one too many
        probabilities = probabilities / whole
    if rule == "exact":
        return exact_counts(probabilities, total)
    # The published code moves int(T[i, j] * n) labels and leaves the rest, so the realised rate is below the asked one.
    counts: Labels = (probabilities * total).astype(np.int64)
    counts[clean] = 0
    counts[clean] = total - int(counts.sum())
    return counts


def _draw(probabilities: NDArray[np.float64], uniform: NDArray[np.float64]) -> Labels:
    edges = np.cumsum(probabilities)
    chosen: Labels = np.searchsorted(edges / edges[-1], uniform, side="right")
    return chosen


def _ranking(labels_by_key: Labels, classes: int) -> Labels:
    """Classes by the smallest key among their examples; those without an example last."""
    present, first = np.unique(labels_by_key, return_index=True)
    absent = np.setdiff1d(np.arange(classes), present)
    ranked: Labels = np.concatenate([present[np.argsort(first)], absent])
    return ranked


MOVES = {
    "cifar10": {9: 1, 2: 0, 4: 7, 3: 5, 5: 3},
    "mnist": {7: 1, 2: 7, 5: 6, 6: 5, 3: 8},
}
"""Asymmetric noise, source class to destination: truck to automobile, bird to airplane, deer to horse, cat and dog swapped;
seven to one, two to seven, five and six swapped, three to eight."""
CIFAR100_SUPERCLASSES = (
    4, 1, 14, 8, 0, 6, 7, 7, 18, 3, 3, 14, 9, 18, 7, 11, 3, 9, 7, 11, 6, 11, 5, 10, 7, 6, 13, 15, 3, 15, 0, 11, 1, 10, 12,
    14, 16, 9, 11, 5, 5, 19, 8, 8, 15, 13, 14, 17, 18, 10, 16, 4, 17, 4, 2, 0, 17, 4, 18, 17, 10, 3, 2, 12, 12, 16, 12, 1,
    9, 19, 2, 10, 0, 1, 16, 12, 9, 13, 15, 13, 16, 19, 2, 4, 6, 19, 5, 5, 8, 19, 18, 1, 2, 15, 6, 0, 17, 8, 14, 13,
)  # fmt: skip
"""The super-class of each class of CIFAR-100"""
ASYMMETRIC = {"cifar10": 10, "cifar100": 100, "cifar100-blocks": 100, "mnist": 10}
"""The kinds of asymmetric noise, and their numbers of classes."""
MATRIX_FILES: dict[str, Callable[[Path], Any]] = {
    ".npy": read_npy,
    ".csv": lambda path: read_matrix_table(path),
    ".json": lambda path: rows_of_numbers(read_json(path)),
}
"""What reads a transition matrix, by a file's suffix."""
TRANSITION = "transition.csv"
"""The matrix in the folder of an audit"""
CORNER = "true \\ given"
"""The first field of a matrix whose rows and columns have names, as an audit writes it"""
ROW_SUM_TOLERANCE = 1e-6
"""Of its entries: rows of them sum to 1 up to their rounding"""


@dataclass(frozen=True)
class NoisyLabels:
    """Labels with noise, and what it changed.

    Attributes:
        labels: The labels with noise.
        mask: Where the label was changed.
        rate: The realised share of changed labels.
        hash: Identifies the labels, see :func:`label_hash`.
        clean: The labels before the noise.
        classes: Number of classes.
        seed: Of the noise; None for labels that were read.
        rule: How labels were drawn; None for labels that were read.

    >>> noisy = symmetric(2, 0.5).apply([0, 0, 1, 1], seed=0)
    >>> noisy.rate, noisy.matrix.tolist()
    (0.5, [[0.5, 0.5], [0.5, 0.5]])
    """

    labels: Labels
    mask: NDArray[np.bool_]
    """Where the label was changed"""
    rate: float
    """The realised share of changed labels"""
    hash: str
    """Identifies the labels; see :func:`label_hash`"""
    clean: Labels = field(repr=False)
    classes: int
    seed: int | None = None
    rule: Rule | None = None

    @staticmethod
    def compare(clean: ArrayLike, noisy: ArrayLike, classes: int, **facts: Any) -> NoisyLabels:
        """Compare clean and noisy labels of the same examples.

        Args:
            clean: Labels before the noise.
            noisy: Labels after it.
            classes: Number of classes.
            **facts: ``seed`` and ``rule``, if they are known.

        Returns:
            The noisy labels with mask, rate and hash.

        Raises:
            ValueError: If they are not as many.
        """
        before, after = as_labels(clean, classes, "clean labels"), as_labels(noisy, classes, "noisy labels")
        if before.shape != after.shape:
            raise ValueError(f"clean and noisy labels must be as many: {len(before)} and {len(after)}")
        mask = before != after
        rate = float(mask.mean()) if len(mask) else 0.0
        return NoisyLabels(after, mask, rate, label_hash(after), before, classes, **facts)

    @cached_property
    def matrix(self) -> NDArray[np.float64]:
        """The realised transition matrix: ``matrix[i, j]`` is the share of clean label i that is now j; zeros for a class
        without examples."""
        counts = np.zeros((self.classes, self.classes))
        np.add.at(counts, (self.clean, self.labels), 1)
        counts /= np.maximum(counts.sum(1, keepdims=True), 1)
        return counts


@dataclass(frozen=True)
class LabelNoise:
    """A transition matrix, ``matrix[i, j] = P(given j | clean i)``, and a name that says where it comes from.

    Args:
        matrix: Rows of probabilities that sum to one.
        name: Where it comes from.
        parameters: What it was made from, for manifests.

    >>> noise = symmetric(10, 0.8)
    >>> noisy = noise.apply(np.arange(1000) % 10, seed=0)
    >>> noisy.rate  # 80 % is 80 %
    0.8
    """

    matrix: NDArray[np.float64]
    name: str = "matrix"
    parameters: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "matrix", checked_matrix(self.matrix))

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self.matrix)

    @property
    def noise_rate(self) -> float:
        """The probability that a label changes, all classes equally frequent."""
        return float(1 - np.trace(self.matrix) / self.classes)

    def apply(self, labels: ArrayLike, seed: int, rule: Rule = "exact") -> NoisyLabels:
        """Draw noisy labels. The same seed gives the same labels everywhere.

        Args:
            labels: Clean labels ``[N]``.
            seed: Of the noise.
            rule: ``exact`` changes exactly as many labels as the matrix says, rounded by largest remainder; ``draws`` draws
                each label on its own; ``published`` truncates the counts as the published code does, so that the realised
                rate is lower (0.792 of 0.8 on CIFAR-100).

        Returns:
            The noisy labels, the flip mask, the realised matrix and rate, and a hash.

        Raises:
            ValueError: If the rule is unknown.
        """
        if rule not in RULES:
            raise ValueError(f"rule must be one of {', '.join(RULES)}, got {rule!r}")
        seed = check_integer("seed", seed)
        clean = as_labels(labels, self.classes, "labels")
        noisy = corrupt(clean, self.matrix, seed, rule)
        return NoisyLabels.compare(clean, noisy, self.classes, seed=seed, rule=rule)


def symmetric(classes: int, rate: float) -> LabelNoise:
    """Return symmetric noise: a label changes to any other class equally likely.

    Args:
        classes: Number of classes.
        rate: Probability that a label changes.

    Returns:
        The noise.

    >>> symmetric(3, 0.2).matrix.round(2).tolist()
    [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]]
    """
    classes, rate = check_integer("classes", classes, at_least=2), check_range("rate", rate, at_least=0, at_most=1)
    matrix = np.full((classes, classes), rate / (classes - 1))
    np.fill_diagonal(matrix, 1 - rate)
    return LabelNoise(matrix, "symmetric", {"classes": classes, "rate": rate})


def asymmetric(kind: str, rate: float) -> LabelNoise:
    """Return asymmetric noise: labels of some classes change to one similar class.

    Args:
        kind: ``cifar10`` and ``mnist`` move the usual pairs; ``cifar100`` moves a label to the next one of its
            super-class, as papers define it; ``cifar100-blocks`` to the next one in its block of five consecutive
            labels, as the code behind published numbers does.
        rate: Probability that a label of these classes changes.

    Returns:
        The noise.

    Raises:
        ValueError: If there is no such kind.

    >>> asymmetric("cifar10", 0.4).matrix[9, [1, 9]].tolist()  # truck to automobile
    [0.4, 0.6]
    """
    if kind not in ASYMMETRIC:
        raise ValueError(f"asymmetric noise is defined for {', '.join(ASYMMETRIC)}, got {kind!r}; use from_matrix for others")
    if kind == "cifar100":
        groups = [[k for k in range(100) if CIFAR100_SUPERCLASSES[k] == group] for group in range(20)]
        moves = {k: group[(i + 1) % 5] for group in groups for i, k in enumerate(group)}
    elif kind == "cifar100-blocks":
        moves = {k: 5 * (k // 5) + (k + 1) % 5 for k in range(100)}
    else:
        moves = MOVES[kind]
    return _moving(ASYMMETRIC[kind], moves, rate, f"asymmetric-{kind}")


def pairflip(classes: int, rate: float) -> LabelNoise:
    """Return pair noise: every label changes to the next class with one probability.

    Args:
        classes: Number of classes.
        rate: Probability that a label changes.

    Returns:
        The noise.

    >>> pairflip(3, 0.2).matrix.tolist()
    [[0.8, 0.2, 0.0], [0.0, 0.8, 0.2], [0.2, 0.0, 0.8]]
    """
    classes = check_integer("classes", classes, at_least=2)
    return _moving(classes, {k: (k + 1) % classes for k in range(classes)}, rate, "pairflip")


def from_matrix(matrix: ArrayLike) -> LabelNoise:
    """Return noise with this transition matrix.

    Args:
        matrix: ``matrix[i, j] = P(given j | clean i)``; rows must sum to one.

    Returns:
        The noise.

    >>> from_matrix([[0.9, 0.1], [0.3, 0.7]]).noise_rate.__round__(2)
    0.2
    """
    return LabelNoise(np.asarray(matrix, dtype=np.float64))


def from_file(path: str | Path) -> LabelNoise:
    """Return noise with the transition matrix in a file or in the folder of an audit.

    Args:
        path: A ``.npy``, ``.csv`` or ``.json`` file, or a folder that 'noiseproof audit' has written.

    Returns:
        The noise.

    Raises:
        FileNotFoundError: If there is no such file or folder.
        ValueError: If the file contains no transition matrix.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/T.npy", np.eye(3))
    ...     from_file(f"{folder}/T.npy").noise_rate
    0.0
    """
    path = Path(path).expanduser()
    if path.is_dir() and path.suffix not in MATRIX_FILES:
        if not (path / TRANSITION).is_file():
            raise ValueError(f"{path}: not the folder of an audit, it has no {TRANSITION}; 'noiseproof audit' makes one")
        path = path / TRANSITION
    if path.suffix not in MATRIX_FILES:
        raise wrong_suffix(path, "a transition matrix is", MATRIX_FILES)
    try:
        return LabelNoise(MATRIX_FILES[path.suffix](path), "file", {"file": path.name})
    except ReadError as error:
        raise ValueError(f"{path}: no transition matrix: {error.fault}") from error
    except ValueError as error:
        raise ValueError(f"{path}: no transition matrix: {error}") from error


class LabelError(ValueError):
    """Labels outside the range of the classes."""


def as_labels(labels: ArrayLike, classes: int, name: str) -> Labels:
    """The labels as int64, checked to be class indices."""
    array = np.asarray(labels)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise TypeError(f"{name} must be a vector of integers, got {array.dtype} of shape {array.shape}")
    if array.size and not (array.min() >= 0 and array.max() < classes):
        wrong = array[(array < 0) | (array >= classes)][0]
        raise LabelError(f"{name} must be in [0, {classes - 1}] for {classes} classes, got {wrong}")
    return array.astype(np.int64)


def checked_matrix(matrix: ArrayLike) -> NDArray[np.float64]:
    """A square matrix of probabilities whose rows sum to one, as a read-only copy."""
    array = np.array(matrix, dtype=np.float64)
    if array.ndim != 2 or array.shape[0] != array.shape[1] or len(array) < 2:
        raise ValueError(f"a transition matrix must be square with at least 2 classes, got shape {array.shape}")
    if not np.isfinite(array).all() or array.min() < 0:
        raise ValueError("a transition matrix must hold probabilities, got a negative or non-finite entry")
    sums = array.sum(1)
    worst = int(np.argmax(np.abs(sums - 1)))
    if abs(sums[worst] - 1) > 1e-6:
        raise ValueError(f"rows of a transition matrix must sum to 1, row {worst} sums to {sums[worst]:.6g}")
    array.setflags(write=False)
    return array


def rows_of_numbers(rows: Any) -> NDArray[np.float64]:
    """A matrix from JSON: a list of lists of numbers, all of one length."""
    if type(rows) is not list or not all(type(row) is list and len(row) == len(rows[0]) for row in rows):
        raise ValueError("it should be a list of lists of one length")
    if not all(type(value) in (int, float) for row in rows for value in row):
        raise ValueError("its entries should be numbers")
    try:
        return np.array(rows, dtype=np.float64)
    except OverflowError:
        raise ValueError("an entry is larger than any probability") from None


def read_matrix_table(path: Path) -> NDArray[np.float64]:
    """A matrix in a CSV file: numbers alone, or as an audit writes it, with the names of the classes around them."""
    rows = csv_rows(path)
    _, header = next(rows, (0, []))
    if header[:1] != [CORNER]:
        return np.asarray(read_table(path))
    body = list(rows)
    if [row[0] for _, row in body] != header[1:]:
        raise ReadError(path, "its rows and its columns must have the same names in the same order")
    matrix = np.empty((len(body), len(body)))
    for k, (number, row) in enumerate(body):
        try:
            matrix[k] = [float(field) for field in row[1:]]
        except ValueError:
            raise ReadError(f"{path}:{number}", f"not numbers after the name {excerpt(row[0])!r}") from None
    sums = matrix.sum(1, keepdims=True)
    return matrix / sums if (np.abs(sums - 1) <= ROW_SUM_TOLERANCE * len(body)).all() else matrix


def _moving(classes: int, moves: dict[int, int], rate: float, name: str) -> LabelNoise:
    rate = check_range("rate", rate, at_least=0, at_most=1)
    matrix = np.eye(classes)
    for source, destination in moves.items():
        matrix[source, source] = 1 - rate
        matrix[source, destination] = rate
    return LabelNoise(matrix, name, {"classes": classes, "rate": rate})


class MatrixNoise(NamedTuple):
    """A kind of noise: ``make(classes, rate)``, and the number of classes where it is defined for one only."""

    make: Callable[[int, float], LabelNoise]
    classes: int | None = None


def _asymmetric(kind: str) -> MatrixNoise:
    return MatrixNoise(lambda classes, rate: asymmetric(kind, rate), ASYMMETRIC[kind])


MATRIX_NOISES = {"symmetric": MatrixNoise(symmetric), "pairflip": MatrixNoise(pairflip)}
MATRIX_NOISES |= {f"asymmetric-{kind}": _asymmetric(kind) for kind in ASYMMETRIC}
"""Noise by a matrix, by the name before the colon. To add one, add an entry."""


MAX_CONDITION = 1e6
"""Condition of a matrix above which its inverse is rounding"""


class CleanAccuracy(NamedTuple):
    """An estimate, which may lie outside of [0, 1], and its standard error over the examples."""

    value: float
    error: float


def clean_accuracy(predicted: ArrayLike, given: ArrayLike, noise: LabelNoise) -> CleanAccuracy:
    """Estimate the accuracy on clean labels from predictions and noisy labels whose noise is known or was estimated.

    An example counts by the entry ``[given, predicted]`` of the inverse of the transition matrix. Over the given labels of an
    example of class i that is in the mean row i of ``T T^-1``: 1 where class i is predicted, else 0. So the mean over examples
    is right on average, where labels depend on the class alone and the examples were not trained on. The more noise, the larger
    the entries, and the error.

    Args:
        predicted: Predicted classes ``[N]``.
        given: Noisy labels ``[N]`` of the same examples.
        noise: The noise of these labels.

    Returns:
        The estimate and its standard error.

    Raises:
        ValueError: If there are fewer than two examples, or if the matrix has no inverse.

    >>> from noiseproof.noise import from_matrix
    >>> clean_accuracy([0, 0, 1, 1], [0, 0, 1, 1], from_matrix([[0.9, 0.1], [0.1, 0.9]])).value.__round__(4)
    1.125

    Reference: Natarajan et al., NeurIPS 2013, the method of unbiased estimators, with the error rate as the loss.
    """
    counted, labels = (as_labels(each, noise.classes, what) for each, what in ((predicted, "predictions"), (given, "labels")))
    if counted.shape != labels.shape or len(labels) < 2:
        raise ValueError(f"there must be one label for each of two predictions or more: {len(labels)} and {len(counted)}")
    if np.linalg.cond(noise.matrix) > MAX_CONDITION:
        raise ValueError("the transition matrix has no inverse: two classes are labelled alike, and cannot be distinguished")
    worth = np.linalg.inv(noise.matrix)[labels, counted]
    return CleanAccuracy(float(worth.mean()), float(worth.std(ddof=1) / len(worth) ** 0.5))
