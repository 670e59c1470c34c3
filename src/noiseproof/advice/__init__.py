"""What to run on data whose labels may be wrong, and which loss suits a training loop of one's own, each with its reason."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from noiseproof.audit import Audit
from noiseproof.audit.result import POSTERIOR_FILE, saved_rate, short_name
from noiseproof.fitting import is_model
from noiseproof.losses import RobustLoss, create_loss, find_loss
from noiseproof.losses.facts import KINDS_OF_DATA, DataKind, RecommendedSettings, kind_of_data, recommended_settings
from noiseproof.noise import LabelNoise, from_matrix
from noiseproof.theory.choice import choose_a, chosen_options
from noiseproof.theory.risk import Noise, label_weights
from noiseproof.train.class_weights import IMBALANCE

__all__ = ["Advice", "AdvicePart", "Case", "advise"]

Kind = Literal["features", "images", "photographs"]
Basis = Literal["theory", "paper", "records", "none"]
ROBUST_LOSS, PLAIN_LOSS = "jal-ce", "ce"
CLEAN_RATE = 0.01
"""A rate of wrong labels below which there is no noise to speak of"""
FEW_IMAGES = 4000
EPOCHS: dict[DataKind, int] = {
    "images": 120, "images-many-classes": 200, "photographs": 250, "photographs-pretrained": 10, "features": 100
}  # fmt: skip
"""The paper's, with the robust losses; of features the trainer's own"""
PATIENCE = 20
TEMPERED = "(N / (K n_k))^(1 - 1/K)"
MIN_CONFUSION, MAX_CONFUSIONS = 0.05, 2
"""The share of a class that is given one other label from which on it is named, and how many of them"""
MODEL_FOLDER = "model"
GAIN = 6
"""Points of accuracy by which fit was ahead of cross entropy with early stopping where labels were wrong: records/zoo.jsonl"""
FIT_WHY = "it finds the wrong labels and does not learn them, needs no settings, and stays as good where all labels are right"


@dataclass(frozen=True)
class Case:
    """What a user has; None where it is not known.

    Attributes:
        kind: ``features``, ``images`` (small ones) or ``photographs``.
        classes: The number of classes.
        examples: The number of training examples.
        rate: The share of wrong labels.
        rate_interval: Its 95 % interval, if it was estimated.
        imbalance: How many times as many labels the most frequent class has as the rarest.
        confusions: Which labels are wrong, in words.

    Raises:
        ValueError: If the kind of data is not one of these.

    Example:
        >>> print(Case("features", classes=10, examples=1000, rate=0.4))
        features, 10 classes, 1,000 examples, 40.0% wrong labels
    """

    kind: Kind | None
    classes: int | None
    examples: int | None
    rate: float | None
    rate_interval: tuple[float, float] | None = None
    imbalance: float | None = None
    confusions: str = ""

    def __post_init__(self) -> None:
        if self.kind is not None and self.kind not in get_args(Kind):
            raise ValueError(f"kind must be one of {', '.join(get_args(Kind))}, got {self.kind!r}")

    @property
    def maybe_clean(self) -> bool:
        """Whether it is known that every label may be right."""
        sure = self.rate_interval is None or self.rate_interval[0] > 0
        return self.rate is not None and (self.rate < CLEAN_RATE or not sure)

    @property
    def imbalanced(self) -> bool:
        """Whether robust losses may collapse onto the majority class."""
        return self.imbalance is not None and self.imbalance >= IMBALANCE

    def __str__(self) -> str:
        wrong = "an unknown share of wrong labels" if self.rate is None else f"{self.rate:.1%} wrong labels"
        if self.rate_interval is not None:
            wrong += " (95 % interval {:.1%} to {:.1%})".format(*self.rate_interval)
        known = [
            self.kind or f"an unknown kind of data ({', '.join(get_args(Kind))}?)",
            "" if self.classes is None else f"{self.classes} classes",
            "" if self.examples is None else f"{self.examples:,} examples",
            f"class imbalance 1:{self.imbalance:.3g}" if self.imbalance is not None and self.imbalanced else "",
            wrong,
            self.confusions,
        ]
        return ", ".join(filter(None, known))


@dataclass(frozen=True)
class AdvicePart:
    """One part of an advice.

    Attributes:
        what: What to run or to expect; or, for a training loop of one's own, the loss, a hyperparameter or the regularisation.
        value: What is advised.
        reason: Why.
        basis: What it rests on: theory, the paper's settings, our own records, or nothing that was measured.

    Example:
        >>> advise("symmetric:0.4", classes=10, kind="features").parts[0].value
        'noiseproof fit PLACE --out model'
    """

    what: str
    value: str
    reason: str
    basis: Basis


@dataclass(frozen=True)
class Advice:
    """What to run; and for a training loop of one's own, which loss to train with, and how.

    Attributes:
        case: What it is for.
        loss: The name of the loss for one's own loop.
        options: Its hyperparameters.
        early_stopping: Whether to stop early, by the cross entropy of held-out labels as given.
        class_weight: "tempered", see :func:`noiseproof.train.class_weights.class_weights`; or None if classes are about as
            frequent, or nothing is known of that.
        epochs: Passes over the examples, at most.
        l1: Strength of the L1 regularisation; None where the default is to be kept.
        l2: Strength of the L2 regularisation; None where the default is to be kept.
        parts: Each part of the advice with its reason; what to run and to expect first.
        warnings: What to know before training.
        commands: What to run next, in this order.

    Example:
        >>> advice = advise("symmetric:0.4", classes=10, kind="images", examples=50000)
        >>> advice.loss, advice.epochs, advice.l1
        ('jal-ce', 120, 5e-05)
    """

    case: Case
    loss: str
    options: Mapping[str, Any]
    early_stopping: bool
    class_weight: Literal["tempered"] | None
    epochs: int
    l1: float | None
    l2: float | None
    parts: tuple[AdvicePart, ...]
    warnings: tuple[str, ...]
    commands: tuple[str, ...]

    def criterion(self) -> RobustLoss:
        """Return the loss with its hyperparameters.

        Returns:
            A module to train with.

        Example:
            >>> advise("symmetric:0.4", classes=10, kind="images").criterion().a
            18.0
        """
        return create_loss(self.loss, **self.options)

    def as_dict(self) -> dict[str, Any]:
        """Return the advice as JSON can hold it.

        Returns:
            The fields by name.

        Example:
            >>> advise("symmetric:0.4", classes=10, kind="images").as_dict()["options"]["a"]
            18.0
        """
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        bases = ["" if part.basis == "none" else f"{part.basis}: " for part in self.parts]
        lines = [f"{one.what}: {one.value}\n    {basis}{one.reason}" for one, basis in zip(self.parts, bases, strict=True)]
        lines.insert(2, "for a training loop of your own:")
        return "\n".join([f"found: {self.case}", *lines, *(f"next: {command}" for command in self.commands)])


def advise(
    noise: Noise | Audit | Path | None = None,
    *,
    classes: int | None = None,
    kind: Kind | None = None,
    examples: int | None = None,
    counts: Mapping[str, int] | None = None,
    pretrained: bool = False,
    gpu: bool = True,
    place: str = "PLACE",
    place_options: Sequence[str] = (),
) -> Advice:
    """Say what to run on data whose labels may be wrong; and which loss, hyperparameters, class weights and how many epochs
    suit a training loop of one's own.

    Args:
        noise: What :func:`noiseproof.theory.label_weights` accepts, an :class:`noiseproof.audit.Audit` or the folder of one, or
            of a fit; None if the noise is not known.
        classes: The number of classes.
        kind: ``features``, ``images`` (small ones) or ``photographs``.
        examples: The number of training examples.
        counts: How many labels are of each class, by its name.
        pretrained: Whether the network for photographs starts from ImageNet's weights.
        gpu: Whether there is a GPU to train a network of images on.
        place: Where the data are, for the commands to run next.
        place_options: Further words of these commands, such as ``["--label", "churn"]``.

    Returns:
        The advice, each part with its reason.

    Example:
        >>> found = advise("symmetric:0.4", classes=10, kind="images", examples=50000)
        >>> found.options["alpha"], found.options["a"], found.l1
        (1.0, 18.0, 5e-05)
        >>> found = advise("symmetric:0.4", kind="features", counts={"stay": 900, "leave": 100})
        >>> found.loss, found.early_stopping, found.class_weight
        ('ce', True, 'tempered')
    """
    present = [] if counts is None else [count for count in counts.values() if count > 0]
    if counts is not None:
        classes, examples = len(counts), sum(present)
    given: Any = _rate_or_path(noise)
    known = _noise(given, classes)
    rate, interval = (None, None) if known is None else _rate(given, known)
    imbalance = max(present) / min(present) if len(present) > 1 else None
    classes = classes if known is None else known.classes
    names = list(map(short_name, counts)) if counts is not None else list(map(str, range(classes or 0)))
    case = Case(kind, classes, examples, rate, interval, imbalance, "" if known is None else _confusions(known, names))
    hopeless, warnings = (False, []) if known is None else _beyond_every_loss(known)
    if isinstance(given, int | float):
        warnings.append("a rate alone is taken for symmetric noise; an audit says which classes are mistaken for which")
    part = _loss(case)
    row = kind_of_data(case.kind, case.classes, pretrained)
    settings = next(found for found in recommended_settings(part.value) if found.kind == row)
    options, parts = _options(part.value, settings, None if hopeless else known, case, given)
    early = part.value == PLAIN_LOSS
    weighting, epochs = _class_weight(case), _epochs(row, early)
    l1, l2, regularisation = _regularisation(settings, case)
    data = [place, *place_options]
    train = [] if early or hopeless or not gpu else [_train_command(options, (l1, l2), EPOCHS[row], data)]
    fitted = isinstance(given, str) and is_model(given) and not hopeless
    commands = (*_commands(data, case, given if fitted else None, hopeless), *train)
    own = (dataclasses.replace(part, value=f"{part.value}, with early stopping") if early else part, *parts)
    labels = [_labels(given if isinstance(given, str) and (Path(given) / POSTERIOR_FILE).is_file() else MODEL_FOLDER)]
    own = (*own, *(labels if early and not hopeless else []), weighting, epochs, regularisation)
    weight: Literal["tempered"] | None = "tempered" if case.imbalanced else None
    what = (*_run(commands[0], case, hopeless, fitted), *own)
    return Advice(case, part.value, options, early, weight, EPOCHS[row], l1, l2, what, tuple(warnings), commands)


def _rate_or_path(noise: Any) -> Any:
    """Text that is a number as a number, a rate; a path as text."""
    try:
        return float(noise) if isinstance(noise, str) else str(noise) if isinstance(noise, Path) else noise
    except ValueError:
        return noise


def _noise(noise: Noise | Audit | None, classes: int | None) -> LabelNoise | None:
    if noise is None:
        return None
    if isinstance(noise, Audit):
        return LabelNoise(noise.transition, "the audit's matrix")
    return from_matrix(label_weights(noise, classes))


def _rate(noise: Any, known: LabelNoise) -> tuple[float, tuple[float, float] | None]:
    """The share of wrong labels, without the frequencies of classes as if all were equally frequent; and its interval."""
    if isinstance(noise, Audit):
        return noise.rate, noise.rate_interval
    if isinstance(noise, str) and (found := saved_rate(Path(noise).expanduser(), known.classes)) is not None:
        return found
    return (float(noise.rate) if hasattr(noise, "rate") and not callable(noise.rate) else known.noise_rate), None


def _confusions(noise: LabelNoise, names: Sequence[str]) -> str:
    """In words, the confusions that stand out; of two classes both.

    >>> _confusions(from_matrix([[0.83, 0.17], [0.61, 0.39]]), ["no", "yes"])
    '61% of class yes labelled no, 17% of class no labelled yes'
    """
    others = noise.matrix - np.diag(np.diag(noise.matrix))
    mean = others.sum() / (noise.classes * (noise.classes - 1))
    least = CLEAN_RATE if noise.classes == 2 else max(MIN_CONFUSION, 2 * mean)
    largest = [np.unravel_index(place, others.shape) for place in np.argsort(-others, axis=None)[:MAX_CONFUSIONS]]
    shown = [(others[i, j], names[i], names[j]) for i, j in largest if others[i, j] >= least]
    return ", ".join(f"{share:.0%} of class {true} labelled {given}" for share, true, given in shown)


def _beyond_every_loss(noise: LabelNoise) -> tuple[bool, list[str]]:
    """Whether no loss can learn any class under a noise, and warnings; of classes of which that is so, if it is some."""
    try:
        return False, list(choose_a(noise).reasons[1:])
    except ValueError as error:
        return True, [str(error)]


def _run(command: str, case: Case, hopeless: bool, fitted: bool) -> tuple[AdvicePart, AdvicePart]:
    """What to run first, and what to expect of it."""
    if hopeless:
        why = "no model can tell right labels from wrong ones that are given as often: a person must decide"
        then = "decisions on it are exported, and the next command that the audit prints writes the data with them"
        return AdvicePart("run", command, why, "theory"), AdvicePart("expect", "a page of labels to look at", then, "none")
    if fitted:
        expect, why = "what its report says", "the verdict estimates its accuracy on correct labels, and what it gains"
    elif case.kind in ("images", "photographs"):
        expect = "the labels to look at, and the model of a small network"
        why = "features of a pretrained network make a better one: --encoder names it (docs/how_to/fit.md)"
    elif case.maybe_clean:
        expect, why = "about what plain training gives", "every label may be right, and then there is nothing to gain"
    else:
        expect = f"about {GAIN} points more accuracy than from cross entropy with early stopping"
        why = "the mean over 14 data sets with wrong labels, less where few are wrong (docs/benchmarks/fit.md)"
        if case.rate is None:
            why += "; no gain if all labels are right. How many are wrong it says itself"
    run = AdvicePart("run", command, FIT_WHY, "records")
    if fitted:
        run = AdvicePart("run", command, "the model is fitted already; this is how it predicts new rows", "none")
    return run, AdvicePart("expect", expect, why, "none" if fitted else "records")


def _loss(case: Case) -> AdvicePart:
    """For a loop of one's own: the robust loss only where the records show it ahead."""
    if case.maybe_clean:
        reason = "the labels may all be right; without noise no robust loss was ahead by more than chance"
    elif case.rate is None:
        reason = "the noise is not known; early stopping keeps wrong labels from being memorised and costs little on right ones"
    elif case.imbalanced:
        reason = (
            f"from 1:{IMBALANCE:g} on robust losses may collapse onto the majority class (docs/benchmarks/class_imbalance.md)"
        )
    elif case.kind != "images" and case.kind != "photographs":
        reason = "on 13 data sets of features jal-ce was 2 points behind it on average (docs/benchmarks/early_stopping.md)"
    elif case.examples is not None and case.examples < FEW_IMAGES:
        reason = f"of fewer than {FEW_IMAGES:,} images robust losses were not ahead (docs/how_to/own_data.md)"
    else:
        reason = "on CIFAR-10 ahead of ce's best epoch under every noise (docs/benchmarks/early_stopping.md)"
        return AdvicePart("loss", ROBUST_LOSS, reason, "records")
    return AdvicePart("loss", PLAIN_LOSS, reason, "records")


def _labels(folder: str) -> AdvicePart:
    value = f"those of the data, or the probabilities in {Path(folder) / POSTERIOR_FILE}, which fit and audit write"
    reason = "as soft labels they need no early stopping (docs/how_to/choosing.md says how far each went)"
    return AdvicePart("labels", value, reason, "records")


def _class_weight(case: Case) -> AdvicePart:
    if case.imbalanced:
        reason = (
            f"{TEMPERED} for class k, which has n_k of the N labels, if all classes matter alike; none for plain accuracy. Of "
            "two classes balanced weights amplify the wrong labels of the minority class (docs/benchmarks/class_imbalance.md)"
        )
        return AdvicePart("class weights", "tempered", reason, "records")
    if case.imbalance is not None:
        return AdvicePart("class weights", "none", "the classes are about as frequent", "records")
    reason = f"unless one class has {IMBALANCE:g} times the labels of another: then tempered, {TEMPERED}"
    return AdvicePart("class weights", "none", reason, "records")


def _epochs(row: DataKind, early: bool) -> AdvicePart:
    if early:
        reason = (
            f"hold out a fifth of the labels as given, and stop when their cross entropy has not fallen for {PATIENCE} epochs"
        )
        return AdvicePart("epochs", f"at most {max(EPOCHS['features'], EPOCHS[row])}", reason, "records")
    reason = f"the paper's for {KINDS_OF_DATA[row].data_set}; robust losses learn slowly, and after 25 were 10 points behind ce"
    return AdvicePart("epochs", str(EPOCHS[row]), f"{reason}: with a smaller budget take ce with early stopping", "paper")


def _options(
    loss: str, settings: RecommendedSettings, known: LabelNoise | None, case: Case, noise: Any
) -> tuple[dict[str, Any], list[AdvicePart]]:
    """The options of the loss, and a part for each of them."""
    options = dict(settings.options)
    if loss == PLAIN_LOSS:
        return options, []
    defaults = find_loss(loss).defaults
    if known is not None:
        options, found = chosen_options(loss, options, known if isinstance(noise, Audit) else noise, classes=case.classes)
        a = AdvicePart("a", f"{found.a:g}", found.reasons[0], "theory")
    else:
        why = "the noise is not known" if case.rate is None else "none is large enough for this noise"
        a = AdvicePart("a", f"{options.get('a', defaults['a']):g}", f"the default; {why}", "paper")
    value = ", ".join(f"{name} {options.get(name, defaults[name]):.4g}" for name in ("alpha", "beta"))
    kept = "" if case.rate is None else "; beta keeps the strength of AMSE at this a"
    reason = f"the paper's for {KINDS_OF_DATA[settings.kind].data_set}"
    if settings.kind == "features":
        reason = "the default; a larger alpha mostly cost points under noise (docs/how_to/own_data.md)"
    return options, [
        a,
        AdvicePart("alpha and beta", value, reason + kept, "records" if settings.kind == "features" else "paper"),
    ]


def _regularisation(settings: RecommendedSettings, case: Case) -> tuple[float | None, float | None, AdvicePart]:
    if case.kind is None:
        reason = "what it should be depends on the data: kind= (--kind) says it; docs/how_to/regularisation.md has the table"
        return None, None, AdvicePart("regularisation", "-", reason, "none")
    if case.kind == "features":
        reason = "on an MLP no difference was seen between L1 5e-5 and none (docs/how_to/regularisation.md)"
        return 0.0, 0.0, AdvicePart("regularisation", "none", reason, "records")
    if case.kind == "images" and case.examples is not None and case.examples < FEW_IMAGES:
        reason = f"the default: of fewer than {FEW_IMAGES:,} images, trained by Adam, regularisations have not been compared"
        return None, None, AdvicePart("regularisation", "none", reason, "none")
    shown = " and ".join(f"L{k} {value:g}" for k, value in ((1, settings.l1), (2, settings.l2)) if value)
    reason = f"the paper's for {KINDS_OF_DATA[settings.kind].data_set}; part of it (docs/how_to/regularisation.md)"
    return settings.l1, settings.l2, AdvicePart("regularisation", shown, reason, "paper")


def _commands(data: Sequence[str], case: Case, model: str | None, hopeless: bool) -> Iterator[str]:
    """What to run first; ``model`` is the folder of one that is fitted already."""
    if hopeless:
        yield shlex.join(["noiseproof", "audit", *data, "--out", "audit"])
    elif model is not None:
        yield shlex.join(["noiseproof", "predict", model, "--data", "NEW", "--out", "predictions.csv"])
    else:
        yield shlex.join(["noiseproof", "fit", *data, "--out", MODEL_FOLDER])
        if case.rate is None:
            yield shlex.join(["noiseproof", "advise", *data, "--noise", MODEL_FOLDER])


def _train_command(
    options: Mapping[str, Any], penalties: tuple[float | None, float | None], epochs: int, data: Sequence[str]
) -> str:
    sets = {f"loss.{name}": value for name, value in options.items()}
    sets |= {name: value for name, value in zip(("l1", "l2"), penalties, strict=True) if value is not None and any(penalties)}
    sets["epochs"] = epochs
    texts = {name: f"{value:.6g}" if isinstance(value, float) else json.dumps(value) for name, value in sets.items()}
    changes = [word for name, text in texts.items() for word in ("--set", f"{name}={text}")]
    return shlex.join(["noiseproof", "train", ROBUST_LOSS, "--data", *data, *changes])
