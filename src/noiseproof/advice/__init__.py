"""Which loss, hyperparameters and regularisation suit a case, each with its reason, and what was measured nearby.

``evidence.json`` has what was measured, by data set and noise; ``make generate`` writes it from ``records/``.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from noiseproof.audit import Audit
from noiseproof.audit.result import saved_rate
from noiseproof.io.text import read_json
from noiseproof.losses import RobustLoss, create_loss, find_loss
from noiseproof.losses.facts import KINDS_OF_DATA, DataKind, RecommendedSettings, kind_of_data, recommended_settings
from noiseproof.noise import LabelNoise, from_matrix
from noiseproof.theory.choice import LOSSES_WITH_AUTO, choose_a, chosen_options
from noiseproof.theory.risk import Noise, label_weights

__all__ = ["Advice", "AdvicePart", "Case", "Evidence", "MeasuredLoss", "advise", "load_evidence", "nearest_evidence"]

EVIDENCE_FILE = Path(__file__).with_name("evidence.json")
Kind = Literal["features", "images", "photographs"]
NoiseFamily = Literal["none", "symmetric", "pair", "mixed"]
"""How wrong labels are spread over the classes: evenly, to one class each, or in between, as people's are"""
Basis = Literal["theory", "paper", "records", "none"]
DEFAULT_LOSS = "jal-ce"
MIN_LEAD, MIN_LEAD_FEW_SEEDS, MIN_LEAD_ERRORS = 1.0, 3.0, 2.0
"""Points by which another loss must be ahead of JAL-CE to be advised instead, by how many if there are too few seeds, and of
how many standard errors of the difference"""
MIN_SEEDS = 3
"""Seeds from which on a standard deviation is used"""
FEW_IMAGES = 4000
MAX_LOSSES_NAMED = 6
CLEAN_RATE = 0.01
"""A rate of wrong labels below which there is no noise to speak of"""
MAX_SYMMETRIC, MIN_PAIR = 0.35, 0.9
"""Of the share that the most frequent wrong label has of a class's wrong labels, 0 if even and 1 if it has all: less than the
first is symmetric noise, more than the second pair noise"""
FAMILY_DISTANCE, TENFOLD_DISTANCE, MAX_DISTANCE = 0.2, 0.1, 0.3
"""A distance in rates: of another family, of ten times as many classes or examples, and from which on nothing is near"""


@dataclass(frozen=True)
class Case:
    """What a user has; None where it is not known.

    Attributes:
        kind: ``features``, ``images`` (small ones) or ``photographs``.
        classes: The number of classes.
        examples: The number of training examples.
        family: How wrong labels are spread over the classes: none, symmetric, pair or mixed.
        rate: The share of wrong labels.

    Raises:
        ValueError: If the kind of data is not one of these.

    Example:
        >>> Case("features", classes=10, examples=1000, family="symmetric", rate=0.4).kind
        'features'
    """

    kind: Kind | None
    classes: int | None
    examples: int | None
    family: NoiseFamily | None
    rate: float | None

    def __post_init__(self) -> None:
        if self.kind is not None and self.kind not in get_args(Kind):
            raise ValueError(f"kind must be one of {', '.join(get_args(Kind))}, got {self.kind!r}")

    def __str__(self) -> str:
        known = [
            self.kind or f"an unknown kind of data ({', '.join(get_args(Kind))}?)",
            "" if self.classes is None else f"{self.classes} classes",
            "" if self.examples is None else f"{self.examples:,} examples",
            "noise not known" if self.rate is None else f"{self.rate:.1%} wrong labels, {self.family} noise",
        ]
        return ", ".join(filter(None, known))


@dataclass(frozen=True)
class MeasuredLoss:
    """A loss on one data set with one noise.

    Attributes:
        loss: The loss's name.
        decay: The regularisation that it was trained with.
        mean: The mean test accuracy in percent.
        std: Its standard deviation over the seeds; None of one seed.
        n: The number of seeds.

    Example:
        >>> load_evidence()[0].losses[0].n > 0
        True
    """

    loss: str
    decay: str
    mean: float
    std: float | None
    n: int


@dataclass(frozen=True)
class Evidence:
    """What was measured on one data set with one noise.

    Attributes:
        data: The data set's name.
        kind: ``features``, ``images`` or ``photographs``.
        classes: The number of classes.
        examples: The number of training examples.
        noise: The noise that was put on the labels.
        family: How it spreads wrong labels over the classes.
        rate: The realised share of wrong labels.
        record: The file of records.
        losses: From best to worst, each loss with the better of its regularisations.

    Example:
        >>> load_evidence()[0].losses[0].mean >= load_evidence()[0].losses[-1].mean
        True
    """

    data: str
    kind: Kind
    classes: int
    examples: int
    noise: str
    family: NoiseFamily
    rate: float
    record: str
    losses: tuple[MeasuredLoss, ...]

    def __str__(self) -> str:
        seeds = {one.n for one in self.losses}
        n = f"{min(seeds)}" if len(seeds) == 1 else f"{min(seeds)} to {max(seeds)}"
        noise = "clean labels" if self.noise == "none" else f"{self.noise}, {self.rate:.0%} wrong"
        return f"{self.data} ({self.examples:,} examples, {self.classes} classes, {noise}; {self.record}, seeds: {n})"


@functools.cache
def load_evidence() -> tuple[Evidence, ...]:
    """Return all that was measured.

    Returns:
        An entry for each data set and noise.

    Example:
        >>> len(load_evidence()) > 10
        True
    """
    cells = read_json(EVIDENCE_FILE)["cells"]
    return tuple(Evidence(**{**facts, "losses": tuple(MeasuredLoss(**one) for one in facts["losses"])}) for facts in cells)


def nearest_evidence(case: Case) -> tuple[Evidence | None, float]:
    """Find what was measured nearest to a case, on the same kind of data.

    Args:
        case: What the user has.

    Returns:
        The evidence, None where there is none or kind or rate are not known, and its distance, in rates of wrong labels.

    Example:
        >>> found, distance = nearest_evidence(Case("features", 10, 1297, "symmetric", 0.4))
        >>> found.data, found.noise
        ('digits', 'symmetric:0.4')
    """
    if case.kind is None or case.rate is None:
        return None, math.inf
    distances = {found: _distance(case, found) for found in load_evidence() if found.kind == case.kind}
    return min(distances.items(), key=lambda one: (one[1], -len(one[0].losses)), default=(None, math.inf))


def _distance(case: Case, found: Evidence) -> float:
    distance = abs((case.rate or 0.0) - found.rate)
    distance += FAMILY_DISTANCE * (case.family is not None and case.family != found.family)
    for mine, theirs in ((case.classes, found.classes), (case.examples, found.examples)):
        distance += 0.0 if mine is None else TENFOLD_DISTANCE * abs(math.log10(mine / theirs))
    return distance


@dataclass(frozen=True)
class AdvicePart:
    """One part of an advice.

    Attributes:
        what: The loss, a hyperparameter or the regularisation.
        value: What is advised.
        reason: Why.
        basis: What it rests on: theory, the paper's settings, our own records, or nothing that was measured.

    Example:
        >>> advise("symmetric:0.4", classes=10, kind="features").parts[1].what
        'a'
    """

    what: str
    value: str
    reason: str
    basis: Basis


@dataclass(frozen=True)
class Advice:
    """Which loss to train with, and how.

    Attributes:
        case: What it is for.
        loss: The loss's name.
        options: Its hyperparameters.
        l1: Strength of the L1 regularisation; None where the default is to be kept.
        l2: Strength of the L2 regularisation; None where the default is to be kept.
        parts: Each part of the advice with its reason.
        nearest: What was measured nearest to the case, if anything near was.
        warnings: What to know before training.
        commands: What to run next.

    Example:
        >>> advice = advise("symmetric:0.4", classes=10, kind="images", examples=50000)
        >>> advice.loss, advice.l1
        ('jal-ce', 5e-05)
    """

    case: Case
    loss: str
    options: Mapping[str, Any]
    l1: float | None
    l2: float | None
    parts: tuple[AdvicePart, ...]
    nearest: Evidence | None
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
        lines = [f"{part.what}: {part.value}\n    {part.basis}: {part.reason}" for part in self.parts]
        return "\n".join([f"for {self.case}:", *lines, *(f"next: {command}" for command in self.commands)])


def advise(
    noise: Noise | Audit | Path | None = None,
    *,
    classes: int | None = None,
    kind: Kind | None = None,
    examples: int | None = None,
    pretrained: bool = False,
    place: str = "PLACE",
    place_options: Sequence[str] = (),
) -> Advice:
    """Choose a loss, its alpha, beta and a, and the regularisation to train with.

    Args:
        noise: What :func:`noiseproof.theory.label_weights` accepts, an :class:`noiseproof.audit.Audit` or the folder of one;
            None if the noise is not known.
        classes: The number of classes.
        kind: ``features``, ``images`` (small ones) or ``photographs``.
        examples: The number of training examples.
        pretrained: Whether the network for photographs starts from ImageNet's weights.
        place: Where the data are, for the commands to run next.
        place_options: Further words of these commands, such as ``["--label", "churn"]``.

    Returns:
        The advice, each part with its reason.

    Example:
        >>> found = advise("symmetric:0.4", classes=10, kind="images", examples=50000)
        >>> found.options["alpha"], found.options["a"], found.l1
        (1.0, 18.0, 5e-05)
    """
    given: Any = _rate_or_path(noise)
    known = _noise(given, classes)
    classes = classes if known is None else known.classes
    rate = None if known is None else _rate(given, known)
    family = None if known is None or rate is None else noise_family(known, rate)
    case = Case(kind, classes, examples, family, rate)
    found, distance = nearest_evidence(case)
    near = found if distance < MAX_DISTANCE else None
    loss, part = _loss(case, near)
    hopeless, warnings = (False, []) if known is None else _beyond_every_loss(known)
    options, parts = _options(loss, None if hopeless else known, case, pretrained, given)
    l1, l2, regularisation = _regularisation(loss, case, pretrained)
    if isinstance(given, int | float):
        warnings.append("a rate alone is taken for symmetric noise; an audit says which classes are mistaken for which")
    data = [place, *place_options]
    commands = _to_know(data) if known is None or hopeless else [_train_command(loss, options, (l1, l2), data)]
    return Advice(case, loss, options, l1, l2, (part, *parts, regularisation), near, tuple(warnings), tuple(commands))


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


def _rate(noise: Any, known: LabelNoise) -> float:
    """The share of wrong labels; without the frequencies of classes, as if all were equally frequent."""
    if isinstance(noise, str) and (found := saved_rate(Path(noise).expanduser(), known.classes)) is not None:
        return found
    return float(noise.rate) if hasattr(noise, "rate") and not callable(noise.rate) else known.noise_rate


def _beyond_every_loss(noise: LabelNoise) -> tuple[bool, list[str]]:
    """Whether no loss can learn any class under a noise, and warnings; of classes of which that is so, if it is some."""
    try:
        return False, list(choose_a(noise).reasons[1:])
    except ValueError as error:
        return True, [str(error)]


def _loss(case: Case, near: Evidence | None) -> tuple[str, AdvicePart]:
    if near is None:
        reason = "robust for every noise in which the clean label is the likeliest, with a large enough a"
        what = "the noise is not known" if case.rate is None else "nothing near this case has been measured"
        return DEFAULT_LOSS, AdvicePart("loss", DEFAULT_LOSS, f"{reason}; {what}", "theory")
    best = near.losses[0]
    usual = next((one for one in near.losses if one.loss == ("ce" if case.family == "none" else DEFAULT_LOSS)), None)
    chosen = best if usual is None or best.mean - usual.mean > _enough(best, usual) else usual
    order = ", ".join(f"{one.loss} {one.mean:.1f}" for one in near.losses[:MAX_LOSSES_NAMED])
    last = near.losses[-1]
    more = f", ..., {last.loss} {last.mean:.1f}" if len(near.losses) > MAX_LOSSES_NAMED else ""
    equal = [one.loss for one in near.losses if abs(one.mean - chosen.mean) <= _enough(one, chosen) and one != chosen]
    tie = f"; no more than chance away from it: {', '.join(equal)}" if equal else ""
    return chosen.loss, AdvicePart("loss", chosen.loss, f"nearest: {near}: {order}{more} %{tie}", "records")


def _enough(one: MeasuredLoss, other: MeasuredLoss) -> float:
    """Points from which on one is ahead of the other. Seeds are paired, so that the error is smaller than it is taken to be."""
    if one.std is None or other.std is None or min(one.n, other.n) < MIN_SEEDS:
        return MIN_LEAD_FEW_SEEDS
    return max(MIN_LEAD, MIN_LEAD_ERRORS * math.hypot(one.std / one.n**0.5, other.std / other.n**0.5))


def _recommended(loss: str, kind: DataKind) -> RecommendedSettings | None:
    return next((found for found in recommended_settings(loss) if found.kind == kind), None)


def _options(
    loss: str, known: LabelNoise | None, case: Case, pretrained: bool, noise: Any
) -> tuple[dict[str, Any], list[AdvicePart]]:
    """The options of the loss, and a part for each of them."""
    kind = kind_of_data(case.kind, case.classes, pretrained)
    settings = _recommended(loss, kind)
    options = {} if settings is None else dict(settings.options)
    defaults = find_loss(loss).defaults
    parts: list[AdvicePart] = []
    if loss in LOSSES_WITH_AUTO and known is not None:
        options, found = chosen_options(loss, options, known if isinstance(noise, Audit) else noise, classes=case.classes)
        parts.append(AdvicePart("a", f"{found.a:g}", found.reasons[0], "theory"))
    elif loss in LOSSES_WITH_AUTO:
        why = "the noise is not known" if case.rate is None else "none is large enough for this noise"
        parts.append(AdvicePart("a", f"{options.get('a', defaults['a']):g}", f"the default; {why}", "paper"))
    if weights := [name for name in ("alpha", "beta") if name in defaults]:
        value = ", ".join(f"{name} {options.get(name, defaults[name]):.4g}" for name in weights)
        parts.append(AdvicePart(" and ".join(weights), value, *_of_weights(loss, kind, case)))
    return options, parts


def _of_weights(loss: str, kind: DataKind, case: Case) -> tuple[str, Basis]:
    kept = "; beta keeps the strength of AMSE at this a" if loss in LOSSES_WITH_AUTO and case.rate is not None else ""
    if kind != "features":
        return f"the paper's for {KINDS_OF_DATA[kind].data_set}{kept}", "paper"
    if case.kind == "features" and loss == DEFAULT_LOSS:
        return f"the default; a larger alpha mostly cost points under noise (docs/own_data.md){kept}", "records"
    return f"the default{kept}", "none"


def _regularisation(loss: str, case: Case, pretrained: bool) -> tuple[float | None, float | None, AdvicePart]:
    if case.kind is None:
        reason = "what it should be depends on the data: kind= (--kind) says it; docs/regularisation.md has the table"
        return None, None, AdvicePart("regularisation", "-", reason, "none")
    if case.kind == "features":
        reason = "on an MLP no difference was seen between L1 5e-5 and none (docs/regularisation.md)"
        return 0.0, 0.0, AdvicePart("regularisation", "none", reason, "records")
    if case.kind == "images" and case.examples is not None and case.examples < FEW_IMAGES:
        reason = f"the default: of fewer than {FEW_IMAGES:,} images, trained by Adam, regularisations have not been compared"
        return None, None, AdvicePart("regularisation", "none", reason, "none")
    kind = kind_of_data(case.kind, case.classes, pretrained)
    data_set, found = KINDS_OF_DATA[kind].data_set, _recommended(loss, kind)
    if found is None:
        return None, None, AdvicePart("regularisation", "-", f"the paper does not train {loss} on {data_set}", "none")
    shown = " and ".join(f"L{k} {value:g}" for k, value in ((1, found.l1), (2, found.l2)) if value)
    return (
        found.l1,
        found.l2,
        AdvicePart("regularisation", shown, f"the paper's for {data_set}; part of it (docs/regularisation.md)", "paper"),
    )


def _train_command(
    loss: str, options: Mapping[str, Any], penalties: tuple[float | None, float | None], data: Sequence[str]
) -> str:
    sets = {f"loss.{name}": value for name, value in options.items()}
    sets |= {name: value for name, value in zip(("l1", "l2"), penalties, strict=True) if value is not None and any(penalties)}
    texts = {name: f"{value:.6g}" if isinstance(value, float) else json.dumps(value) for name, value in sets.items()}
    changes = [word for name, text in texts.items() for word in ("--set", f"{name}={text}")]
    return shlex.join(["noiseproof", "train", loss, "--data", *data, *changes])


def _to_know(data: Sequence[str]) -> list[str]:
    audit = ["noiseproof", "audit", *data, "--quick", "--out", "audit"]
    return [shlex.join(audit), shlex.join(["noiseproof", "advise", *data, "--noise", "audit"])]


def noise_family(noise: LabelNoise, rate: float | None = None) -> NoiseFamily:
    """How a matrix spreads wrong labels over the classes; ``rate`` is the share of wrong labels, if it is known.

    Classes are weighted by how often their labels are wrong.

    >>> from noiseproof.noise import pairflip, symmetric
    >>> [noise_family(noise) for noise in (symmetric(10, 0.8), symmetric(2, 0.3), pairflip(10, 0.2))]
    ['symmetric', 'symmetric', 'pair']
    """
    wrong = 1 - np.diagonal(noise.matrix)
    if (wrong.mean() if rate is None else rate) < CLEAN_RATE:
        return "none"
    if noise.classes == 2:
        return "symmetric"
    others = noise.matrix - np.diag(np.diagonal(noise.matrix))
    top = float(others.max(1).sum() / wrong.sum())
    even = 1 / (noise.classes - 1)
    above = (top - even) / (1 - even)
    return "symmetric" if above < MAX_SYMMETRIC else "pair" if above > MIN_PAIR else "mixed"
